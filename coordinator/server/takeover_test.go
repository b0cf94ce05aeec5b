// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/coordinator/handover"
	"github.com/vipmove/vipmove/coordinator/journal"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// The coordinator is killed at every order of a step, before and after the node did it. The next one knows
// nothing but the journal, and the run ends as if nothing had been (I7, I8, I9).
func TestARunGoesOnAfterTheCoordinatorWasKilled(t *testing.T) {
	for _, kind := range []string{"prepare", "remove", "extend", "confirm", "capture", "probe", "read_kernel"} {
		for _, how := range []fault{deaf, dumb} {
			if how == dumb && (kind == "capture" || kind == "probe" || kind == "read_kernel") {
				continue // a look leaves nothing behind
			}
			t.Run(kind+", "+string(how), func(t *testing.T) {
				inWorld(t, 3, func(t *testing.T, w *world) {
					failed := make(chan struct{})
					w.agents["n1"].failing(inRun(func() func(*vipmovev1.Command) fault {
						first := once(kind, 1, how)
						return func(c *vipmovev1.Command) fault {
							f := first(c)
							if f != fine {
								close(failed)
							}
							return f
						}
					}()))
					id := w.begin(options())
					<-failed
					w.wait(10 * time.Millisecond)
					w.restart()
					r, _ := w.watch(id)
					if r.GetState() != "done" || w.lan.holders() != "" || r.GetTerm() != 2 {
						t.Errorf("%s %s %s in term %d: %s, address on %q", r.GetState(), r.GetReasonCode(), r.GetReason(), r.GetTerm(), states(r), w.lan.holders())
					}
					w.recorded(t, id, r)
				})
			})
		}
	}
}

// A coordinator that is told to end takes the end of its own sessions for nobody's word.
func TestAnEndInOrderLeavesNothingInTheJournal(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		for range 15 {
			before := w.agents["n1"].orders("prepare")
			w.agents["n1"].failing(always("prepare", deaf))
			id := w.begin(options())
			w.until("n1 got its order", func() bool { return w.agents["n1"].orders("prepare") > before })
			if err := w.halt(); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			events, err := journal.NewMemory(w.disk).Load(id)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				if e.Kind == handover.Lost {
					t.Fatalf("recorded: %s", e.Detail)
				}
			}
			w.agents["n1"].failing(nil)
			w.start()
			w.settle(2)
			w.abort(t, id)
			w.watch(id)
		}
	})
}

func TestARunGoesOnAfterManyKills(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		id := w.begin(options())
		kills := 0
		for ; kills < 20 && !w.hasEnded(id); kills++ {
			w.wait(7 * time.Second)
			w.restart()
		}
		r, _ := w.watch(id)
		if r.GetState() != "done" || r.GetTerm() < 3 {
			t.Errorf("after %d kills %s %s %s in term %d: %s", kills, r.GetState(), r.GetReasonCode(), r.GetReason(), r.GetTerm(), states(r))
		}
	})
}

func (w *world) hasEnded(id string) bool {
	v, _, _ := w.server.driver.view(id)
	return v.run.Ended()
}

// A coordinator that is away for longer than the undo lives finds the address back: it does not go on as if.
func TestAnUndoThatFiredWhileTheCoordinatorWasAway(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		id := w.begin(options())
		w.untilStep(id, "n1", "verified")
		if err := w.halt(); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		w.wait(time.Minute)
		if got := w.lan.holders(); got != "n1 n3" {
			t.Fatalf("headless, the address is on %s", got)
		}
		w.start()
		r, _ := w.watch(id)
		if r.GetState() != "rolled-back" || r.GetReasonCode() != "UNDO_EXPIRED" || states(r) != "n1 restored, n2 confirmed, n3 pending" {
			t.Errorf("%s %s: %s", r.GetState(), r.GetReasonCode(), states(r))
		}
	})
}

func TestARunThatHadNotBegunIsEnded(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		w.diskFails(func(e handover.Event) (bool, error) {
			if e.Kind == handover.Started {
				return false, errors.New("disk full")
			}
			return false, nil
		})
		p := w.plan(options())
		go func() {
			_, _ = w.operator().StartRun(w.ctx, &vipmovev1.StartRunRequest{Options: options(), PlanHash: p.GetHash()})
		}()
		w.until("the run is made", func() bool { return w.server.driver.active() != "" })
		id := w.server.driver.active()
		w.wait(time.Second)
		w.diskFails(nil)
		w.restart()
		if r, _ := w.watch(id); r.GetState() != "rolled-back" || r.GetReasonCode() != "NOT_STARTED" || r.GetChanged() {
			t.Errorf("%s %s", r.GetState(), r.GetReasonCode())
		}
	})
}

// After a take-over the coordinator waits for its observers; an operator's abort does not wait with it.
func TestAbortDuringATakeOver(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		id := w.begin(options())
		w.untilStep(id, "n1", "verified")
		w.agents["n3"].leave() // it waits for this one, in vain
		w.restart()
		w.until("n1 is back", func() bool { return w.server.fleet.Connected("n1") })
		asked := time.Now()
		w.abort(t, id)
		r, _ := w.watch(id)
		if r.GetState() != "rolled-back" || r.GetReasonCode() != "ABORTED" || stepOf(r, "n1").GetState() != "restored" {
			t.Errorf("%s %s: %s", r.GetState(), r.GetReasonCode(), states(r))
		}
		if took := time.Since(asked); took > 2*time.Second {
			t.Errorf("the abort took %s", took)
		}
		w.wait(2 * gatherWait) // the take-over comes to its end meanwhile
		if r := w.now(id); r.GetState() != "rolled-back" {
			t.Errorf("later it is %s", r.GetState())
		}
	})
}

