// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func states(r Run) string {
	var out []string
	for _, s := range r.Steps {
		out = append(out, s.Node+"="+string(s.State))
	}
	return strings.Join(out, " ")
}

func TestSevenNodesAreCleanedCanaryFirstAndSurvivorLast(t *testing.T) { // I3, I4
	w := newWorld(testPlan(7, Options{}))
	var order []string
	w.fault = func(f Effect) string {
		if f.Kind == DoRemove {
			order = append(order, f.Node)
		}
		return ""
	}
	w.drive()
	if diff := cmp.Diff([]string{"n1", "n2", "n3", "n4", "n5", "n6", "n7"}, order); diff != "" {
		t.Errorf("order of removals (-want +got):\n%s", diff)
	}
	if w.run.State != Done || len(w.broken) > 0 {
		t.Errorf("state %s, broken %v", w.run.State, w.broken)
	}
}

func TestCarriersGoAfterIdleNodesByTheNewestLook(t *testing.T) {
	w := newWorld(testPlan(4, Options{}))
	w.event(Event{Kind: Started})
	var order []string
	for len(w.queue) > 0 {
		f := w.queue[0]
		w.queue = w.queue[1:]
		if f.Kind == DoObserve {
			w.event(Event{Kind: Observed, Carriers: []string{"n2"}})
			continue
		}
		if f.Kind == DoRemove {
			order = append(order, f.Node)
		}
		w.carryOut(f)
	}
	if diff := cmp.Diff([]string{"n1", "n3", "n2", "n4"}, order); diff != "" {
		t.Errorf("order of removals (-want +got):\n%s", diff)
	}
}

func TestWavesOfIdleNodesNeverExceedMaxParallel(t *testing.T) { // I2
	w := newWorld(testPlan(7, Options{MaxParallel: 3}))
	most := 0
	w.fault = func(Effect) string { most = max(most, len(w.run.Open())); return "" }
	w.drive()
	if w.run.State != Done || most != 3 || len(w.broken) > 0 {
		t.Errorf("state %s, most in change %d, broken %v", w.run.State, most, w.broken)
	}
}

// Each case makes one effect of one node go wrong once.
func TestAFailureUndoesWhatIsOpenAndLeavesTheRest(t *testing.T) {
	for _, c := range []struct {
		name, node, fault string
		effect            EffectKind
		state             RunState
		steps             string
		code              string
	}{
		{"a node refuses to prepare", "n2", "refuse", DoPrepare, RolledBack, "n1=pending n2=pending n3=pending", "LATE"},
		{"prepare is lost", "n2", "lost-before", DoPrepare, RolledBack, "n1=pending n2=pending n3=pending", "NODE_UNREACHABLE"},
		{"baseline is not as planned", "n2", "fail", DoBaseline, RolledBack, "n1=confirmed n2=pending n3=pending", "EVIDENCE_UNKNOWN"},
		{"the agent refuses the removal", "n2", "refuse-not-done", DoRemove, RolledBack, "n1=confirmed n2=refused n3=pending", "LATE"},
		{"the order is lost on its way: tried again after a new baseline", "n2", "lost-before", DoRemove, Done, "n1=confirmed n2=confirmed n3=confirmed", ""},
		{"the answer is lost on its way back: asked, not repeated (I8)", "n2", "lost-after", DoRemove, Done, "n1=confirmed n2=confirmed n3=confirmed", ""},
		{"verification fails", "n2", "fail", DoVerify, RolledBack, "n1=confirmed n2=restored n3=pending", "EVIDENCE_UNKNOWN"},
		{"the dwell fails", "n1", "fail", DoDwell, RolledBack, "n1=restored n2=pending n3=pending", "EVIDENCE_UNKNOWN"},
		{"the undo expires before the confirm comes", "n2", "expire", DoConfirm, RolledBack, "n1=confirmed n2=restored n3=pending", "UNDO_EXPIRED"},
		{"the confirm is lost on its way", "n2", "lost-before", DoConfirm, Done, "n1=confirmed n2=confirmed n3=confirmed", ""},
		{"the confirm's answer is lost", "n2", "lost-after", DoConfirm, Done, "n1=confirmed n2=confirmed n3=confirmed", ""},
		{"the final verdict is not as wanted", "", "fail", DoFinal, NeedsDecision, "n1=confirmed n2=confirmed n3=confirmed", "EVIDENCE_UNKNOWN"},
		{"the coordinator dies before the order", "n2", "crash", DoRemove, Done, "n1=confirmed n2=confirmed n3=confirmed", ""},
		{"the coordinator dies after the order", "n2", "crash-after", DoRemove, Done, "n1=confirmed n2=confirmed n3=confirmed", ""},
		{"the coordinator dies after the confirm", "n2", "crash-after", DoConfirm, Done, "n1=confirmed n2=confirmed n3=confirmed", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(testPlan(3, Options{}))
			once := false
			w.fault = func(f Effect) string {
				if once || f.Kind != c.effect || f.Node != c.node {
					return ""
				}
				once = true
				if c.fault == "refuse-not-done" {
					w.agents[f.Node].cancelled[f.CommandID] = true
					return "refuse"
				}
				return c.fault
			}
			w.drive()
			if w.run.State != c.state || states(w.run) != c.steps || string(w.run.Code) != c.code {
				t.Errorf("got %s %s [%s], want %s %s [%s]", w.run.State, w.run.Code, states(w.run), c.state, c.code, c.steps)
			}
			if len(w.broken) > 0 {
				t.Errorf("broken: %v", w.broken)
			}
		})
	}
}

