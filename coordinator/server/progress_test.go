// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"testing"

	"github.com/vipmove/vipmove/coordinator/handover"
)

func TestANewerEffectTakesThePlaceOfAnOlderOne(t *testing.T) {
	p := newProgress(handover.New())
	start := func(kind handover.EffectKind, node string) (*errand, context.Context) {
		ctx, cancel := context.WithCancel(t.Context())
		return p.begin(handover.Effect{Kind: kind, Node: node}, cancel), ctx
	}
	first, firstCtx := start(handover.DoRestore, "n1")
	other, otherCtx := start(handover.DoRestore, "n2")
	look, lookCtx := start(handover.DoVerify, "n1")
	second, secondCtx := start(handover.DoRestore, "n1")
	if firstCtx.Err() == nil || secondCtx.Err() != nil || otherCtx.Err() != nil || lookCtx.Err() != nil {
		t.Errorf("ended: first %v, second %v, at another node %v, of another kind %v", firstCtx.Err(), secondCtx.Err(), otherCtx.Err(), lookCtx.Err())
	}
	if p.finish(first) || !p.finish(second) || !p.finish(look) {
		t.Error("the outcome of the older one was taken, or that of another was not")
	}
	if len(p.errands) != 1 {
		t.Errorf("%d effects are kept, one is under way", len(p.errands))
	}
	p.callOff()
	if p.finish(other) || otherCtx.Err() == nil || len(p.errands) != 0 {
		t.Error("an effect that was called off goes on")
	}
	third, _ := start(handover.DoRestore, "n1")
	if !p.finish(third) {
		t.Error("an effect after the calling off is not taken")
	}
}

// The outcome of an effect that was called off can be in the queue already. A refusal by a node that had been
// told to restore first would name the node unknown.
func TestAnOutcomeOfAnEffectThatWasCalledOffChangesNothing(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		w.agents["n2"].failing(once("restore", 1, deaf))
		id := w.begin(options())
		w.untilStep(id, "n2", "verified")
		step, _ := w.server.driver.runs[id].run.Step("n2")
		stray := handover.Event{Kind: handover.Answered, Node: "n2", CommandID: step.CommandID, Answer: handover.AnswerRefused, Code: "STEP_CANCELLED"}
		w.server.driver.post(w.ctx, envelope{run: id, event: stray, from: &errand{key: "n2/confirm", off: true, cancel: func() {}}})
		w.abort(t, id)
		w.server.driver.post(w.ctx, envelope{run: id, event: stray, from: &errand{key: "n2/remove", off: true, cancel: func() {}}})
		w.server.driver.post(w.ctx, envelope{run: "no such run", event: stray}) // of no run: dropped
		if r, _ := w.watch(id); r.GetState() != "rolled-back" || r.GetReasonCode() != "ABORTED" || stepOf(r, "n2").GetState() != "restored" {
			t.Errorf("%s %s: %s", r.GetState(), r.GetReasonCode(), states(r))
		}
	})
}

// A worker that starts after the end of its run has nothing to say.
func TestARunThatHasEndedIsDoingNothing(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		id := w.begin(options())
		w.watch(id)
		d := w.server.driver
		if before := d.setDoing(d.runs[id], "verifying n1"); before != "" {
			t.Errorf("it was %q", before)
		}
		if v, _, _ := d.view(id); v.doing != "" {
			t.Errorf("it is %q", v.doing)
		}
	})
}

// Once the journal can be written again nobody is told any more that it cannot.
func TestAfterTheJournalTheRunIsDoingWhatItWasDoing(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		d, p := w.server.driver, newProgress(handover.Run{ID: "r9", State: handover.Running})
		d.setDoing(p, "watching n1")
		failures := 0
		w.diskFails(func(handover.Event) (bool, error) {
			if failures++; failures > 3 {
				return false, nil
			}
			return false, errors.New("no space left on device")
		})
		if err := d.record(w.ctx, p, envelope{run: "r9", event: handover.Event{Kind: handover.Started}}); err != nil || p.doing != "watching n1" || failures != 4 {
			t.Errorf("%v after %d failures, doing %q", err, failures, p.doing)
		}
	})
}
