// SPDX-License-Identifier: Apache-2.0

package server

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func (w *world) abort(t *testing.T, id string) {
	t.Helper()
	if _, err := w.operator().AbortRun(w.ctx, &vipmovev1.AbortRunRequest{RunId: id}); err != nil {
		t.Fatal(err)
	}
}

// An abort has one meaning wherever the run stands: what is open is put back, what is confirmed stays (I10).
func TestAbortPutsBackWhatIsOpenAndLeavesWhatIsConfirmed(t *testing.T) {
	tests := []struct {
		name   string
		until  func(w *world, id string)
		want   string // states of n1 (last but one in order), n2 (canary), n3 (survivor)
		holder string
	}{
		{"at once", func(*world, string) {}, "n1 pending, n2 pending, n3 pending", "n1 n2 n3"},
		{"while the canary is looked at", func(w *world, _ string) { w.wait(time.Second) }, "n1 pending, n2 pending, n3 pending", "n1 n2 n3"},
		{"while the canary is verified", func(w *world, id string) { w.untilStep(id, "n2", "applied") }, "n1 pending, n2 restored, n3 pending", "n1 n2 n3"},
		{"while the canary soaks", func(w *world, id string) { w.untilStep(id, "n2", "verified") }, "n1 pending, n2 restored, n3 pending", "n1 n2 n3"},
		{"when the canary is confirmed", func(w *world, id string) { w.untilStep(id, "n2", "confirmed") }, "n1 pending, n2 confirmed, n3 pending", "n1 n3"},
		{"while the second dwells", func(w *world, id string) { w.untilStep(id, "n1", "verified") }, "n1 restored, n2 confirmed, n3 pending", "n1 n3"},
		{"at the survivor", func(w *world, id string) { w.untilStep(id, "n3", "applied") }, "n1 confirmed, n2 confirmed, n3 restored", "n3"},
		{"during the final look", func(w *world, id string) { w.untilStep(id, "n3", "confirmed"); w.wait(time.Second) }, "n1 confirmed, n2 confirmed, n3 confirmed", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, 3, func(t *testing.T, w *world) {
				id := w.begin(options())
				tt.until(w, id)
				asked := time.Now()
				w.abort(t, id)
				r, _ := w.watch(id)
				if r.GetState() != "rolled-back" || r.GetReasonCode() != "ABORTED" || r.GetReason() != "aborted by alice" || states(r) != tt.want {
					t.Errorf("%s %s %q: %s\nwant %s", r.GetState(), r.GetReasonCode(), r.GetReason(), states(r), tt.want)
				}
				if got := w.lan.holders(); got != tt.holder {
					t.Errorf("the address is on %q, want %q", got, tt.holder)
				}
				if took := r.GetEndedAt().AsTime().Sub(asked); took > time.Second {
					t.Errorf("the abort took %s: it waited for a look", took)
				}
				w.quiet(t, id)
				w.recorded(t, id, r)
			})
		})
	}
}

// quiet: an ended run does nothing and says nothing any more.
func (w *world) quiet(t *testing.T, id string) {
	t.Helper()
	before, holders, asked := w.now(id), w.lan.holders(), w.lan.probes()
	w.wait(time.Minute)
	after := w.now(id)
	if after.GetDoing() != "" || after.GetRevision() != before.GetRevision() || w.lan.holders() != holders || w.lan.probes() != asked {
		t.Errorf("after its end: doing %q, revision %d to %d, %d probes, address on %q to %q", after.GetDoing(), before.GetRevision(), after.GetRevision(),
			w.lan.probes()-asked, holders, w.lan.holders())
	}
}

// The order to remove is on its way when the abort comes: whatever the node does first, it is known in the end.
func TestAbortOvertakesARemoveThatIsUnderWay(t *testing.T) {
	for _, how := range []fault{dumb, deaf, cutBefore, cutAfter} {
		t.Run(string(how), func(t *testing.T) {
			inWorld(t, 3, func(t *testing.T, w *world) {
				w.agents["n2"].failing(once("remove", 1, how))
				id := w.begin(options())
				w.until("n2 was told to remove", func() bool { return w.agents["n2"].orders("remove") == 1 })
				w.abort(t, id)
				r, _ := w.watch(id)
				if r.GetState() != "rolled-back" || stepOf(r, "n2").GetState() != "restored" || w.lan.holders() != "n1 n2 n3" {
					t.Errorf("%s: %s, address on %s", r.GetState(), states(r), w.lan.holders())
				}
			})
		})
	}
}

func TestAbortOvertakesAConfirmThatIsUnderWay(t *testing.T) {
	for how, want := range map[fault]string{dumb: "confirmed", deaf: "restored"} {
		t.Run(string(how), func(t *testing.T) {
			inWorld(t, 3, func(t *testing.T, w *world) {
				w.agents["n2"].failing(once("confirm", 1, how))
				id := w.begin(options())
				w.until("n2 was told to confirm", func() bool { return w.agents["n2"].orders("confirm") == 1 })
				w.abort(t, id)
				r, _ := w.watch(id)
				if r.GetState() != "rolled-back" || stepOf(r, "n2").GetState() != want {
					t.Errorf("%s: %s, want n2 %s", r.GetState(), states(r), want)
				}
			})
		})
	}
}

func TestAbortTwiceIsAbortOnce(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		w.agents["n2"].failing(once("restore", 1, deaf))
		id := w.begin(options())
		w.untilStep(id, "n2", "verified")
		w.abort(t, id)
		w.abort(t, id)
		if r, _ := w.watch(id); r.GetState() != "rolled-back" || states(r) != "n1 pending, n2 restored, n3 pending" {
			t.Errorf("%s: %s", r.GetState(), states(r))
		}
		_, err := w.operator().AbortRun(w.ctx, &vipmovev1.AbortRunRequest{RunId: id})
		refused(t, err, codes.FailedPrecondition, "aborting a run that has ended")
	})
}

