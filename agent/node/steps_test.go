// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vipmove/vipmove/agent/host"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func TestARemovalIsPreparedRemovedExtendedAndConfirmed(t *testing.T) {
	s := newStory(t)
	before, err := s.kernel.ListLink(t.Context(), s.entry.LinkIndex)
	if err != nil {
		t.Fatal(err)
	}
	s.expect(s.prepare(), prepared)
	a := s.expect(s.remove(removeID), removed)
	if got := a.GetDeadlineBoottime().AsDuration(); got != morning+testTTL {
		t.Errorf("deadline %v, want %v", got, morning+testTTL)
	}
	if got := a.GetRemovedBoottime().AsDuration(); got != morning {
		t.Errorf("removed at %v, want %v", got, morning)
	}
	p := s.steps.Pending()
	if p.GetRunId() != testRun || p.GetCommandId() != removeID || p.GetAddress().GetPrefix() != "192.0.2.50/32" || p.GetBlocked() != "" {
		t.Errorf("pending undo %v", p)
	}

	s.pass(20 * time.Second)
	a = s.expect(s.extend(), removed)
	if got := a.GetDeadlineBoottime().AsDuration(); got != morning+50*time.Second {
		t.Errorf("extended to %v, want 30s from the extend on", got)
	}
	s.pass(25 * time.Second) // beyond the first deadline
	s.wantHeld(false)
	s.expect(s.confirm(), confirmed)
	s.pass(time.Hour)
	s.wantHeld(false)
	if p := s.steps.Pending(); p != nil {
		t.Errorf("an undo is pending after the confirm: %v", p)
	}
	// Only that one went; every other address is as it was.
	after, err := s.kernel.ListLink(t.Context(), s.entry.LinkIndex)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before[1:], after, sameAddresses); diff != "" {
		t.Errorf("other addresses changed (-before +after):\n%s", diff)
	}
	s.wantDeletes(1)
}

func TestAnUnconfirmedRemovalIsPutBackExactlyAsItWas(t *testing.T) {
	for online, reason := range map[bool]string{true: "expired", false: "headless"} {
		t.Run(reason, func(t *testing.T) {
			s := newStory(t)
			s.kernel.Drop(testDummy, s.entry.Prefix)
			s.entry = s.kernel.Hold(testDummy, host.Address{
				Prefix: s.entry.Prefix, Label: "kube-ipvs0", Metric: 42, Protocol: 3,
				Broadcast: netip.MustParseAddr("192.0.2.50"), ValidLifetime: 7200, PreferredLifetime: 3600,
			})
			s.online = online
			s.expect(s.prepare(), prepared)
			s.expect(s.remove(removeID), removed)
			s.pass(testTTL - time.Nanosecond)
			s.wantHeld(false)
			s.pass(time.Nanosecond)
			s.wantHeld(true)
			a := s.expect(s.inquire(), restored)
			if a.GetRestoreReason() != reason {
				t.Errorf("reason %q, want %q", a.GetRestoreReason(), reason)
			}
			if diff := cmp.Diff([]host.Tuple{s.entry}, s.kernel.Adds(), sameAddresses); diff != "" {
				t.Errorf("put back (-was +is):\n%s", diff)
			}
		})
	}
}

func TestExpiryBeatsAConfirmOfTheSameInstant(t *testing.T) {
	for name, late := range map[string]time.Duration{"same instant": 0, "later": time.Minute} {
		t.Run(name, func(t *testing.T) {
			s := removedOnce(t)
			s.kernel.Advance(testTTL + late) // the timer has not fired: the confirm comes first
			a := s.expect(s.confirm(), restored)
			if a.GetRestoreReason() != "expired" {
				t.Errorf("reason %q", a.GetRestoreReason())
			}
			s.wantHeld(true)
			s.expect(s.extend(), restored)
			s.expect(s.confirm(), restored)
			s.wantHeld(true)
		})
	}
}

func TestAConfirmJustBeforeTheDeadlineStands(t *testing.T) {
	s := removedOnce(t)
	s.kernel.Advance(testTTL - time.Nanosecond)
	s.expect(s.confirm(), confirmed)
	s.pass(time.Hour)
	s.wantHeld(false)
	s.expect(s.confirm(), confirmed) // said again, answered alike
	s.expect(s.restore(false), confirmed)
	s.wantHeld(false)
}

