// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func TestAnOrderIsAnswered(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.join(hello("n1"))
		order := w.order(t.Context(), "n1", "c1", nil)
		if c := p.command(); c.GetCommandId() != "c1" {
			t.Fatalf("ordered %v", c)
		}
		p.answer("c9", "of another order")
		p.answer("c1", "done")
		p.answer("c1", "said twice")
		if d := <-order; d.err != nil || d.result.GetError() != "done" {
			t.Errorf("got %v", d)
		}
		again := w.order(t.Context(), "n1", "c1", nil) // a repeated command id gets its own answer
		p.command()
		p.answer("c1", "again")
		if d := <-again; d.err != nil || d.result.GetError() != "again" {
			t.Errorf("got %v", d)
		}
	})
}

func TestManyOrdersAtOnceAreToldApartByTheirID(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.join(hello("n1"))
		const n = 3 * outgoing
		orders := map[string]<-chan done{}
		for i := range n {
			id := fmt.Sprintf("c%d", i)
			orders[id] = w.order(t.Context(), "n1", id, nil)
		}
		for range n {
			id := p.command().GetCommandId()
			p.answer(id, "answer to "+id)
		}
		for id, order := range orders {
			if d := <-order; d.err != nil || d.result.GetError() != "answer to "+id {
				t.Errorf("%s: %v", id, d)
			}
		}
	})
}

// Away is "not sent", lost is "sent, and done or not": the driver asks again after the second.
func TestAnOrderWithoutAnswerIsAwayOrLost(t *testing.T) {
	tests := []struct {
		name  string
		lose  func(w *world, p *peer, cancel context.CancelFunc)
		want  error
		says  string
		cause error
	}{
		{"session ends", func(_ *world, p *peer, _ context.CancelFunc) { p.close() }, ErrLost, "waiting for the answer of node n1: the answer was lost: its session ended", nil},
		{"session is replaced", func(w *world, _ *peer, _ context.CancelFunc) { w.join(hello("n1")) }, ErrLost, "its session ended", nil},
		{"the caller gives up", func(_ *world, _ *peer, cancel context.CancelFunc) { cancel() }, ErrLost, "waiting for the answer of node n1", context.Canceled},
		{"the caller's time is over", func(*world, *peer, context.CancelFunc) {}, ErrLost, "waiting for the answer of node n1", context.DeadlineExceeded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p := w.join(hello("n1"))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				order := w.order(ctx, "n1", "c1", nil)
				p.command()
				tt.lose(w, p, cancel)
				d := <-order
				if !errors.Is(d.err, tt.want) || d.result != nil || !strings.Contains(d.err.Error(), tt.says) {
					t.Errorf("got %v, want %v that says %q", d, tt.want, tt.says)
				}
				if tt.cause != nil && !errors.Is(d.err, tt.cause) {
					t.Errorf("got %v, want it to be %v", d.err, tt.cause)
				}
			})
		})
	}
}

func TestAnOrderToANodeThatIsAwayIsNotSent(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.fleet.Remember("n2", vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT)
		p := w.join(hello("n3"))
		p.close()
		synctest.Wait()
		for _, node := range []string{"n1", "n2", "n3"} { // never seen, known, gone
			d := <-w.order(t.Context(), node, "c1", nil)
			if !errors.Is(d.err, ErrAway) || errors.Is(d.err, ErrLost) || !strings.Contains(d.err.Error(), "ordering node "+node) {
				t.Errorf("%s: %v", node, d.err)
			}
			if w.fleet.Connected(node) {
				t.Errorf("%s is said to be connected", node)
			}
		}
	})
}

// The queue of a stream that nobody writes is full: an order that did not get in was not sent.
func TestAnOrderThatDidNotGetIntoTheQueueIsAway(t *testing.T) {
	for _, end := range []string{"session ends", "caller gives up"} {
		t.Run(end, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				s := newSession()
				w.fleet.members["n1"] = &member{hello: hello("n1"), session: s}
				for range outgoing {
					s.out <- nil
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				order := w.order(ctx, "n1", "c1", nil)
				if end == "session ends" {
					s.end()
				} else {
					cancel()
				}
				if d := <-order; !errors.Is(d.err, ErrAway) || errors.Is(d.err, ErrLost) {
					t.Errorf("got %v, want ErrAway", d.err)
				}
				if len(s.expected) != 0 {
					t.Errorf("%d orders are still waited for", len(s.expected))
				}
			})
		})
	}
}

