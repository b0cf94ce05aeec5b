// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// requestOnce is one request by the client's kernel.
func requestOnce(l *lan, target Target) *RequestError {
	r, err := NewRequests(target, RequestsConfig{Dial: l.client.dial})
	if err != nil {
		return failed(Local, err)
	}
	return r.request()
}

// One body, two worlds: the kernel's TCP and ours type failures alike.
func TestEveryFailureIsTypedByTheKernelsWayAndThroughAMAC(t *testing.T) {
	tests := []struct {
		name   string
		handle func(net.Conn) // nil: nobody listens
		change func(*Target)
		want   Failure // empty: success
	}{
		{name: "a good answer", handle: says(ok("hello")), change: func(t *Target) { t.Marker = "hell" }},
		{name: "an answer without length", handle: says("HTTP/1.0 200 OK\r\n\r\nhello"), change: func(t *Target) { t.Marker = "hello" }},
		{name: "another status that is wanted", handle: says("HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n"), change: func(t *Target) { t.Status = 404 }},
		{name: "nobody listens", want: Refused},
		{name: "the server accepts and says nothing", handle: silence, want: AnswerTimeout},
		{name: "half an answer and then nothing", handle: func(c net.Conn) {
			readRequest(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
			silence(c)
		}, want: AnswerTimeout},
		{name: "the server resets", handle: resets, want: Reset},
		{name: "closed before the answer", handle: func(c net.Conn) { readRequest(c) }, want: Cut},
		{name: "closed inside the head", handle: says("HTTP/1.1 200 OK\r\nContent-"), want: Cut},
		{name: "closed inside the body", handle: says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), want: Cut},
		{name: "another status", handle: says("HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n"), want: Status},
		{name: "another status, then a reset", handle: func(c net.Conn) {
			readRequest(c)
			_, _ = io.WriteString(c, "HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n")
			// The reset comes once our side has closed.
			silence(c)
			_ = c.(*net.TCPConn).SetLinger(0)
		}, want: Status},
		{name: "no HTTP at all", handle: says("SSH-2.0-x\r\n\r\n"), want: Status},
		{name: "the body of somebody else", handle: says(ok("welcome to the router")), change: func(t *Target) { t.Marker = "hello" }, want: Body},
	}
	l := newLAN(t)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			target := at(uint16(8000 + i))
			if tt.want == AnswerTimeout {
				target = briefly(target)
			}
			if tt.change != nil {
				tt.change(&target)
			}
			for _, n := range []*machine{l.n1, l.n2} {
				if tt.handle != nil {
					n.serve(t, target.Address.Port(), tt.handle)
				}
			}
			err := requestOnce(l, target)
			if got := typeOf(err); got != tt.want {
				t.Errorf("by the kernel: %v, want %q", err, tt.want)
			}
			o := l.through(t, l.via(l.n2), target, 1)
			if tt.want == "" && o.Succeeded != 1 || tt.want != "" && o.ByType[tt.want] != 1 || o.Sent != 1 {
				t.Errorf("through the MAC: %+v, want %q", o, tt.want)
			}
		})
	}
}

func typeOf(err *RequestError) Failure {
	if err == nil {
		return ""
	}
	return err.Failure
}

func TestASilentMachineAndAMissingOneAreConnectTimeoutsAndNoWayIsNoRoute(t *testing.T) {
	l := newLAN(t)
	var port *heldPort // listens, and drops every SYN
	must(t, l.n1.Do(func() (err error) { port, err = holdPort(vip); return err }))
	defer port.release()
	nobody := briefly(at(80))
	nobody.Address = netip.MustParseAddrPort("192.0.2.99:80") // nobody answers ARP
	beyond := at(80)
	beyond.Address = netip.MustParseAddrPort("203.0.113.1:80")
	for want, target := range map[Failure][]Target{ConnectTimeout: {briefly(at(port.port)), nobody}, NoRoute: {beyond}} {
		for _, target := range target {
			if err := requestOnce(l, target); typeOf(err) != want {
				t.Errorf("%s: %v, want %s", target, err, want)
			}
		}
	}
}

