// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// bubble runs a story with two hosts in memory, on a clock that jumps.
func bubble(t *testing.T, story func(t *testing.T, client, n1 memoryHost)) {
	synctest.Test(t, func(t *testing.T) {
		w := memoryWorld{NewSegment()}
		story(t, w.join(t, 2).(memoryHost), w.join(t, 11).(memoryHost))
	})
}

func asking(n int) []Request {
	requests := make([]Request, n)
	for i, a := range scattered(n) {
		requests[i] = Request{Kind: Broadcast, VIP: a, Sender: own, Window: time.Second}
	}
	return requests
}

// At most 5 requests a second with a burst of 10, over all addresses, whoever
// asks: a switch with ARP inspection shuts the port at 15 a second.
func TestProbesStayWithinTheBudgetOfTheNIC(t *testing.T) {
	bubble(t, func(t *testing.T, client, n1 memoryHost) {
		var mu sync.Mutex
		var sent []time.Time
		n1.port.Answer(func(Frame) []Answer {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, time.Now())
			return nil
		})
		p := prober(client)
		begun := time.Now()
		rounds := []<-chan outcome{begin(t, client, p, asking(20)), begin(t, client, p, asking(15))}
		var longest time.Duration
		for _, round := range rounds {
			for _, r := range whole(t, await(t, round, "a round")) {
				longest = max(longest, r.Waited)
			}
		}
		if len(sent) != 35 {
			t.Fatalf("%d requests on the wire", len(sent))
		}
		for i, at := range sent {
			inTheSecond := 0
			for _, earlier := range sent[:i+1] {
				if at.Sub(earlier) < time.Second {
					inTheSecond++
				}
			}
			if inTheSecond > budgetBurst+budgetRate-1 {
				t.Errorf("%d requests within a second, the last after %v", inTheSecond, at.Sub(begun))
			}
		}
		// The first 10 at once, then 5 a second; a round's end gives some back.
		if took := sent[34].Sub(begun); took < 4500*time.Millisecond || took > 6*time.Second {
			t.Errorf("35 requests took %v", took)
		}
		if longest != 200*time.Millisecond {
			t.Errorf("the longest wait was %v, want one fifth of a second", longest)
		}
	})
}

func TestRoundsOfOneNICFollowOneAnother(t *testing.T) {
	bubble(t, func(t *testing.T, client, n1 memoryHost) {
		n1.hold(t, vip)
		p := prober(client)
		q := Request{Kind: Broadcast, VIP: vip, Sender: own, Window: time.Second}
		first, second := begin(t, client, p, []Request{q}), begin(t, client, p, []Request{q})
		a, b := whole(t, await(t, first, "one"))[0], whole(t, await(t, second, "the other"))[0]
		if apart := b.SentAt.Sub(a.SentAt).Abs(); apart < time.Second {
			t.Errorf("both in flight, %v apart", apart)
		}
		if len(a.Replies) != 1 || len(b.Replies) != 1 {
			t.Errorf("%d and %d replies", len(a.Replies), len(b.Replies))
		}
		// One that may not wait says so.
		third := begin(t, client, p, []Request{q})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := p.Round(ctx, []Request{q}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		whole(t, await(t, third, "the third"))
	})
}

func TestARequestThatTheBudgetForbidsIsNotSentAndSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, client, n1 memoryHost) {
		n1.port.Answer(KernelAnswers(scattered(12)...))
		ctx, cancel := context.WithTimeout(t.Context(), 1100*time.Millisecond)
		defer cancel()
		p := prober(client)
		requests := asking(20) // ten at once, five in the first second, the rest too late
		for i := range requests {
			requests[i].Window = 50 * time.Millisecond
		}
		results, err := p.Round(ctx, requests)
		if err == nil || !strings.Contains(err.Error(), "budget of eth0") {
			t.Fatalf("error %v", err)
		}
		for i, r := range results {
			sent := i < 15
			if r.Sent != sent || (r.SendError == "") != sent || r.Complete() != sent {
				t.Errorf("request %d: %+v", i, r)
			}
			if want := i < 12; (len(r.Replies) == 1) != want {
				t.Errorf("request %d: %d replies", i, len(r.Replies))
			}
		}
	})
}