func TestARepeatedRemoveIsAnsweredFromTheRecordI8(t *testing.T) {
	s := removedOnce(t)
	if a := s.expect(s.remove(removeID), removed); a.GetPresentAgain() {
		t.Error("present again, and it is not")
	}
	s.wantDeletes(1)
	// Somebody puts it back: above all then it is not executed again.
	s.kernel.Hold(testDummy, host.Address{Prefix: s.entry.Prefix})
	for _, r := range []*vipmovev1.CommandResult{s.remove(removeID), s.inquire(), s.extend()} {
		if a := s.expect(r, removed); !a.GetPresentAgain() {
			t.Errorf("the answer hides that it came back: %v", a)
		}
	}
	s.wantDeletes(1)
	if a := s.expect(s.confirm(), confirmed); !a.GetPresentAgain() {
		t.Errorf("the answer hides that it came back: %v", a)
	}
	s.wantHeld(true)
	s.start() // also after a restart, and late
	s.kernel.Advance(time.Minute)
	s.expect(s.remove(removeID, func(f *vipmovev1.Fence) { f.DeadlineBoottime = nil }), confirmed)
	s.wantDeletes(1)
}

func TestAStepTakesItsAddressOffOnceWhateverTheCommandI8(t *testing.T) {
	s := removedOnce(t)
	s.refuses(s.remove("run1/n1/2"), vipmovev1.Refusal_UNDO_PENDING)
	s.pass(testTTL)
	s.wantHeld(true)
	s.refuses(s.remove("run1/n1/2"), vipmovev1.Refusal_STEP_CANCELLED)
	s.wantDeletes(1)
}

func TestAnAttemptThatTookNothingOffCanBeMadeAnew(t *testing.T) {
	s := newStory(t)
	s.expect(s.prepare(), prepared)
	s.expect(s.inquire(), notSeenBefore)
	s.expect(s.restore(false), cancelled)
	s.refuses(s.remove(removeID), vipmovev1.Refusal_STEP_CANCELLED)
	s.wantDeletes(0)
	s.expect(s.inquire(), cancelled)
	s.expect(s.remove("run1/n1/2"), removed)
	s.wantHeld(false)
}

func TestARestoreBeforeTheRemoveMakesSureThatItNeverComes(t *testing.T) {
	s := newStory(t)
	s.expect(s.restore(false), cancelled) // not even prepared
	s.start()
	s.expect(s.prepare(), prepared)
	s.refuses(s.remove(removeID), vipmovev1.Refusal_STEP_CANCELLED)
	s.wantHeld(true)
	s.expect(s.restore(false), cancelled)
	s.expect(s.restore(true), cancelled) // nothing to roll back
	s.expect(s.confirm(), cancelled)
}

func TestAnOrderedRestorePutsBackAndSaysWhy(t *testing.T) {
	s := removedOnce(t)
	a := s.expect(s.restore(false), restored)
	if a.GetRestoreReason() != "ordered" || a.GetDeadlineBoottime() != nil {
		t.Errorf("answer %v", a)
	}
	s.wantHeld(true)
	s.expect(s.restore(false), restored)
	s.expect(s.confirm(), restored)
	if got := len(s.kernel.Adds()); got != 1 {
		t.Errorf("%d adds, want 1", got)
	}
}

func TestRollbackPutsAConfirmedRemovalBackOnce(t *testing.T) {
	s := removedOnce(t)
	s.expect(s.confirm(), confirmed)
	s.expect(s.restore(false), confirmed) // not without saying rollback
	s.wantHeld(false)
	s.start()
	a := s.expect(s.restore(true), restored)
	if a.GetRestoreReason() != "ordered" {
		t.Errorf("reason %q", a.GetRestoreReason())
	}
	s.wantHeld(true)
	s.kernel.Drop(testDummy, s.entry.Prefix)
	s.expect(s.restore(true), restored) // from the record, not again
	s.wantHeld(false)
}

