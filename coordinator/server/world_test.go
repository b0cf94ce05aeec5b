// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// Things that happen in the world while a run is under way. None is the coordinator's doing; each ends the
// run, or does not, as docs/design.md section 6 says.

// A node that serves only while it holds the address: seen by requests to its own MAC, undone at once.
func TestANodeThatServesOnlyWhileItHoldsTheAddressGetsItBack(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		w.lan.change(func() { w.lan.needsAddress = true })
		r, _ := w.watch(w.begin(options()))
		if r.GetState() != "rolled-back" || r.GetReasonCode() != "NODE_DOES_NOT_SERVE" || w.lan.holders() != "n1 n2 n3 n4" {
			t.Errorf("%s %s: %s, address on %s", r.GetState(), r.GetReasonCode(), states(r), w.lan.holders())
		}
		if !strings.Contains(r.GetReason(), "it serves only while it holds the address") || stepOf(r, "n2").GetState() != "restored" {
			t.Errorf("%s: %s", r.GetReason(), states(r))
		}
		if r.GetRequestsFailed() != 0 {
			t.Errorf("%d of the clients' requests failed: the canary carries none", r.GetRequestsFailed())
		}
	})
}

func TestMoreFailedRequestsThanTheBudgetUndoTheStep(t *testing.T) {
	tests := []struct {
		name   string
		lose   uint64
		budget uint32
		state  string
		code   string
	}{
		{"none is allowed", 1, 0, "rolled-back", "REQUEST_BUDGET"},
		{"as many as are allowed", 5, 5, "done", ""},
		{"one more than is allowed", 6, 5, "rolled-back", "REQUEST_BUDGET"},
	}
	for _, state := range []string{"applied", "verified"} {
		for _, tt := range tests {
			t.Run(state+", "+tt.name, func(t *testing.T) {
				inWorld(t, 3, func(t *testing.T, w *world) {
					o := options()
					o.MaxFailed = tt.budget
					id := w.begin(o)
					w.untilStep(id, "n2", state)
					w.witness.lose(tt.lose)
					r, _ := w.watch(id)
					if r.GetState() != tt.state || r.GetReasonCode() != tt.code || r.GetRequestsFailed() != tt.lose {
						t.Errorf("%s %s %s, %d failed: %s", r.GetState(), r.GetReasonCode(), r.GetReason(), r.GetRequestsFailed(), states(r))
					}
				})
			})
		}
	}
}

// The budget is a step's: what an earlier step cost is not held against a later one.
func TestTheBudgetIsThatOfAStep(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		o := options()
		o.MaxFailed = 2
		id := w.begin(o)
		for _, node := range []string{"n2", "n1", "n3"} {
			w.untilStep(id, node, "verified")
			w.witness.lose(2)
		}
		if r, _ := w.watch(id); r.GetState() != "done" || r.GetRequestsFailed() != 6 {
			t.Errorf("%s %s %s, %d failed", r.GetState(), r.GetReasonCode(), r.GetReason(), r.GetRequestsFailed())
		}
	})
}

// A witness whose process is restarted counts from zero: what it had counted in the step still counts.
func TestAWitnessThatRestarts(t *testing.T) {
	tests := []struct {
		name  string
		lose  uint64
		state string
	}{
		{"nothing was lost", 0, "done"},
		{"a request was lost before", 1, "rolled-back"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, 3, func(t *testing.T, w *world) {
				id := w.begin(options())
				w.untilStep(id, "n2", "applied")
				w.witness.lose(tt.lose)
				w.wait(2 * reportPause)
				w.witness.restart()
				r, _ := w.watch(id)
				if r.GetState() != tt.state || r.GetRequestsFailed() != tt.lose {
					t.Errorf("%s %s %s, %d failed: %s", r.GetState(), r.GetReasonCode(), r.GetReason(), r.GetRequestsFailed(), states(r))
				}
			})
		})
	}
}

// Without a witness nothing shows that requests are fine, and no evidence is no step (I6).
func TestAWitnessThatIsGoneUndoesTheStep(t *testing.T) {
	tests := []struct {
		name string
		gone func(w *world)
	}{
		{"it left", func(w *world) { w.witness.leave() }},
		{"it says nothing any more", func(w *world) { w.witness.stall(true) }},
	}
	for _, state := range []string{"applied", "verified"} {
		for _, tt := range tests {
			t.Run(state+", "+tt.name, func(t *testing.T) {
				inWorld(t, 4, func(t *testing.T, w *world) {
					id := w.begin(options())
					w.untilStep(id, "n2", state)
					tt.gone(w)
					r, _ := w.watch(id)
					if r.GetState() != "rolled-back" || r.GetReasonCode() != "EVIDENCE_UNKNOWN" || stepOf(r, "n2").GetState() != "restored" ||
						!strings.Contains(r.GetReason(), "no witness reports requests now") {
						t.Errorf("%s %s %s: %s", r.GetState(), r.GetReasonCode(), r.GetReason(), states(r))
					}
				})
			})
		}
	}
}