func TestAnAddressThatComesBackStopsTheRunAndNeedsAPerson(t *testing.T) {
	w := newWorld(testPlan(3, Options{}))
	w.event(Event{Kind: Started})
	for w.run.Steps[1].State != Verified {
		f := w.queue[0]
		w.queue = w.queue[1:]
		w.carryOut(f)
	}
	w.queue = nil
	w.event(Event{Kind: Dwelled, Node: "n2", CommandID: w.run.Steps[1].CommandID, Code: AddressCameBack, Detail: "it is back"})
	w.drain()
	if w.run.State != NeedsDecision || w.run.Code != AddressCameBack || states(w.run) != "n1=confirmed n2=restored n3=pending" {
		t.Errorf("got %s %s %s", w.run.State, w.run.Code, states(w.run))
	}
}

func TestASurvivorThatMovedPausesBeforeAnythingIsChanged(t *testing.T) {
	w := newWorld(testPlan(3, Options{}))
	w.event(Event{Kind: Started})
	for w.queue[0].Kind != DoBaseline {
		f := w.queue[0]
		w.queue = w.queue[1:]
		w.carryOut(f)
	}
	w.event(Event{Kind: Baselined, Node: "n1", Code: SurvivorMoved, Detail: "n2 answers now"})
	if w.run.State != Paused || w.run.Changed {
		t.Errorf("state %s changed %v", w.run.State, w.run.Changed)
	}
	w.event(Event{Kind: AbortAsked, By: "alice"})
	if w.run.State != RolledBack {
		t.Errorf("a paused run that is aborted is %s", w.run.State)
	}
}

func TestRollbackPutsConfirmedNodesBackNewestFirst(t *testing.T) {
	w := newWorld(testPlan(4, Options{}))
	w.drive()
	var order []string
	w.fault = func(f Effect) string { order = append(order, f.Node); return "" }
	w.event(Event{Kind: RollbackAsk, By: "alice"})
	w.drain()
	if diff := cmp.Diff([]string{"n4", "n3", "n2", "n1"}, order); diff != "" || w.run.State != RolledBack {
		t.Errorf("state %s, order (-want +got):\n%s", w.run.State, diff)
	}
	for name, a := range w.agents {
		if !a.present {
			t.Errorf("%s was not put back", name)
		}
	}
}

// Abort at every point of a run, and look that every node is as before or as after a verified step (I10).
func TestAbortIsPossibleAtEveryMoment(t *testing.T) {
	total := 0
	for at := 0; ; at++ {
		w, seen := newWorld(testPlan(3, Options{})), 0
		w.fault = func(Effect) string {
			if seen == at && !w.run.Ended() && w.run.State != Aborting {
				w.event(Event{Kind: AbortAsked, By: "alice"})
			}
			seen++
			return ""
		}
		w.drive()
		if len(w.broken) > 0 {
			t.Fatalf("abort before effect %d: %v", at, w.broken)
		}
		knownEnd(t, w)
		if seen <= at {
			total = at
			break
		}
	}
	if total < 20 {
		t.Errorf("only %d moments were tried", total)
	}
}

type failer interface {
	Helper()
	Errorf(string, ...any)
}

// knownEnd: the world after the end is what the run says of it (I10).
func knownEnd(t failer, w *world) {
	t.Helper()
	if !w.run.Ended() {
		t.Errorf("the run ended nowhere: %s %s", w.run.State, states(w.run))
	}
	for _, s := range w.run.Steps {
		a := w.agents[s.Node]
		switch s.State {
		case Pending, Restored, Refused:
			if !a.present || a.undo != "" {
				t.Errorf("%s is said to be as before (%s) and is not: %+v", s.Node, s.State, a)
			}
		case Confirmed:
			if a.present || a.undo != "" {
				t.Errorf("%s is said to be confirmed and is not: %+v", s.Node, a)
			}
		case Unknown:
		default:
			t.Errorf("%s ended open: %s", s.Node, s.State)
		}
	}
}