func TestAnUnansweredARPIsNoRouteWhenTheRequestMayWaitForTheKernelsWord(t *testing.T) {
	l := newLAN(t)
	nobody := at(80)
	nobody.Address = netip.MustParseAddrPort("192.0.2.99:80")
	nobody.Timeout = 20 * time.Second
	must(t, l.client.SetSysctl("net/ipv4/neigh/eth0/mcast_solicit", "1"))
	must(t, l.client.SetSysctl("net/ipv4/neigh/eth0/retrans_time_ms", "100"))
	if err := requestOnce(l, nobody); typeOf(err) != NoRoute {
		t.Errorf("err = %v, want no-route", err)
	}
}

func TestRequestsAreMadeAnewEachWithItsHostHeader(t *testing.T) {
	l := newLAN(t)
	var connections, requests atomic.Int32
	l.n1.serve(t, 80, func(c net.Conn) {
		connections.Add(1)
		r := readRequest(c)
		if r == nil || r.Host != "shop.example" || r.URL.Path != "/healthz" || !r.Close {
			return
		}
		requests.Add(1)
		_, _ = io.WriteString(c, ok("x"))
	})
	target := at(80)
	target.Host, target.Path = "shop.example", "/healthz"
	for range 5 {
		if err := requestOnce(l, target); err != nil {
			t.Fatal(err)
		}
	}
	if connections.Load() != 5 || requests.Load() != 5 {
		t.Errorf("%d connections, %d good requests, want 5 and 5", connections.Load(), requests.Load())
	}
}

func TestAKilledServerIsAGapThatIsMeasuredAndClosed(t *testing.T) {
	l := newLAN(t)
	target := at(80)
	failures := make(chan *RequestError, 1)
	r, err := NewRequests(target, RequestsConfig{Rate: 100, Dial: l.client.dial, OnFailure: func(e *RequestError) {
		select {
		case failures <- e:
		default:
		}
	}})
	must(t, err)
	stop := l.n1.serve(t, 80, says(ok("x")))
	end := start(t, r)

	await(t, r, "20 successes", func(c Counts) bool { return c.Succeeded >= 20 })
	if c := r.Counts(); c.Failed != 0 {
		t.Fatalf("before the kill: %+v", c)
	}
	killed := time.Now()
	stop()
	<-failures
	await(t, r, "a gap of 300 ms", func(c Counts) bool { return c.OpenGap >= 300*time.Millisecond })
	l.n1.serve(t, 80, says(ok("x")))
	before := r.Counts().Succeeded
	await(t, r, "successes again", func(c Counts) bool { return c.Succeeded > before })
	outage := time.Since(killed)
	end()

	c := r.Counts()
	if c.LongestGap < 300*time.Millisecond || c.LongestGap > outage+100*time.Millisecond {
		t.Errorf("longest gap = %s, want from 300 ms to about the outage of %s", c.LongestGap, outage)
	}
	if c.Failed == 0 || c.ByType[Refused] == 0 || !strings.Contains(c.LastError, ": ") {
		t.Errorf("counts = %+v, want refused requests", c)
	}
	if c.Sent != c.Succeeded+c.Failed {
		t.Errorf("%d sent, %d succeeded, %d failed after the end", c.Sent, c.Succeeded, c.Failed)
	}
}

// start runs r until end.
func start(t testing.TB, r *Requests) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v", err)
		}
	}
}

// await waits until r's counts are as wanted.
func await(t testing.TB, r *Requests, what string, is func(Counts) bool) {
	t.Helper()
	late := time.After(20 * time.Second)
	for !is(r.Counts()) {
		select {
		case <-late:
			t.Fatalf("no %s: %+v", what, r.Counts())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// fakeServer dials connections of a synctest bubble.
func fakeServer(answer func(net.Conn)) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() { defer theirs.Close(); answer(theirs) }()
		return ours, nil
	}
}

func TestThePaceDoesNotWaitForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := at(80)
		target.Timeout = time.Second
		r, err := NewRequests(target, RequestsConfig{Rate: 100, Dial: fakeServer(silence)})
		must(t, err)
		end := start(t, r)
		<-time.After(10*time.Second + 5*time.Millisecond)
		synctest.Wait()
		c := r.Counts()
		if c.Sent != 1001 {
			t.Errorf("%d sent in 10 s at 100 a second, want 1001: one is due at once", c.Sent)
		}
		if c.ByType[AnswerTimeout] != 901 || r.Skipped() != 0 {
			t.Errorf("%+v, %d skipped, want the requests of the first 9 s timed out", c, r.Skipped())
		}
		end()
		if c := r.Counts(); c.Failed != c.Sent {
			t.Errorf("%d of %d ended: those under way were not awaited", c.Failed, c.Sent)
		}
	})
}

