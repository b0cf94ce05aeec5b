// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vipmove/vipmove/agent/host"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// killed ends an agent process in the middle, as SIGKILL does.
type killed struct{}

// killAt makes the n-th moment of what follows the last one: every write to
// disk, before and after, and every step of the kernel is one.
func (s *story) killAt(n int) {
	moment := func() {
		if n--; n == 0 {
			panic(killed{})
		}
	}
	s.store.onWrite = func(string, bool) fault { moment(); return works }
	s.kernel.OnStep(func(host.Step, host.Tuple) { moment() })
}

// live runs the agent's life until it ends by itself or is killed, and then
// starts the next process.
func (s *story) live(life func()) (wasKilled bool) {
	defer func() {
		s.store.onWrite = nil
		s.kernel.OnStep(nil)
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
			wasKilled = true
		}
		s.start()
	}()
	life()
	return false
}

// allowed is what may be said after a restart, by what was said before (I9).
var allowed = map[vipmovev1.StepAnswer_State][]vipmovev1.StepAnswer_State{
	notSeenBefore: {notSeenBefore, removed, restored}, // nothing said: a kill hides how far it came
	removed:       {removed, confirmed},
	confirmed:     {confirmed},
}

func TestAKillAtAnyMomentLeavesAKnownEndI8I9I10(t *testing.T) {
	kills := 0
	for n := 1; ; n++ {
		s := newStory(t)
		s.expect(s.prepare(), prepared)
		said := notSeenBefore
		s.killAt(n)
		wasKilled := s.live(func() {
			said = s.remove(removeID).GetStep().GetState()
			said = s.extend().GetStep().GetState()
			said = s.confirm().GetStep().GetState()
		})
		if !wasKilled {
			break
		}
		kills++
		t.Run(fmt.Sprintf("moment %d after %v", n, said), func(t *testing.T) {
			s.t = t
			now := s.expectOneOf(s.inquire(), allowed[said])
			switch now {
			case removed:
				s.wantHeld(false)
				if s.steps.Pending() == nil {
					t.Error("removed without an undo pending")
				}
			case restored:
				s.wantHeld(true)
			case confirmed:
				s.wantHeld(false)
			}
			deletes := len(s.kernel.Deletes())
			s.remove(removeID) // the coordinator does not know, and says it again
			if after := len(s.kernel.Deletes()); now != notSeenBefore && after != deletes || after > 1 {
				t.Errorf("deleted again: %d, then %d", deletes, after)
			}
			s.pass(testTTL)
			s.wantHeld(now != confirmed)
		})
	}
	// The removal alone has six: two writes, before and after, and two steps.
	if kills < 10 {
		t.Errorf("%d moments were tried, want at least 10", kills)
	}
}

func (s *story) expectOneOf(r *vipmovev1.CommandResult, want []vipmovev1.StepAnswer_State) vipmovev1.StepAnswer_State {
	s.t.Helper()
	state := r.GetStep().GetState()
	if r.GetRefusal() != nil || !slices.Contains(want, state) {
		s.t.Fatalf("answer is %v, want one of %v", r, want)
	}
	return state
}

func TestAKillWhileRestoringNeverLosesTheUndo(t *testing.T) {
	for _, ordered := range []bool{true, false} {
		for n := 1; ; n++ {
			s := removedOnce(t)
			s.killAt(n)
			wasKilled := s.live(func() {
				if ordered {
					s.restore(false)
				} else {
					s.pass(testTTL)
				}
			})
			if s.pass(testTTL); !s.held() {
				t.Errorf("ordered %v, killed at moment %d: the address did not come back", ordered, n)
			}
			s.expect(s.inquire(), restored)
			if !wasKilled {
				break
			}
		}
	}
}

func TestAKillWhileRollingBackNeverLosesIt(t *testing.T) {
	for n := 1; ; n++ {
		s := removedOnce(t)
		s.expect(s.confirm(), confirmed)
		s.killAt(n)
		wasKilled := s.live(func() { s.restore(true) })
		switch state := s.inquire().GetStep().GetState(); state {
		case confirmed:
			s.wantHeld(false)
		case restored:
			s.wantHeld(true)
		default:
			t.Errorf("killed at moment %d: %v", n, state)
		}
		s.expect(s.restore(true), restored)
		s.wantHeld(true)
		if !wasKilled {
			return
		}
	}
}

func TestARestartGoesOnWithTheDeadlineAndRestoresAtOnceWhenPast(t *testing.T) {
	s := removedOnce(t)
	s.kernel.Advance(10 * time.Second)
	s.start()
	if at, ok := s.steps.Next(); !ok || at != morning+testTTL {
		t.Errorf("next at %v, %v, want the old deadline", at, ok)
	}
	s.wantHeld(false)
	s.kernel.Advance(testTTL)
	s.start()
	s.wantHeld(true)
	if a := s.expect(s.inquire(), restored); a.GetRestoreReason() != "expired" {
		t.Errorf("reason %q", a.GetRestoreReason())
	}
}

func TestAnotherBootDropsTheUndoAndRestoresNothing(t *testing.T) {
	s := removedOnce(t)
	s.kernel.Set(func(w *host.FakeWorld) { w.BootID = "the next one" })
	s.kernel.SetBootTime(5 * time.Second) // the boot clock starts anew
	s.start()
	s.pass(time.Hour)
	s.wantHeld(false)
	if s.steps.Pending() != nil {
		t.Error("an undo of another boot is pending")
	}
	a := s.expect(s.inquire(), unknown)
	if !strings.Contains(a.GetDetail(), "booted") {
		t.Errorf("detail %q", a.GetDetail())
	}
	s.expect(s.confirm(), unknown)
	s.expect(s.restore(false), unknown)
	if len(s.kernel.Adds()) != 0 {
		t.Error("something was put back")
	}
}