func TestRollbackPutsEverythingBackNewestFirst(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		id := w.begin(options())
		done, _ := w.watch(id)
		if done.GetState() != "done" {
			t.Fatal(done.GetState(), done.GetReason())
		}
		w.wait(time.Hour / 4)
		r, err := w.operator().RollbackRun(w.ctx, &vipmovev1.RollbackRunRequest{RunId: id})
		if err != nil || r.GetRun().GetState() != "aborting" {
			t.Fatalf("%s %v", r.GetRun().GetState(), err)
		}
		last, all := w.watch(id)
		if last.GetState() != "rolled-back" || last.GetReasonCode() != "ROLLED_BACK" || w.lan.holders() != "n1 n2 n3 n4" {
			t.Errorf("%s %s: %s, address on %s", last.GetState(), last.GetReasonCode(), states(last), w.lan.holders())
		}
		if last.GetRequestsSent() > done.GetRequestsSent()+1000 {
			t.Errorf("%d requests, %d at the end of the run: those between the run and its rollback are of neither", last.GetRequestsSent(), done.GetRequestsSent())
		}
		for _, x := range all { // the survivor went last, so it comes back first
			if stepOf(x, "n2").GetState() == "restored" && stepOf(x, "n4").GetState() != "restored" {
				t.Errorf("the canary came back before the survivor: %s", states(x))
			}
		}
	})
}

func TestRollbackOfARunUnderWay(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		id := w.begin(options())
		w.untilStep(id, "n3", "verified")
		if _, err := w.operator().RollbackRun(w.ctx, &vipmovev1.RollbackRunRequest{RunId: id}); err != nil {
			t.Fatal(err)
		}
		r, _ := w.watch(id)
		if r.GetState() != "rolled-back" || w.lan.holders() != "n1 n2 n3 n4" || states(r) != "n1 pending, n2 restored, n3 restored, n4 pending" {
			t.Errorf("%s: %s, address on %s", r.GetState(), states(r), w.lan.holders())
		}
	})
}

func TestARollbackIsNotStoppedByALostAnswer(t *testing.T) {
	for _, how := range []fault{notDone, doneError, cutBefore, cutAfter, dumb, deaf} {
		t.Run(string(how), func(t *testing.T) {
			inWorld(t, 3, func(t *testing.T, w *world) {
				id := w.begin(options())
				w.watch(id)
				w.agents["n1"].failing(once("restore", 1, how))
				if _, err := w.operator().RollbackRun(w.ctx, &vipmovev1.RollbackRunRequest{RunId: id}); err != nil {
					t.Fatal(err)
				}
				if r, _ := w.watch(id); r.GetState() != "rolled-back" || w.lan.holders() != "n1 n2 n3" {
					t.Errorf("%s: %s, address on %s", r.GetState(), states(r), w.lan.holders())
				}
			})
		})
	}
}

// An order that came too late is given again with a new deadline; it says nothing about the node.
func TestARestoreThatCameTooLateIsOrderedAgain(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		a, refusals := w.agents["n2"], 0
		a.mu.Lock()
		a.refuse = func(kind string) vipmovev1.Refusal_Code {
			if kind == "restore" && refusals < 4 { // fence asks twice
				refusals++
				return vipmovev1.Refusal_LATE
			}
			return vipmovev1.Refusal_NONE
		}
		a.mu.Unlock()
		id := w.begin(options())
		w.untilStep(id, "n2", "verified")
		w.abort(t, id)
		if r, _ := w.watch(id); r.GetState() != "rolled-back" || stepOf(r, "n2").GetState() != "restored" || a.orders("restore") != 3 {
			t.Errorf("%s: %s after %d orders", r.GetState(), states(r), a.orders("restore"))
		}
	})
}

func TestARefusalEndsTheRunWithItsCode(t *testing.T) {
	tests := []struct {
		kind  string
		state string
		want  string
	}{
		{"prepare", "rolled-back", "n1 pending, n2 pending, n3 pending"},
		{"remove", "rolled-back", "n1 pending, n2 refused, n3 pending"},
		{"confirm", "rolled-back", "n1 pending, n2 restored, n3 pending"},
		{"extend", "rolled-back", "n1 pending, n2 restored, n3 pending"},
	}
	for _, tt := range tests {
		t.Run(tt.kind, func(t *testing.T) {
			inWorld(t, 3, func(t *testing.T, w *world) {
				a := w.agents["n2"]
				a.mu.Lock()
				a.refuse = func(kind string) vipmovev1.Refusal_Code {
					if kind == tt.kind {
						return vipmovev1.Refusal_PAUSED_ON_NODE
					}
					return vipmovev1.Refusal_NONE
				}
				a.mu.Unlock()
				r, _ := w.watch(w.begin(options()))
				if r.GetState() != tt.state || r.GetReasonCode() != "PAUSED_ON_NODE" || states(r) != tt.want || w.lan.holders() != "n1 n2 n3" {
					t.Errorf("%s %s: %s, address on %s", r.GetState(), r.GetReasonCode(), states(r), w.lan.holders())
				}
				if !strings.Contains(r.GetReason(), "the fake refuses; mend it") || !strings.Contains(r.GetNextStep(), "vipmove plan "+testVIP) {
					t.Errorf("reason %q, next step %q", r.GetReason(), r.GetNextStep())
				}
			})
		})
	}
}