func TestARequestThatHangsBeyondItsTimeoutIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		r, err := NewRequests(briefly(at(80)), RequestsConfig{Rate: 10, Dial: func(context.Context, string, string) (net.Conn, error) {
			<-hang // a dialer that forgets its context
			return nil, unix.ECONNREFUSED
		}})
		must(t, err)
		end := start(t, r)
		<-time.After(time.Minute)
		synctest.Wait()
		bound := uint64(3 + spareSlots) // 10 a second × 0.3 s
		if c := r.Counts(); c.Sent != bound || r.Skipped() == 0 {
			t.Errorf("%d sent, %d skipped, want %d under way and the others skipped", c.Sent, r.Skipped(), bound)
		}
		close(hang)
		end()
	})
}

func TestARateOrATargetThatCannotBeMeantIsRefused(t *testing.T) {
	for want, give := range map[string]struct {
		t    Target
		rate float64
	}{
		"preparing requests: rate -1 is not above 0 and up to 1000 a second":      {at(80), -1},
		"preparing requests: rate 100000 is not above 0 and up to 1000 a second":  {at(80), 1e5},
		`preparing requests: target "invalid AddrPort" is no address with a port`: {Target{}, 1},
		"preparing requests: timeout -1s of target 192.0.2.50:80 is negative": {
			Target{Address: netip.AddrPortFrom(vip, 80), Timeout: -time.Second}, 1},
	} {
		if _, err := NewRequests(give.t, RequestsConfig{Rate: give.rate}); err == nil || err.Error() != want {
			t.Errorf("err = %v\nwant  %s", err, want)
		}
	}
}

func TestFailuresAreTypedByTheirErrorsAndNotByTheirWords(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("any words: %w", &net.OpError{Op: "x", Err: err}) }
	for _, tt := range []struct {
		how  func(error) *RequestError
		err  error
		want Failure
	}{
		{connecting, unix.ECONNREFUSED, Refused},
		{connecting, unix.EHOSTUNREACH, NoRoute},
		{connecting, unix.ENETUNREACH, NoRoute},
		{connecting, unix.ETIMEDOUT, ConnectTimeout},
		{connecting, context.DeadlineExceeded, ConnectTimeout},
		{connecting, unix.ECONNRESET, Reset},
		{connecting, unix.EADDRNOTAVAIL, Local},
		{connecting, unix.EMFILE, Local},
		{connecting, unix.EPERM, Local},
		{connecting, errors.New("connection refused"), Local},
		{answering, unix.ECONNRESET, Reset},
		{answering, unix.EPIPE, Reset},
		{answering, unix.ETIMEDOUT, AnswerTimeout},
		{answering, unix.EHOSTUNREACH, NoRoute},
		{answering, io.EOF, Cut},
		{answering, io.ErrUnexpectedEOF, Cut},
		{answering, errors.New("connection reset by peer"), Status},
	} {
		if got := tt.how(wrap(tt.err)); got.Failure != tt.want || !errors.Is(got, tt.err) {
			t.Errorf("%v = %v, want %s", tt.err, got, tt.want)
		}
	}
}

func TestTheLogSpeaksWhenTheMoodTurns(t *testing.T) {
	var m mood
	turns := ""
	for _, ok := range []bool{true, true, false, false, true, false, true} {
		if m.turn(ok) {
			turns += fmt.Sprint(ok, " ")
		}
	}
	for range 2 * calmAfter {
		if m.turn(true) {
			turns += "true "
		}
	}
	if turns != "false true " {
		t.Errorf("turns = %q, want one to failing and one back", turns)
	}
}
