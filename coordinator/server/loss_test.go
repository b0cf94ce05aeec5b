// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// Every order that changes a node, each in all its ways to fail: two runs for each, in which every node loses
// another answer. What was lost is asked for, nothing is assumed, and the run goes on. The world watches I1,
// I2, I3 and I8.
func TestALostAnswerIsNeitherDoneNorNotDone(t *testing.T) {
	for _, kind := range []string{"remove", "extend", "confirm"} {
		for _, faults := range [][]fault{{notDone, cutAfter, dumb}, {deaf, doneError, cutBefore}} {
			t.Run(fmt.Sprint(kind, faults), func(t *testing.T) {
				inWorld(t, 3, func(t *testing.T, w *world) {
					for i, how := range faults {
						w.agents[fmt.Sprintf("n%d", i+1)].failing(once(kind, 1, how))
					}
					id := w.begin(options())
					r, _ := w.watch(id)
					if r.GetState() != "done" || w.lan.holders() != "" {
						t.Fatalf("%s %s %s: %s, address on %q", r.GetState(), r.GetReasonCode(), r.GetReason(), states(r), w.lan.holders())
					}
					w.recorded(t, id, r)
				})
			})
		}
	}
}

// What is lost before the first step ends a run that changed nothing.
func TestALostPrepareEndsTheRunBeforeItBegan(t *testing.T) {
	for _, how := range []fault{notDone, doneError, cutBefore, cutAfter, dumb, deaf} {
		t.Run(string(how), func(t *testing.T) {
			inWorld(t, 3, func(t *testing.T, w *world) {
				w.agents["n2"].failing(once("prepare", 1, how))
				r, _ := w.watch(w.begin(options()))
				if r.GetState() != "rolled-back" || r.GetReasonCode() != "NODE_UNREACHABLE" || r.GetChanged() || w.lan.holders() != "n1 n2 n3" {
					t.Errorf("%s %s %s: %s, address on %q", r.GetState(), r.GetReasonCode(), r.GetReason(), states(r), w.lan.holders())
				}
			})
		})
	}
}

// A look that fails is not a bad look and not a good one: the step that needs it is undone or not begun.
func TestALookThatFailsUndoesTheStep(t *testing.T) {
	tests := []struct {
		name  string
		harm  func(w *world)
		until []string // states of n2 after which it goes wrong
		want  []string // states of n2 in the end
	}{
		// A node that answers and cannot be read has no name on the wire.
		{"the node's kernel is not read at its baseline", func(w *world) { w.agents["n2"].failing(inRun(always("read_kernel", deaf))) }, nil, []string{"pending"}},
		{"the node's kernel is not read at its verification", func(w *world) { w.agents["n2"].failing(always("read_kernel", notDone)) }, []string{"recorded", "applied"}, []string{"restored"}},
		{"the node's kernel is not read while it soaks", func(w *world) { w.agents["n2"].failing(always("read_kernel", deaf)) }, []string{"verified"}, []string{"restored"}},
		{"every observer but one is gone", func(w *world) {
			w.agents["n1"].failing(always("probe", notDone))
			w.agents["n3"].failing(always("probe", deaf))
		}, []string{"recorded", "applied"}, []string{"restored"}},
		{"observers answer about something else", func(w *world) {
			w.agents["n1"].failing(always("probe", doneError))
			w.witness.failing(always("probe", doneError))
		}, []string{"recorded", "applied"}, []string{"restored"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, 3, func(t *testing.T, w *world) {
				if tt.until == nil {
					tt.harm(w)
				}
				id := w.begin(options())
				if tt.until != nil {
					w.untilStep(id, "n2", tt.until...)
					tt.harm(w)
				}
				r, _ := w.watch(id)
				codes := []string{"EVIDENCE_UNKNOWN", "FOREIGN_RESPONDER", "LAST_RESPONDER"}
				if r.GetState() != "rolled-back" || !contains(codes, r.GetReasonCode()) || !contains(tt.want, stepOf(r, "n2").GetState()) || w.lan.holders() != "n1 n2 n3" {
					t.Errorf("%s %s %s: %s, address on %s", r.GetState(), r.GetReasonCode(), r.GetReason(), states(r), w.lan.holders())
				}
			})
		})
	}
}