func TestRollbackWorksFromThePreparedEntryWhenTheRecordIsLost(t *testing.T) {
	s := newStory(t)
	s.kernel.Drop(testDummy, s.entry.Prefix)
	s.expect(s.prepare(), prepared)
	s.expect(s.restore(true), restored)
	s.wantHeld(true)
}

func TestRollbackAsksTheGuardAndTheBootButNoBudget(t *testing.T) {
	s := removedOnce(t)
	s.policy.MaxChanges = 1
	s.start()
	s.expect(s.confirm(), confirmed)
	s.store.paused = errPaused
	s.refuses(s.restore(true), vipmovev1.Refusal_PAUSED_ON_NODE)
	s.store.paused = nil
	s.kernel.Set(func(w *host.FakeWorld) { w.BootID = "another" })
	s.start()
	s.refuses(s.restore(true), vipmovev1.Refusal_WRONG_BOOT)
	s.kernel.Set(func(w *host.FakeWorld) { w.BootID = "8b9f2a5c-0000-4000-8000-000000000001" })
	s.start()
	s.expect(s.restore(true), restored)
}

func TestAlreadyGoneIsSaidOnlyAfterAFullListing(t *testing.T) {
	s := newStory(t)
	s.kernel.Drop(testDummy, s.entry.Prefix)
	if a := s.expect(s.prepare(), prepared); !strings.Contains(a.GetDetail(), "not there now") {
		t.Errorf("prepare hides that it is gone: %v", a)
	}
	s.kernel.InterruptDumps(5)
	s.refuses(s.remove(removeID), vipmovev1.Refusal_DUMP_INCOMPLETE)
	a := s.expect(s.remove(removeID), alreadyAbsent)
	if a.GetDeadlineBoottime() != nil || a.GetRemovedBoottime() != nil || s.steps.Pending() != nil {
		t.Errorf("an undo for what was not removed: %v", a)
	}
	// It appears afterwards: the command was carried out, and is not again.
	s.kernel.HoldIP(testDummy, vip)
	s.expect(s.remove(removeID), alreadyAbsent)
	s.expect(s.restore(true), alreadyAbsent)
	s.wantHeld(true)
	s.wantDeletes(0)
}

func TestVanishedBetweenListingAndDeleteC07(t *testing.T) {
	s := newStory(t)
	s.expect(s.prepare(), prepared)
	s.kernel.VanishBeforeDelete()
	s.expect(s.remove(removeID), alreadyAbsent)
	s.pass(time.Hour)
	s.wantHeld(false)
}

func TestOrdersThatMakeNoSenseAreErrorsNotRefusals(t *testing.T) {
	s := newStory(t)
	for name, c := range map[string]*vipmovev1.Command{
		"no id":       {Order: &vipmovev1.Command_Inquire{}},
		"no order":    {CommandId: "x"},
		"looks":       {CommandId: "x", Order: &vipmovev1.Command_Probe{}},
		"empty entry": {CommandId: "x", Order: &vipmovev1.Command_Prepare{Prepare: &vipmovev1.Prepare{Fence: s.fence()}}},
	} {
		if r := s.steps.Order(t.Context(), c); r.GetError() == "" || r.GetRefusal() != nil {
			t.Errorf("%s: %v", name, r)
		}
	}
	if r := s.prepare(func(f *vipmovev1.Fence) { f.RunId = "" }); r.GetError() == "" {
		t.Errorf("prepare without a run: %v", r)
	}
}

func TestATTLIsBounded(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		0: DefaultTTL, -time.Second: DefaultTTL, time.Second: time.Second, 24 * time.Hour: MaxTTL,
	} {
		if got := timeToLive(asked); got != want {
			t.Errorf("timeToLive(%v) = %v, want %v", asked, got, want)
		}
	}
}

func TestABootIDThatCannotBeReadIsAnErrorAtTheStart(t *testing.T) {
	k := host.NewFake()
	k.Break("boot id", errors.New("denied"))
	if _, err := NewSteps(StepsConfig{Node: testNode, Kernel: k, Store: newMemory()}); err == nil {
		t.Error("no error")
	}
}
