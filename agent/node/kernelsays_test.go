// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/agent/report"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func TestWhatIsPutBackAtOnceIsStillPresent(t *testing.T) {
	s := newStory(t)
	s.expect(s.prepare(), prepared)
	s.kernel.ReturnAfterDelete(1)
	a := s.expect(s.remove(removeID), stillPresent)
	if !strings.Contains(a.GetDetail(), "puts it back") {
		t.Errorf("detail %q", a.GetDetail())
	}
	s.wantHeld(true)
	if s.steps.Pending() != nil {
		t.Error("an undo is pending")
	}
}

func TestAKernelThatDeniesChangesNothing(t *testing.T) {
	s := newStory(t)
	s.expect(s.prepare(), prepared)
	s.kernel.Deny(true)
	a := s.expect(s.remove(removeID), stillPresent)
	if !strings.Contains(a.GetDetail(), "CAP_NET_ADMIN") {
		t.Errorf("detail %q does not say what is missing", a.GetDetail())
	}
	s.wantHeld(true)
}

func TestALocalRouteWithoutAddressIsNotGone(t *testing.T) {
	s := newStory(t)
	s.expect(s.prepare(), prepared)
	s.kernel.Drop(testDummy, s.entry.Prefix)
	s.kernel.AddRoute(host.Route{Prefix: s.entry.Prefix, Type: "local", Table: host.LocalTable, Link: testDummy})
	a := s.expect(s.remove(removeID), stillPresent)
	if !strings.Contains(a.GetDetail(), "local route") {
		t.Errorf("detail %q", a.GetDetail())
	}
	s.wantDeletes(0)
}

func TestTheKernelsErrorDoesNotDecideTheListingDoes(t *testing.T) {
	for name, tt := range map[string]struct {
		done bool
		want vipmovev1.StepAnswer_State
	}{
		"done and error":     {true, removed},
		"not done and error": {false, stillPresent},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.expect(s.prepare(), prepared)
			s.kernel.FailDelete(syscall.ENOBUFS, tt.done)
			s.expect(s.remove(removeID), tt.want)
			s.wantHeld(!tt.done)
			if pending := s.steps.Pending() != nil; pending != tt.done {
				t.Errorf("undo pending: %v", pending)
			}
		})
	}
}

func TestALostListingAfterTheDeleteIsUnknownUntilSettledI6(t *testing.T) {
	for name, came := range map[string]bool{"deleted": true, "not deleted": false} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.expect(s.prepare(), prepared)
			if !came {
				s.kernel.FailDelete(syscall.ENOBUFS, false)
			}
			s.kernel.OnStep(func(step host.Step, _ host.Tuple) {
				if step == host.Deleted {
					s.kernel.InterruptDumps(10) // the listing after the delete, and one more
				}
			})
			s.expect(s.remove(removeID), unknown)
			s.expect(s.confirm(), unknown)
			if s.steps.Pending() == nil {
				t.Error("no undo is pending for what may be gone")
			}
			s.kernel.InterruptDumps(0)
			if came {
				s.expect(s.inquire(), removed)
				s.pass(testTTL)
				s.wantHeld(true)
				return
			}
			s.expect(s.inquire(), stillPresent)
			if s.steps.Pending() != nil {
				t.Error("an undo is pending for what is there")
			}
		})
	}
}