// An agent that goes and does not come back, in every state of its step. Its own undo puts the address back;
// the coordinator cannot know, and names it unknown (I10).
func TestAnAgentThatIsLostForGood(t *testing.T) {
	tests := []struct {
		name  string
		until func(w *world, id string)
		state string
		code  string
		want  string // the step's state
		back  bool   // the address is there in the end
	}{
		{"before its baseline", func(w *world, id string) { w.untilStep(id, "n2", "confirmed") }, "rolled-back", "FOREIGN_RESPONDER EVIDENCE_UNKNOWN", "pending", true},
		{"with its removal under way", func(w *world, _ string) {
			w.until("n1 was told to remove", func() bool { return w.agents["n1"].orders("remove") == 1 })
		}, "needs-decision", "NODE_UNREACHABLE", "unknown", true},
		{"while it is verified", func(w *world, id string) { w.untilStep(id, "n1", "applied") }, "needs-decision", "NODE_UNREACHABLE", "unknown", true},
		{"while it dwells", func(w *world, id string) { w.untilStep(id, "n1", "verified") }, "needs-decision", "EVIDENCE_UNKNOWN", "unknown", true},
		{"with its confirm under way", func(w *world, _ string) {
			w.until("n1 was told to confirm", func() bool { return w.agents["n1"].orders("confirm") == 1 })
		}, "needs-decision", "NODE_UNREACHABLE", "unknown", true},
		{"when it is confirmed", func(w *world, id string) { w.untilStep(id, "n1", "confirmed") }, "done", "", "confirmed", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, 4, func(t *testing.T, w *world) {
				w.agents["n1"].failing(func(c *vipmovev1.Command) fault {
					if k := kindOf(c); k == "remove" && strings.Contains(tt.name, "removal") {
						return dumb
					} else if k == "confirm" && strings.Contains(tt.name, "confirm under") {
						return deaf
					}
					return fine
				})
				id := w.begin(options())
				tt.until(w, id)
				w.agents["n1"].leave()
				r, _ := w.watch(id)
				if r.GetState() != tt.state || !strings.Contains(tt.code, r.GetReasonCode()) || stepOf(r, "n1").GetState() != tt.want {
					t.Errorf("%s %s %s: %s", r.GetState(), r.GetReasonCode(), r.GetReason(), states(r))
				}
				w.wait(time.Minute)
				if got := contains(strings.Fields(w.lan.holders()), "n1"); got != tt.back {
					t.Errorf("address on %q, want it on n1: %v", w.lan.holders(), tt.back)
				}
				if tt.want == "unknown" && !strings.Contains(stepOf(r, "n1").GetDetail(), "could not be asked for 45s") {
					t.Errorf("detail %q", stepOf(r, "n1").GetDetail())
				}
			})
		})
	}
}

// An agent that goes and comes back within its time is asked, and the run goes on or is undone.
func TestAnAgentThatComesBackIsAsked(t *testing.T) {
	tests := []struct {
		away  time.Duration
		state string
		want  string
	}{
		{10 * time.Second, "done", "confirmed"},
		{40 * time.Second, "rolled-back", "restored"}, // its own undo was first
	}
	for _, tt := range tests {
		t.Run(tt.away.String(), func(t *testing.T) {
			inWorld(t, 3, func(t *testing.T, w *world) {
				w.agents["n2"].failing(once("remove", 1, cutAfter))
				id := w.begin(options())
				w.until("n2 was told to remove", func() bool { return w.agents["n2"].orders("remove") == 1 })
				w.agents["n2"].leave()
				w.wait(tt.away)
				w.agents["n2"].comeBack()
				r, _ := w.watch(id)
				if r.GetState() != tt.state || stepOf(r, "n2").GetState() != tt.want {
					t.Errorf("%s %s: %s", r.GetState(), r.GetReasonCode(), states(r))
				}
			})
		})
	}
}

// What the node says decides, whatever had been expected of it.
func TestAnAnswerThatNobodyExpectsStopsTheRun(t *testing.T) {
	const removed, unknown, still = vipmovev1.StepAnswer_STATE_REMOVED, vipmovev1.StepAnswer_STATE_UNKNOWN, vipmovev1.StepAnswer_STATE_STILL_PRESENT
	tests := []struct {
		name   string
		done   bool // it was removed all the same
		answer *vipmovev1.StepAnswer
		want   string
	}{
		{"it does not know", true, &vipmovev1.StepAnswer{State: unknown, Detail: "the disk is gone"}, "EVIDENCE_UNKNOWN"},
		{"it is still there", false, &vipmovev1.StepAnswer{State: still, Detail: "present as /24"}, "STILL_PRESENT"},
		{"it is there again", true, &vipmovev1.StepAnswer{State: removed, PresentAgain: true}, "ADDRESS_CAME_BACK"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, 3, func(t *testing.T, w *world) {
				a, said := w.agents["n2"], false
				a.answering(func(c *vipmovev1.Command) *vipmovev1.CommandResult {
					if kindOf(c) != "remove" || said {
						return nil
					}
					said = true
					if tt.done {
						a.order(c)
					}
					return &vipmovev1.CommandResult{Answer: &vipmovev1.CommandResult_Step{Step: tt.answer}}
				})
				r, _ := w.watch(w.begin(options()))
				if r.GetReasonCode() != tt.want || r.GetState() == "done" || w.lan.holders() != "n1 n2 n3" {
					t.Errorf("%s %s %s: %s, address on %s", r.GetState(), r.GetReasonCode(), r.GetReason(), states(r), w.lan.holders())
				}
			})
		})
	}
}