// Any mix of lost orders, lost answers, failed looks, expiries and crashes: the invariants hold in the world.
func TestInvariantsHoldUnderAnyFaults(t *testing.T) { // I2 I3 I4 I8 I10
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(testPlan(rapid.IntRange(1, 5).Draw(t, "nodes"), Options{MaxParallel: rapid.IntRange(1, 3).Draw(t, "parallel"), Announce: rapid.Bool().Draw(t, "announce")}))
		faults := rapid.SliceOfN(rapid.SampledFrom([]string{"", "", "", "", "lost-before", "lost-after", "fail", "expire", "crash", "crash-after", "abort", "rollback", "unreachable"}), 0, 60).Draw(t, "faults")
		w.fault = func(f Effect) string {
			if len(faults) == 0 {
				return ""
			}
			next := faults[0]
			faults = faults[1:]
			switch {
			case next == "abort" || next == "rollback":
				kind := map[string]EventKind{"abort": AbortAsked, "rollback": RollbackAsk}[next]
				if !w.run.Ended() {
					w.event(Event{Kind: kind, By: "alice"})
				}
				return ""
			case f.Node == "" && next != "crash" && next != "fail", next == "unreachable" && f.Kind != DoRestore && f.Kind != DoInquire:
				return ""
			case (next == "lost-before" || next == "lost-after") && (f.Kind == DoBaseline || f.Kind == DoVerify || f.Kind == DoDwell || f.Kind == DoAnnounce):
				return ""
			case next == "expire" && f.Kind == DoRestore && f.Rollback:
				return ""
			}
			return next
		}
		w.drive()
		if len(w.broken) > 0 {
			t.Errorf("broken: %v", w.broken)
		}
		knownEnd(t, w)
	})
}

// Planted faults: choosing code that is wrong is stopped at the door.
func TestImpossibleMovesAreRefused(t *testing.T) {
	ready := func() *world {
		w := newWorld(testPlan(3, Options{}))
		w.event(Event{Kind: Started})
		for len(w.queue) > 0 && w.queue[0].Kind != DoBaseline {
			f := w.queue[0]
			w.queue = w.queue[1:]
			w.carryOut(f)
		}
		return w
	}
	for _, c := range []struct {
		name, want string
		try        func(*world) error
	}{
		{"owner first", "I3", func(w *world) error {
			w.run.Plan.Canary = "" // a chooser that forgot the canary too
			_, _, err := w.run.Apply(Event{Kind: Baselined, Node: "n3", OK: true})
			return err
		}},
		{"no canary first", "I4", func(w *world) error {
			_, _, err := w.run.Apply(Event{Kind: Baselined, Node: "n2", OK: true})
			return err
		}},
		{"two at once", "I2", func(w *world) error {
			w.run.Plan.Canary = ""
			w.event(Event{Kind: Baselined, Node: "n1", OK: true})
			_, _, err := w.run.Apply(Event{Kind: Baselined, Node: "n2", OK: true})
			return err
		}},
		{"verification skipped", "confirmed answer to a step that is applied", func(w *world) error {
			w.event(Event{Kind: Baselined, Node: "n1", OK: true})
			id := w.run.Steps[0].CommandID
			w.event(Event{Kind: Answered, Node: "n1", CommandID: id, Answer: AnswerRemoved})
			_, _, err := w.run.Apply(Event{Kind: Answered, Node: "n1", CommandID: id, Answer: AnswerConfirmed})
			return err
		}},
		{"an older term takes over", "resuming with term 1", func(w *world) error {
			_, _, err := w.run.Apply(Event{Kind: Resumed, Term: 1})
			return err
		}},
		{"a node that is not in the plan", "no step", func(w *world) error {
			_, _, err := w.run.Apply(Event{Kind: Baselined, Node: "n9", OK: true})
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.try(ready()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one about %q", err, c.want)
			}
		})
	}
}

func TestReplayingTheHistoryGivesTheSameRun(t *testing.T) { // I9
	w := newWorld(testPlan(5, Options{}))
	w.drive()
	for n := 1; n <= len(w.history); n++ {
		run := New()
		for i, e := range w.history[:n] {
			next, _, err := run.Apply(e)
			if err != nil {
				t.Fatalf("event %d of %d: %v", i, n, err)
			}
			run = next
		}
		if int(run.Revision) != n {
			t.Fatalf("revision %d after %d events", run.Revision, n)
		}
		if n == len(w.history) && fmt.Sprint(run) != fmt.Sprint(w.run) {
			t.Errorf("replayed run differs:\n%v\n%v", run, w.run)
		}
	}
}