// S4: ENOBUFS and its like mean that the sensor cannot ask.
func TestASendErrorIsNoSilence(t *testing.T) {
	for _, errno := range []error{syscall.ENOBUFS, syscall.EPERM, syscall.EAGAIN} {
		bubble(t, func(t *testing.T, client, n1 memoryHost) {
			n1.hold(t, vip)
			client.port.FailSend(errno)
			begun := time.Now()
			results, err := prober(client).Round(t.Context(), asking(2))
			if err != nil {
				t.Fatalf("a round in which every request has its own error: %v", err)
			}
			for _, r := range results {
				if r.Sent || r.Complete() || !strings.HasPrefix(r.SendError, "sending an ARP request on eth0: ") || !strings.Contains(r.SendError, errno.Error()) {
					t.Errorf("got %+v", r)
				}
			}
			if took := time.Since(begun); took != 0 {
				t.Errorf("waited %v for answers to nothing", took)
			}
		})
	}
}

// Done and error: what went out all the same is heard all the same.
func TestAnswersToARequestThatFailedOnTheWayOutAreKept(t *testing.T) {
	bubble(t, func(t *testing.T, client, n1 memoryHost) {
		n1.hold(t, vip)
		p := NewProber(client.nic(), ProberConfig{Sockets: lying{client.port}})
		q := asking(1)[0]
		q.Window = 10 * time.Second
		r, err := p.Round(t.Context(), []Request{{Kind: ZeroSender, VIP: other, Window: time.Second}, q})
		if err != nil {
			t.Fatal(err)
		}
		if !r[0].Sent || r[1].Sent || r[1].SendError == "" || len(r[1].Replies) != 1 {
			t.Errorf("got %+v", r)
		}
	})
}

func TestLostFramesAreSaid(t *testing.T) {
	bubble(t, func(t *testing.T, client, n1 memoryHost) {
		frame := bytesOf(t, Frame{EthSrc: m3, EthDst: ff, Op: OpReply, SenderMAC: m3, SenderIP: vip, TargetMAC: m3, TargetIP: vip}, 42)
		const flood = memoryQueue + 500
		n1.port.Answer(func(Frame) []Answer { // with the segment locked: nobody reads meanwhile
			for range flood {
				n1.port.transmit(frame, nil)
			}
			return nil
		})
		r, err := prober(client).Round(t.Context(), asking(1))
		if err != nil {
			t.Fatal(err)
		}
		if r[0].Dropped != 500 || r[0].Complete() || len(r[0].Replies)+r[0].Overflow != memoryQueue {
			t.Errorf("dropped %d, %d replies, overflow %d", r[0].Dropped, len(r[0].Replies), r[0].Overflow)
		}
	})
}

func TestANICThatCannotBeOpenedIsATypedErrorAndNoSilence(t *testing.T) {
	for _, state := range []error{ErrDown, ErrNoCarrier, ErrGone} {
		bubble(t, func(t *testing.T, client, _ memoryHost) {
			client.port.Fail(state)
			results, err := prober(client).Round(t.Context(), asking(2))
			var nicErr *NICError
			if !errors.As(err, &nicErr) || !errors.Is(err, state) {
				t.Fatalf("error %v", err)
			}
			if len(results) != 2 || results[0].Sent || results[1].SendError != err.Error() {
				t.Errorf("got %+v", results)
			}
		})
	}
}

func TestARoundOfNothingIsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, client, _ memoryHost) {
		if r, err := prober(client).Round(t.Context(), nil); err != nil || len(r) != 0 {
			t.Errorf("got %v, %v", r, err)
		}
	})
}