func TestARunWithoutAWitnessMeasuresNoRequests(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		w.witness.leave()
		w.wait(time.Second)
		o := options()
		o.NoWitness = true
		r, _ := w.watch(w.begin(o))
		if r.GetState() != "done" || r.GetRequestsSent() != 0 || r.GetLongestGap() != nil {
			t.Errorf("%s %s %s, %d requests", r.GetState(), r.GetReasonCode(), r.GetReason(), r.GetRequestsSent())
		}
	})
}

// "Any node can serve" that could not be measured was not shown.
func TestAWitnessThatCannotSendThroughANodeStopsTheRun(t *testing.T) {
	for _, how := range []fault{notDone, deaf} {
		t.Run(string(how), func(t *testing.T) {
			inWorld(t, 3, func(t *testing.T, w *world) {
				w.witness.failing(always("send_requests", how))
				r, _ := w.watch(w.begin(options()))
				if r.GetState() != "rolled-back" || r.GetReasonCode() != "NODE_DOES_NOT_SERVE" || r.GetChanged() || !strings.Contains(r.GetReason(), "witness client: ") {
					t.Errorf("%s %s %s: %s", r.GetState(), r.GetReasonCode(), r.GetReason(), states(r))
				}
			})
		})
	}
	t.Run("it sends none", func(t *testing.T) {
		inWorld(t, 3, func(t *testing.T, w *world) {
			w.witness.answering(func(c *vipmovev1.Command) *vipmovev1.CommandResult {
				if kindOf(c) != "send_requests" {
					return nil
				}
				return &vipmovev1.CommandResult{Answer: &vipmovev1.CommandResult_SendRequests{SendRequests: &vipmovev1.SendRequestsAnswer{LastError: "no TAP device"}}}
			})
			r, _ := w.watch(w.begin(options()))
			if r.GetState() != "rolled-back" || r.GetReasonCode() != "NODE_DOES_NOT_SERVE" || !strings.Contains(r.GetReason(), "no TAP device") {
				t.Errorf("%s %s %s", r.GetState(), r.GetReasonCode(), r.GetReason())
			}
		})
	})
}

func TestAWitnessBehindARouterCannotShowThatANodeServes(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		w.lan.change(func() { w.lan.hosts["client"].ip = netip.MustParseAddr("198.51.100.1") })
		r, _ := w.watch(w.begin(options()))
		if r.GetState() != "rolled-back" || r.GetReasonCode() != "NODE_DOES_NOT_SERVE" || r.GetChanged() || !strings.Contains(r.GetReason(), "no witness on the segment could send any") {
			t.Errorf("%s %s %s: %s", r.GetState(), r.GetReasonCode(), r.GetReason(), states(r))
		}
	})
}

// The announcer moved to another node: the plan's order is wrong from then on, and the run waits for a new one.
func TestASurvivorThatMovedPausesTheRun(t *testing.T) {
	for _, to := range []string{"n2", "n3"} { // a node that is clean already, and one that is not
		t.Run("to "+to, func(t *testing.T) {
			inWorld(t, 4, func(t *testing.T, w *world) {
				id := w.begin(options())
				w.untilStep(id, "n2", "confirmed")
				w.lan.change(func() { w.lan.announcer = to })
				r, _ := w.watch(id)
				if r.GetState() != "paused" || r.GetReasonCode() != "SURVIVOR_MOVED" || !strings.Contains(r.GetReason(), "node "+to+" answers the announcer question now, the plan says n4") {
					t.Errorf("%s %s %s: %s", r.GetState(), r.GetReasonCode(), r.GetReason(), states(r))
				}
				if states(r) != "n1 pending, n2 confirmed, n3 pending, n4 pending" || !strings.Contains(r.GetNextStep(), "vipmove plan "+testVIP) {
					t.Errorf("%s; next step %q", states(r), r.GetNextStep())
				}
				w.quiet(t, id)
				// A new plan goes on where this one stopped.
				if next, _ := w.watch(w.begin(options())); next.GetState() != "done" || next.GetSurvivor() != to {
					t.Errorf("the next run: %s %s %s, survivor %s", next.GetState(), next.GetReasonCode(), next.GetReason(), next.GetSurvivor())
				}
				w.abort(t, id)
				if r, _ := w.watch(id); r.GetState() != "rolled-back" {
					t.Errorf("a paused run that was aborted is %s", r.GetState())
				}
			})
		})
	}
}

