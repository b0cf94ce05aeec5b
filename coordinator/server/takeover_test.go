// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/coordinator/fleet/fleettest"
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

// A write that fails, done or not, holds the run and nothing else; it goes on where it was.
func TestTheRunWaitsForTheJournal(t *testing.T) {
	kinds := []handover.EventKind{handover.Created, handover.Started, handover.Observed, handover.Baselined, handover.Answered, handover.VerifiedEv, handover.Dwelled, handover.FinalLooked}
	for name, done := range map[string]bool{"not written": false, "written and error": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 3, func(t *testing.T, w *world) {
				failures := map[handover.EventKind]int{}
				w.diskFails(func(e handover.Event) (bool, error) {
					if failures[e.Kind] == 4 {
						return false, nil
					}
					failures[e.Kind]++
					return done, fmt.Errorf("no space left on device for %s", e.Kind)
				})
				id := w.begin(options())
				r, all := w.watch(id)
				if r.GetState() != "done" || w.lan.holders() != "" || r.GetDoing() != "" {
					t.Errorf("%s %s %s, doing %q", r.GetState(), r.GetReasonCode(), r.GetReason(), r.GetDoing())
				}
				told := map[string]bool{}
				for _, x := range all {
					told[x.GetDoing()] = true
				}
				for _, kind := range kinds {
					if failures[kind] != 4 {
						t.Errorf("%s failed %d times", kind, failures[kind])
					}
					if !told[fmt.Sprintf("waiting for the journal: no space left on device for %s", kind)] && kind != handover.Created && kind != handover.Started {
						t.Errorf("nobody was told that %s waits", kind)
					}
				}
				w.recorded(t, id, r)
			})
		})
	}
}

// Nothing is sent that is not durable (I9): while the journal cannot be written the node is not touched.
func TestAJournalThatStaysBrokenTouchesNothing(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		w.diskFails(func(e handover.Event) (bool, error) {
			if e.Kind == handover.Baselined {
				return true, errors.New("input/output error")
			}
			return false, nil
		})
		id := w.begin(options())
		w.wait(5 * time.Minute)
		for _, a := range w.agents {
			if n := a.orders("remove"); n != 0 {
				t.Errorf("%s was told to remove", a.name)
			}
		}
		if r := w.now(id); r.GetState() != "running" || states(r) != "n1 pending, n2 pending, n3 pending" {
			t.Errorf("%s: %s", r.GetState(), states(r))
		}
		w.diskFails(nil)
		w.restart() // the record was written although it said error
		if r, _ := w.watch(id); r.GetState() != "done" {
			t.Errorf("%s %s %s", r.GetState(), r.GetReasonCode(), r.GetReason())
		}
	})
}

func TestAJournalThatCannotBeReadStopsTheStart(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.watch(w.begin(options()))
		for name, j := range map[string]*brokenJournal{
			"listing known nodes in the journal: torn page": {Memory: journal.NewMemory(w.disk), nodes: errors.New("torn page")},
			"listing runs in the journal: torn page":        {Memory: journal.NewMemory(w.disk), runs: errors.New("torn page")},
			"loading run":                                   {Memory: journal.NewMemory(w.disk), load: errors.New("torn page")},
			"replaying event 0":                             {Memory: journal.NewMemory(w.disk), events: []handover.Event{{Kind: handover.Started}}},
		} {
			if s, err := New(Config{Journal: j}); err == nil || !strings.Contains(err.Error(), name) || s != nil {
				t.Errorf("New = %v, %v; want it to say %q", s, err, name)
			}
		}
		j := &brokenJournal{Memory: journal.NewMemory(w.disk), term: errors.New("read-only file system")}
		s, err := New(Config{Journal: j, TLS: w.serverTLS(), Listeners: []net.Listener{fleettest.Listen()}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(w.ctx); !errors.Is(err, j.term) {
			t.Errorf("Run = %v", err)
		}
	})
}

// brokenJournal fails where it is told to.
type brokenJournal struct {
	*journal.Memory
	nodes, runs, load, term error
	events                  []handover.Event
}

func (j *brokenJournal) Nodes() (map[string]string, error) {
	if j.nodes != nil {
		return nil, j.nodes
	}
	return j.Memory.Nodes()
}

func (j *brokenJournal) Runs() ([]string, error) {
	if j.runs != nil {
		return nil, j.runs
	}
	return j.Memory.Runs()
}

func (j *brokenJournal) Load(id string) ([]handover.Event, error) {
	if j.load != nil || j.events != nil {
		return j.events, j.load
	}
	return j.Memory.Load(id)
}

func (j *brokenJournal) RaiseTerm() (uint64, error) {
	if j.term != nil {
		return 0, j.term
	}
	return j.Memory.RaiseTerm()
}