func TestARemovalThatCannotBeRecordedIsUndoneAtOnceI9(t *testing.T) {
	for name, how := range map[string]fault{"not done": notDone, "done and error": doneAndError, "torn": torn} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.expect(s.prepare(), prepared)
			writes := 0
			s.store.onWrite = func(_ string, after bool) fault {
				if !after {
					writes++
				}
				if writes == 2 && !after { // the one after the delete
					return how
				}
				return works
			}
			a := s.expect(s.remove(removeID), restored)
			if a.GetRestoreReason() != "not-durable" {
				t.Errorf("reason %q", a.GetRestoreReason())
			}
			s.wantHeld(true)
			s.wantDeletes(1)
			s.start()
			s.expect(s.inquire(), restored)
		})
	}
}

func TestAnOutcomeThatIsNotOnDiskIsNotSaidI9(t *testing.T) {
	s := removedOnce(t)
	s.store.onWrite = func(string, bool) fault { return notDone }
	a := s.expect(s.restore(false), unknown)
	if !strings.Contains(a.GetDetail(), "could not be written") {
		t.Errorf("detail %q", a.GetDetail())
	}
	s.wantHeld(true)
	s.expect(s.inquire(), unknown)
	if r := s.steps.CannotAct(); r.GetCode() != vipmovev1.Refusal_STATE_NOT_DURABLE {
		t.Errorf("can act: %v", r)
	}
	s.refuses(s.prepare(func(f *vipmovev1.Fence) { f.RunId = "run2" }), vipmovev1.Refusal_STATE_NOT_DURABLE)
	s.store.onWrite = nil
	s.pass(retryAfter)
	s.expect(s.inquire(), restored)
	if r := s.steps.CannotAct(); r != nil {
		t.Errorf("cannot act: %v", r)
	}
	s.start()
	s.expect(s.inquire(), restored)
}

func TestAConfirmThatIsNotOnDiskIsNoConfirmI9(t *testing.T) {
	for name, how := range map[string]fault{"not done": notDone, "done and error": doneAndError} {
		t.Run(name, func(t *testing.T) {
			s := removedOnce(t)
			s.store.onWrite = func(string, bool) fault { return how }
			s.refuses(s.confirm(), vipmovev1.Refusal_STATE_NOT_DURABLE)
			s.store.onWrite = nil
			s.pass(testTTL)
			s.wantHeld(true)
			s.start()
			s.pass(time.Hour)
			s.wantHeld(true)
			s.expect(s.inquire(), restored)
		})
	}
}

func TestAnExtendThatIsNotOnDiskExtendsNothing(t *testing.T) {
	s := removedOnce(t)
	s.kernel.Advance(20 * time.Second)
	s.store.onWrite = func(string, bool) fault { return notDone }
	s.refuses(s.extend(), vipmovev1.Refusal_STATE_NOT_DURABLE)
	s.store.onWrite = nil
	s.pass(10 * time.Second)
	s.wantHeld(true)
}

// A record that was written although the disk said no must not undo, after a
// restart, what a later command did and had confirmed.
func TestAnUndoRecordThatFailedNeverWakesUpLater(t *testing.T) {
	s := newStory(t)
	s.expect(s.prepare(), prepared)
	s.store.onWrite = func(string, bool) fault { return doneAndError }
	s.refuses(s.remove("run1/n1/0"), vipmovev1.Refusal_STATE_NOT_DURABLE)
	s.wantDeletes(0)
	s.store.onWrite = nil
	s.pass(retryAfter)
	s.expect(s.remove(removeID), removed)
	s.expect(s.confirm(), confirmed)
	s.start()
	s.pass(time.Hour)
	s.wantHeld(false)
}

func TestDamagedRecordsLeaveTheReadableUndoAlive(t *testing.T) {
	s := removedOnce(t)
	s.store.files[stepName("other")] = []byte("{")
	s.start()
	s.refuses(s.confirm(), vipmovev1.Refusal_STATE_NOT_DURABLE)
	s.refuses(s.extend(), vipmovev1.Refusal_STATE_NOT_DURABLE)
	if r := s.steps.CannotAct(); !strings.Contains(r.GetMessage(), stepName("other")) {
		t.Errorf("%q does not name the file", r.GetMessage())
	}
	s.expect(s.inquire(), removed)
	s.pass(testTTL)
	s.wantHeld(true)
	// What it cannot read, it does not deny.
	s.expect(s.send(&vipmovev1.Command{Order: &vipmovev1.Command_Inquire{Inquire: &vipmovev1.Inquire{
		Fence: s.fence(), RemoveCommandId: "other",
	}}}), unknown)
}

func TestASlowDiskMakesARemovalLateI7(t *testing.T) {
	s := newStory(t)
	s.expect(s.prepare(), prepared)
	s.store.onWrite = func(_ string, after bool) fault {
		if after {
			s.kernel.Advance(time.Minute)
		}
		return works
	}
	s.refuses(s.remove(removeID), vipmovev1.Refusal_LATE)
	s.store.onWrite = nil
	s.wantDeletes(0)
	s.refuses(s.remove(removeID), vipmovev1.Refusal_LATE) // from the record
	s.start()
	s.pass(time.Hour)
	s.wantHeld(true)
}