func TestATakeOverGoesOnWithoutAnObserverThatDoesNotComeBack(t *testing.T) {
	inWorld(t, 5, func(t *testing.T, w *world) {
		id := w.begin(options())
		w.untilStep(id, "n4", "verified")
		w.agents["n2"].leave() // confirmed already
		w.restart()
		began := time.Now()
		w.until("n4 is looked at again", func() bool { return w.agents["n4"].orders("inquire") > 0 })
		if waited := time.Since(began); waited < gatherWait || waited > gatherWait+time.Second {
			t.Errorf("it went on after %s", waited)
		}
		if r, _ := w.watch(id); r.GetState() != "done" {
			t.Errorf("%s %s %s: %s", r.GetState(), r.GetReasonCode(), r.GetReason(), states(r))
		}
	})
}

// The requests that failed before this process knew the witness are of no step.
func TestATakeOverDoesNotCountWhatFailedBefore(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		w.witness.lose(30)
		w.wait(10 * time.Second)
		id := w.begin(options())
		w.untilStep(id, "n2", "verified")
		w.witness.leave()
		w.restart()
		w.wait(5 * time.Second)
		w.witness.comeBack()
		if r, _ := w.watch(id); r.GetState() != "done" || r.GetRequestsFailed() != 0 {
			t.Errorf("%s %s %s, %d failed", r.GetState(), r.GetReasonCode(), r.GetReason(), r.GetRequestsFailed())
		}
	})
}

// Two coordinators on one journal: the older one may not act any more and ends; nothing is sent after that.
func TestACoordinatorThatWasSupersededEnds(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		id := w.begin(options())
		w.untilStep(id, "n2", "applied")
		old := w.ended
		term, err := journal.NewMemory(w.disk).RaiseTerm()
		if err != nil {
			t.Fatal(err)
		}
		var lastOrder atomic.Int64
		for _, a := range w.agents {
			a.failing(func(*vipmovev1.Command) fault { lastOrder.Store(time.Now().UnixNano()); return fine })
		}
		err = <-old
		ended := time.Now()
		w.mu.Lock()
		w.stop = nil
		w.mu.Unlock()
		if !errors.Is(err, journal.ErrSuperseded) {
			t.Fatalf("ended with %v", err)
		}
		if w.server.Ready() == nil {
			t.Error("it says that it is ready")
		}
		w.wait(2 * time.Minute)
		if last := time.Unix(0, lastOrder.Load()); last.After(ended) {
			t.Errorf("an order came %s after its end", last.Sub(ended))
		}
		if got := w.lan.holders(); got != "n1 n2 n3" {
			t.Errorf("the undo of a headless agent did not fire: %s", got)
		}
		w.start()
		r, _ := w.watch(id)
		if r.GetState() != "rolled-back" || r.GetReasonCode() != "UNDO_EXPIRED" || r.GetTerm() != term+1 {
			t.Errorf("the next one: %s %s in term %d", r.GetState(), r.GetReasonCode(), r.GetTerm())
		}
	})
}

// It ends with what it had under way: a node that is being watched is not extended any more.
func TestACoordinatorThatWasSupersededLetsGoAtOnce(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		o := options()
		o.CanarySoak = durationpb.New(time.Minute)
		id := w.begin(o)
		w.untilStep(id, "n2", "verified")
		ended := w.ended
		if _, err := journal.NewMemory(w.disk).RaiseTerm(); err != nil {
			t.Fatal(err)
		}
		orders := w.agents["n2"].orders("extend") + w.agents["n2"].orders("read_kernel")
		asked := time.Now()
		_, err := w.operator().AbortRun(w.ctx, &vipmovev1.AbortRunRequest{RunId: id})
		refused(t, err, codes.Unavailable) // the reason, or the end of the connection
		err = <-ended
		w.mu.Lock()
		w.stop = nil
		w.mu.Unlock()
		if took := time.Since(asked); !errors.Is(err, journal.ErrSuperseded) || took > time.Second {
			t.Errorf("it ended after %s with %v", took, err)
		}
		if more := w.agents["n2"].orders("extend") + w.agents["n2"].orders("read_kernel") - orders; more > 2 || w.agents["n2"].orders("restore") != 0 {
			t.Errorf("%d more orders to n2, %d to restore", more, w.agents["n2"].orders("restore"))
		}
	})
}

// An agent that has obeyed a higher term refuses a coordinator that does not know yet that it was replaced (I7).
func TestAnAgentOfAHigherTermRefuses(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		a := w.agents["n2"]
		a.mu.Lock()
		a.term = 9
		a.mu.Unlock()
		r, _ := w.watch(w.begin(options()))
		if r.GetState() != "rolled-back" || r.GetReasonCode() != "STALE_TERM" || w.lan.holders() != "n1 n2 n3" {
			t.Errorf("%s %s: %s", r.GetState(), r.GetReasonCode(), states(r))
		}
	})
}