func TestARestoreThatFailsIsTriedAgainUntilItIsDone(t *testing.T) {
	s := removedOnce(t)
	for range 5 {
		s.kernel.FailAdd(syscall.ENOBUFS, false)
	}
	s.pass(testTTL)
	s.wantHeld(false)
	if p := s.steps.Pending(); !strings.Contains(p.GetBlocked(), "restoring 192.0.2.50/32 on kube-ipvs0") {
		t.Errorf("blocked reason %q", p.GetBlocked())
	}
	// Past its time nothing confirms it any more, blocked or not.
	a := s.expect(s.confirm(), unknown)
	if !strings.Contains(a.GetDetail(), "cannot be put back now") {
		t.Errorf("detail %q", a.GetDetail())
	}
	at, ok := s.steps.Next()
	if !ok || at <= s.kernel.BootTime() || at > s.kernel.BootTime()+2*time.Second {
		t.Errorf("next try at %v, %v; now is %v", at, ok, s.kernel.BootTime())
	}
	for range 4 {
		s.wantHeld(false)
		s.pass(retryAfter)
	}
	s.pass(retryAfter)
	s.wantHeld(true)
	if a := s.expect(s.inquire(), restored); a.GetRestoreReason() != "expired" {
		t.Errorf("reason %q", a.GetRestoreReason())
	}
	if p := s.steps.Pending(); p != nil {
		t.Errorf("still pending: %v", p)
	}
}

func TestAnOrderedRestoreThatFailsIsDueFromThenOn(t *testing.T) {
	s := removedOnce(t)
	s.kernel.Deny(true)
	s.expect(s.restore(false), unknown)
	s.start() // and across a crash
	s.expect(s.confirm(), unknown)
	s.kernel.Deny(false)
	s.pass(retryAfter)
	s.wantHeld(true)
	if a := s.expect(s.inquire(), restored); a.GetRestoreReason() != "ordered" {
		t.Errorf("reason %q", a.GetRestoreReason())
	}
}

func TestALinkThatIsGoneBlocksTheUndoAndSaysSo(t *testing.T) {
	s := removedOnce(t)
	s.kernel.DropLink(testDummy)
	s.pass(testTTL)
	if p := s.steps.Pending(); !strings.Contains(p.GetBlocked(), "no such link") {
		t.Errorf("blocked reason %q", p.GetBlocked())
	}
}

func TestShutdownPutsBackWhatNobodyConfirmed(t *testing.T) {
	s := removedOnce(t)
	s.kernel.FailAdd(syscall.ENOBUFS, false)
	if s.steps.Shutdown(t.Context()) {
		t.Error("reported as back, and it is not")
	}
	if !s.steps.Shutdown(t.Context()) {
		t.Error("not back at the second try")
	}
	s.wantHeld(true)
	s.start()
	if a := s.expect(s.inquire(), restored); a.GetRestoreReason() != "shutdown" {
		t.Errorf("reason %q", a.GetRestoreReason())
	}
	if !newStory(t).steps.Shutdown(t.Context()) {
		t.Error("with nothing pending, something is")
	}
}

func TestOneUndoAtATimeOnANode(t *testing.T) {
	s := removedOnce(t)
	other := s.kernel.HoldIP(testDummy, netip.MustParseAddr("192.0.2.51"))
	run2 := func(f *vipmovev1.Fence) { f.RunId = "run2" }
	s.refuses(s.prepareEntry(report.AddressToProto(other), nil, run2), vipmovev1.Refusal_UNDO_PENDING)
	s.expect(s.confirm(), confirmed)
	s.expect(s.prepareEntry(report.AddressToProto(other), nil, run2), prepared)
	s.expect(s.remove("run2/n1/1", run2), removed)
}

func TestTheTwinOnAKnownDummyIsLeftAloneAndListedAgainC11(t *testing.T) {
	s := newStory(t)
	s.kernel.AddDummy("nodelocaldns")
	twin := s.kernel.HoldIP("nodelocaldns", vip)
	s.expect(s.prepare(), prepared)
	a := s.expect(s.remove(removeID), removed)
	if !strings.Contains(a.GetDetail(), "nodelocaldns still has it") {
		t.Errorf("detail %q", a.GetDetail())
	}
	list, err := s.kernel.ListLink(t.Context(), twin.LinkIndex)
	if _, ok := listed(twin, list); !ok || err != nil {
		t.Errorf("the twin is gone: %v, %v", list, err)
	}
}