func TestAnOrderOfACallerThatGaveUpIsNotSent(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.join(hello("n1"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 { // both ways are open to it: it takes the right one each time
			if d := <-w.order(ctx, "n1", "late", nil); !errors.Is(d.err, ErrAway) || !errors.Is(d.err, context.Canceled) {
				t.Errorf("got %v", d.err)
			}
		}
		order := w.order(t.Context(), "n1", "c1", nil)
		if c := p.command(); c.GetCommandId() != "c1" {
			t.Errorf("the node got %v", c)
		}
		p.answer("c1", "")
		<-order
	})
}

func TestALateAnswerIsDropped(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.join(hello("n1"))
		ctx, cancel := context.WithCancel(t.Context())
		order := w.order(ctx, "n1", "c1", nil)
		p.command()
		cancel()
		<-order
		p.answer("c1", "too late")
		next := w.order(t.Context(), "n1", "c1", nil)
		p.command()
		select {
		case d := <-next:
			t.Errorf("the next order got the late answer: %v", d)
		default:
		}
		p.answer("c1", "in time")
		if d := <-next; d.result.GetError() != "in time" {
			t.Errorf("got %v", d)
		}
	})
}

func TestRepliesAreHeardWhileAProbeRunsAndNeverAfter(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.join(hello("n1"))
		var mu sync.Mutex
		var got []uint32
		order := w.order(t.Context(), "n1", "c1", func(h *vipmovev1.ReplyHeard) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, h.GetReply().GetVlan())
		})
		deaf := w.order(t.Context(), "n1", "c2", nil)
		p.command()
		p.command()
		p.heard("c1", 1)
		p.heard("c2", 2) // nobody listens
		p.heard("c3", 3) // no such order
		p.heard("c1", 4)
		p.answer("c1", "")
		p.answer("c2", "")
		<-order
		<-deaf
		p.heard("c1", 5)
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff([]uint32{1, 4}, got); diff != "" {
			t.Errorf("heard (-want +got):\n%s", diff)
		}
	})
}

// A call of heard that is under way is waited for: its stream may be gone afterwards.
func TestDoReturnsAfterTheLastCallOfHeard(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.join(hello("n1"))
		release, inside := make(chan struct{}), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		order := w.order(ctx, "n1", "c1", func(*vipmovev1.ReplyHeard) {
			close(inside)
			<-release
		})
		p.command()
		p.send(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_ReplyHeard{ReplyHeard: &vipmovev1.ReplyHeard{CommandId: "c1"}}})
		<-inside
		cancel()
		// Do waits for a mutex, which is no durable wait in a bubble: give it as many turns as it could take.
		for range 1000 {
			runtime.Gosched()
			select {
			case <-order:
				t.Fatal("Do returned while heard was at work")
			default:
			}
		}
		close(release)
		if d := <-order; !errors.Is(d.err, ErrLost) {
			t.Errorf("got %v", d)
		}
	})
}

// A reply that found its order just before Do returned finds nobody who listens.
func TestAReplyThatComesAsDoReturnsIsNotHeard(t *testing.T) {
	s := newSession()
	e := s.expect("c1", func(*vipmovev1.ReplyHeard) { t.Error("heard after Do returned") })
	late := s.expectation("c1")
	s.forget("c1", e)
	late.hear(&vipmovev1.ReplyHeard{})
	again := s.expect("c1", nil) // the id in use by a later order
	s.forget("c1", e)
	if s.expectation("c1") != again {
		t.Error("the end of an earlier order ended the later one of that id")
	}
}

func TestWaitReturnsWithTheSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		waits := make(chan error, 2)
		for range 2 {
			go func() { waits <- w.fleet.Wait(t.Context(), "n1") }()
		}
		synctest.Wait()
		w.join(hello("n2")) // another one changes nothing
		if len(waits) != 0 {
			t.Fatal("waited for another node")
		}
		w.join(hello("n1"))
		for range 2 {
			if err := <-waits; err != nil {
				t.Error(err)
			}
		}
		if err := w.fleet.Wait(t.Context(), "n1"); err != nil {
			t.Errorf("waiting for a node that is there: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.fleet.Wait(ctx, "n3"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting for node n3") {
			t.Errorf("got %v", err)
		}
	})
}