// Nothing else would answer: the last address stays (I1).
func TestAnAnnouncerThatStoppedEndsTheRun(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		id := w.begin(options())
		w.untilStep(id, "n2", "confirmed")
		w.lan.change(func() { w.lan.announcer = "" })
		r, _ := w.watch(id)
		if r.GetState() != "rolled-back" || r.GetReasonCode() != "LAST_RESPONDER" || w.lan.holders() != "n1 n3" {
			t.Errorf("%s %s %s: %s", r.GetState(), r.GetReasonCode(), r.GetReason(), states(r))
		}
	})
}

// Something puts the address back: on the node under the knife, or on one that is clean already.
func TestAnAddressThatComesBackStopsTheRun(t *testing.T) {
	tests := []struct {
		name  string
		until string // state of n3
		on    string
		state string
		code  string
		want  string
		next  string
	}{
		{"after the listing, while the node is verified", "applied", "n3", "rolled-back", "STILL_ANSWERS", "n1 pending, n2 confirmed, n3 restored, n4 pending", "vipmove plan"},
		{"while the node dwells", "verified", "n3", "needs-decision", "ADDRESS_CAME_BACK", "n1 pending, n2 confirmed, n3 restored, n4 pending", "vipmove rollback "},
		{"on a node that was confirmed", "verified", "n2", "needs-decision", "ADDRESS_CAME_BACK", "n1 pending, n2 confirmed, n3 confirmed, n4 pending", "vipmove rollback "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, 4, func(t *testing.T, w *world) {
				id := w.begin(options())
				w.untilStep(id, "n3", tt.until)
				w.lan.change(func() { w.lan.hosts[tt.on].held = true })
				r, _ := w.watch(id)
				if r.GetState() != tt.state || r.GetReasonCode() != tt.code || states(r) != tt.want {
					t.Errorf("%s %s %s: %s", r.GetState(), r.GetReasonCode(), r.GetReason(), states(r))
				}
				if !strings.Contains(r.GetNextStep(), tt.next) {
					t.Errorf("next step %q", r.GetNextStep())
				}
			})
		})
	}
}

// A stranger on the segment that answers for the VIP.
func TestAMachineThatIsNoNodeStopsTheRun(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		id := w.begin(options())
		w.untilStep(id, "n2", "verified")
		w.lan.change(func() { w.lan.add("stranger", 99, true) })
		r, _ := w.watch(id)
		if r.GetState() != "rolled-back" || r.GetReasonCode() != "FOREIGN_RESPONDER" || !strings.Contains(r.GetReason(), "02:00:00:00:00:63") {
			t.Errorf("%s %s %s: %s", r.GetState(), r.GetReasonCode(), r.GetReason(), states(r))
		}
	})
}

// A node that booted has another kernel: nothing that was reviewed is true of it.
func TestANodeThatBootedEndsTheRun(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		id := w.begin(options())
		w.untilStep(id, "n2", "verified")
		w.lan.change(func() { w.lan.hosts["n1"].boot, w.lan.hosts["n1"].bootedAt = "boot-again", time.Now() })
		w.agents["n1"].hangUp()
		r, _ := w.watch(id)
		if r.GetState() != "rolled-back" || r.GetReasonCode() != "WORLD_CHANGED" || states(r) != "n1 pending, n2 confirmed, n3 pending" {
			t.Errorf("%s %s %s: %s", r.GetState(), r.GetReasonCode(), r.GetReason(), states(r))
		}
	})
}

// More than one at a time is the operator's choice, and no more than that many.
func TestWavesOfIdleNodes(t *testing.T) {
	inWorld(t, 7, func(t *testing.T, w *world) {
		o := options()
		o.MaxParallel = 3
		id := w.begin(o)
		w.lan.mu.Lock()
		w.lan.watched = false // the world holds one at a time
		w.lan.mu.Unlock()
		r, all := w.watch(id)
		if r.GetState() != "done" || w.lan.holders() != "" {
			t.Fatalf("%s %s %s: %s", r.GetState(), r.GetReasonCode(), r.GetReason(), states(r))
		}
		most := 0
		for _, x := range all {
			open := 0
			for _, s := range x.GetSteps() {
				open += boolInt(contains([]string{"recorded", "applied", "verified"}, s.GetState()))
			}
			most = max(most, open)
		}
		if most != 3 {
			t.Errorf("%d nodes in change at once, want 3 (I2)", most)
		}
	})
}
