// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"testing"
	"time"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// inTerm edits a fence to be of another term.
func inTerm(term uint64) change { return func(f *vipmovev1.Fence) { f.Term = term } }

func TestNoOrderOfALowerTermTakesEffectI7(t *testing.T) {
	orders := map[string]func(s *story, c change) *vipmovev1.CommandResult{
		"prepare": func(s *story, c change) *vipmovev1.CommandResult { return s.prepare(c) },
		"remove":  func(s *story, c change) *vipmovev1.CommandResult { return s.remove("run1/n1/2", c) },
		"extend":  func(s *story, c change) *vipmovev1.CommandResult { return s.extend(c) },
		"confirm": func(s *story, c change) *vipmovev1.CommandResult { return s.confirm(c) },
		"restore": func(s *story, c change) *vipmovev1.CommandResult { return s.restore(false, c) },
		"inquire": func(s *story, c change) *vipmovev1.CommandResult { return s.inquire(c) },
	}
	for name, order := range orders {
		t.Run(name, func(t *testing.T) {
			s := removedOnce(t)
			s.expect(s.extend(inTerm(5)), removed)
			before := s.steps.Pending()
			s.refuses(order(s, inTerm(4)), vipmovev1.Refusal_STALE_TERM)
			s.start() // the disk remembers
			s.refuses(order(s, inTerm(4)), vipmovev1.Refusal_STALE_TERM)
			if after := s.steps.Pending(); after.GetDeadlineBoottime().AsDuration() != before.GetDeadlineBoottime().AsDuration() {
				t.Errorf("the undo changed from %v to %v", before, after)
			}
			s.wantHeld(false)
		})
	}
}

func TestATakeOverGoesOnWithTheHigherTerm(t *testing.T) {
	s := removedOnce(t)
	s.term = 2
	s.expect(s.inquire(), removed)
	s.expect(s.extend(), removed)
	s.expect(s.confirm(), confirmed)
	s.refuses(s.inquire(inTerm(1)), vipmovev1.Refusal_STALE_TERM)
}

func TestATermThatCannotBeKeptIsNotObeyedI7I9(t *testing.T) {
	s := removedOnce(t)
	s.store.onWrite = func(name string, _ bool) fault {
		if name == termFile {
			return notDone
		}
		return works
	}
	s.refuses(s.confirm(inTerm(2)), vipmovev1.Refusal_STATE_NOT_DURABLE)
	s.pass(testTTL)
	s.wantHeld(true)
}

func TestAWelcomeRaisesTheTermOfTheSameJournalOnly(t *testing.T) {
	s := newStory(t)
	s.steps.Welcome("j9", 9) // the first order decides, not the first greeting
	s.expect(s.prepare(), prepared)
	s.steps.Welcome("j9", 9)
	s.steps.Welcome(journal, 0)
	s.expect(s.remove(removeID), removed)
	s.steps.Welcome(journal, 3)
	s.start()
	s.refuses(s.confirm(inTerm(2)), vipmovev1.Refusal_STALE_TERM)
	s.expect(s.confirm(inTerm(3)), confirmed)
}

func TestANewJournalNeedsAResetOnTheNode(t *testing.T) {
	s := removedOnce(t)
	other := func(f *vipmovev1.Fence) { f.JournalId, f.Term, f.RunId = "j2", 1, "run9" }
	s.refuses(s.prepare(other), vipmovev1.Refusal_OTHER_JOURNAL)
	s.store.files[resetFile] = nil // vipmove-agent reset-term
	s.refuses(s.prepare(other), vipmovev1.Refusal_UNDO_PENDING)
	s.pass(testTTL) // the undo of the old journal still fires
	s.wantHeld(true)
	s.expect(s.prepare(other), prepared)
	s.refuses(s.inquire(), vipmovev1.Refusal_OTHER_JOURNAL)
	if asked, _ := s.store.ResetRequested(); asked {
		t.Error("the reset would be done twice")
	}
	s.start()
	s.refuses(s.restore(false), vipmovev1.Refusal_OTHER_JOURNAL)
}

func TestAResetAlsoForgetsATermThatIsTooHigh(t *testing.T) {
	s := newStory(t)
	s.expect(s.prepare(inTerm(1000)), prepared)
	s.refuses(s.prepare(), vipmovev1.Refusal_STALE_TERM)
	s.store.files[resetFile] = nil
	s.expect(s.prepare(), prepared)
}

func TestInquireIsAnsweredAfterABootAndLate(t *testing.T) {
	s := removedOnce(t)
	s.expect(s.confirm(), confirmed)
	s.expect(s.inquire(func(f *vipmovev1.Fence) { f.BootId, f.DeadlineBoottime = "earlier", nil }), confirmed)
}

func TestACommandOfAnotherStepIsNotAnswered(t *testing.T) {
	s := removedOnce(t)
	other := func(f *vipmovev1.Fence) { f.RunId = "run2" }
	s.refuses(s.confirm(other), vipmovev1.Refusal_NOT_PREPARED)
	s.refuses(s.restore(false, other), vipmovev1.Refusal_NOT_PREPARED)
	s.refuses(s.inquire(other), vipmovev1.Refusal_NOT_PREPARED)
	s.refuses(s.remove(removeID, other), vipmovev1.Refusal_NOT_PREPARED)
	s.wantHeld(false)
}

func TestOldRecordsAreForgottenButNeverAnOpenOrCountedOne(t *testing.T) {
	s := newStory(t)
	for i := range keptSteps + 20 {
		run := fmt.Sprintf("old%d", i)
		r := s.send(&vipmovev1.Command{Order: &vipmovev1.Command_Restore{Restore: &vipmovev1.Restore{
			Fence: s.fenced([]change{func(f *vipmovev1.Fence) { f.RunId = run }}), RemoveCommandId: run,
		}}})
		s.expect(r, cancelled)
		if i == 0 {
			s.expect(s.prepare(), prepared)
			s.expect(s.remove(removeID), removed)
			s.kernel.Advance(time.Second)
		}
	}
	s.start()
	if n := len(s.steps.ledger.steps); n > keptSteps {
		t.Errorf("%d steps are kept, want at most %d", n, keptSteps)
	}
	s.expect(s.inquire(), removed)
	s.expect(s.confirm(), confirmed)
	for i := range keptPrepared + 5 {
		s.expect(s.prepare(func(f *vipmovev1.Fence) { f.RunId = fmt.Sprintf("new%d", i) }), prepared)
	}
	s.start()
	if n := len(s.steps.ledger.prepared); n > keptPrepared {
		t.Errorf("%d prepared entries are kept, want at most %d", n, keptPrepared)
	}
	s.refuses(s.prepare(inTerm(0)), vipmovev1.Refusal_STALE_TERM)
}
