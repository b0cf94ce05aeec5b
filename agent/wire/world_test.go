// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/bpf"
)

// world is one segment with hosts on it: in memory, or the kernel's. A story
// is told once and runs in both; where they disagree, the one in memory is
// wrong.
type world interface {
	// join makes a host with 192.0.2.<last>/24 on a NIC eth0.
	join(t *testing.T, last byte) host
	// window is long enough for every answer that is not late on purpose.
	window() time.Duration
}

type host interface {
	nic() NIC
	addr() netip.Addr
	sockets() Sockets
	in(func()) // runs something that opens sockets where the host's are

	hold(t *testing.T, ip netip.Addr)     // a stale address: the kernel answers
	announce(t *testing.T, ip netip.Addr) // software answers, the kernel holds nothing
	proxy(t *testing.T, ip netip.Addr)    // proxy ARP: the kernel answers late
	send(t *testing.T, b []byte)          // as other software on the host does
	fail(t *testing.T, state error)       // ErrDown or ErrNoCarrier
}

// inBothWorlds runs a story in memory and on the kernel.
func inBothWorlds(t *testing.T, story func(*testing.T, world)) {
	t.Run("in memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { story(t, memoryWorld{NewSegment()}) })
	})
	t.Run("on the kernel", func(t *testing.T) {
		w := newKernelWorld(t)
		noLeaks(t)
		story(t, w)
	})
}

// noLeaks fails t when goroutines started from here on are left at its end.
func noLeaks(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
}

type memoryWorld struct{ segment *Segment }

func (memoryWorld) window() time.Duration { return DefaultWindow }

func (w memoryWorld) join(_ *testing.T, last byte) host {
	nic := NIC{Name: "eth0", Index: 2, MAC: MAC{2, 0, 0, 0, 0, last}}
	return memoryHost{w.segment.Join(nic), netip.AddrFrom4([4]byte{192, 0, 2, last})}
}

type memoryHost struct {
	port *Port
	ip   netip.Addr
}

func (h memoryHost) nic() NIC                             { return h.port.NIC() }
func (h memoryHost) addr() netip.Addr                     { return h.ip }
func (h memoryHost) sockets() Sockets                     { return h.port }
func (h memoryHost) in(fn func())                         { fn() }
func (h memoryHost) hold(_ *testing.T, ip netip.Addr)     { h.port.Answer(KernelAnswers(ip)) }
func (h memoryHost) announce(_ *testing.T, ip netip.Addr) { h.port.Answer(AnnouncerAnswers(ip)) }
func (h memoryHost) send(_ *testing.T, b []byte)          { h.port.SendBytes(b) }
func (h memoryHost) fail(_ *testing.T, state error)       { h.port.Fail(state) }

// proxy answers as the kernel's proxy ARP does: 0.7 s late, and neither an
// address probe nor a martian sender.
func (h memoryHost) proxy(_ *testing.T, ip netip.Addr) {
	kernel := Delayed(KernelAnswers(ip), 700*time.Millisecond)
	h.port.Answer(func(request Frame) []Answer {
		if request.SenderIP.IsUnspecified() {
			return nil
		}
		return kernel(request)
	})
}

// outcome is what Prober.Round returned.
type outcome struct {
	results []Result
	err     error
}

// begin starts a round of p on h.
func begin(t *testing.T, h host, p *Prober, requests []Request, opts ...RoundOption) <-chan outcome {
	done := make(chan outcome, 1)
	go h.in(func() {
		results, err := p.Round(t.Context(), requests, opts...)
		done <- outcome{results, err}
	})
	return done
}

// whole returns the results of a round that went well, else fails t.
func whole(t *testing.T, o outcome) []Result {
	t.Helper()
	if o.err != nil {
		t.Fatal(o.err)
	}
	for i, r := range o.results {
		if !r.Sent || !r.Complete() {
			t.Fatalf("request %d: %+v", i, r)
		}
	}
	return o.results
}

// ask runs one round of p on h that has to go well.
func ask(t *testing.T, h host, p *Prober, requests []Request, opts ...RoundOption) []Result {
	t.Helper()
	return whole(t, await(t, begin(t, h, p, requests, opts...), "a round"))
}

func prober(h host) *Prober { return NewProber(h.nic(), ProberConfig{Sockets: h.sockets()}) }

// tally counts the solicited replies by MAC and fails t when one is not what a
// reply of that MAC to h is.
func tally(t *testing.T, h host, r Result) map[MAC]int {
	t.Helper()
	n := map[MAC]int{}
	for _, reply := range r.Answers() {
		n[reply.SenderMAC]++
		if reply.SenderIP != r.Request.VIP || reply.EthDst != h.nic().MAC || reply.Direction != Incoming ||
			reply.Interface != "eth0" || reply.After < 0 || reply.After > r.Request.Window || reply.Mismatched {
			t.Errorf("reply %+v", reply)
		}
	}
	return n
}

// once says that each of the hosts answers once.
func once(hosts ...host) map[MAC]int {
	n := map[MAC]int{}
	for _, h := range hosts {
		n[h.nic().MAC] = 1
	}
	return n
}

// await returns what comes on ch, or fails t when nothing does.
func await[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("waited a minute for %s", what)
		panic("unreachable")
	}
}

// lying are sockets that fail every send about vip after doing it.
type lying struct{ Sockets }

type lyingSocket struct{ socket }

func (l lying) open(nic NIC, as binding, filter []bpf.RawInstruction) (socket, error) {
	s, err := l.Sockets.open(nic, as, filter)
	return lyingSocket{s}, err
}

func (l lyingSocket) send(frame []byte, dst MAC) error {
	err := l.socket.send(frame, dst)
	if f, _ := Decode(frame, Metadata{}); err == nil && f.TargetIP == vip {
		return syscall.ENOBUFS
	}
	return err
}
