// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/agent/host"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func muteOrder(f *vipmovev1.Fence, vip string, d time.Duration) *vipmovev1.Command {
	return &vipmovev1.Command{Order: &vipmovev1.Command_Mute{Mute: &vipmovev1.Mute{Fence: f, Vip: vip, Duration: durationpb.New(d)}}}
}

// noRun is a fence of no run, as `owners --mute` sends it.
func noRun(f *vipmovev1.Fence) { f.RunId, f.PlanHash, f.Step = "", "", "" }

func (s *story) mute(d time.Duration, changes ...change) *vipmovev1.CommandResult {
	return s.send(muteOrder(s.fenced(append([]change{noRun}, changes...)), vip.String(), d))
}

func (s *story) mutes(r *vipmovev1.CommandResult) *vipmovev1.MuteAnswer {
	s.t.Helper()
	if r.GetMute() == nil || r.GetRefusal() != nil || r.GetError() != "" {
		s.t.Fatalf("answer is %v, want one about a mute", r)
	}
	return r.GetMute()
}

func TestAMuteHoldsUntilItIsLifted(t *testing.T) {
	s := newStory(t)
	a := s.mutes(s.mute(host.MaxMute))
	if want := morning + host.MaxMute - muteMargin; !a.GetMuted() || a.GetUntilBoottime().AsDuration() != want || !s.kernel.Muted(vip) {
		t.Errorf("answer %v, want mute until %s", a, want)
	}
	s.kernel.Advance(time.Second)
	if a := s.mutes(s.mute(0)); a.GetMuted() || !a.GetHeld() || s.kernel.Muted(vip) {
		t.Errorf("answer to the lift %v", a)
	}
	if a := s.mutes(s.mute(0)); a.GetMuted() || a.GetHeld() {
		t.Errorf("answer to a lift of nothing %v", a)
	}
}

func TestAMuteThatEndedByItselfHeldNothingI6(t *testing.T) {
	for name, end := range map[string]func(s *story){
		"the timer fired":         func(s *story) { s.pass(host.MaxMute) },
		"the timer has not fired": func(s *story) { s.kernel.Advance(host.MaxMute) },
		"within the margin":       func(s *story) { s.kernel.Advance(host.MaxMute - muteMargin) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.mutes(s.mute(time.Hour)) // never longer than MaxMute, whatever is asked
			end(s)
			if a := s.mutes(s.mute(0)); a.GetHeld() || s.kernel.Muted(vip) {
				t.Errorf("answer to the lift %v", a)
			}
			if !s.mutes(s.mute(time.Second)).GetMuted() {
				t.Error("no mute after that")
			}
		})
	}
}

func TestTheTimerLiftsAMute(t *testing.T) {
	s := newStory(t)
	s.mutes(s.mute(time.Second))
	if at, ok := s.steps.Next(); !ok || at != morning+time.Second-muteMargin {
		t.Errorf("next thing to do at %s, %v", at, ok)
	}
	s.pass(time.Second)
	if _, ok := s.steps.Next(); ok || s.kernel.Muted(vip) {
		t.Error("the mute is still there")
	}
}

// A step judges the node as it is, and never begins in another's window (I1).
func TestAnOrderAboutAStepEndsAMute(t *testing.T) {
	s := newStory(t)
	s.mutes(s.mute(time.Second))
	s.expect(s.prepare(), prepared)
	if s.kernel.Muted(vip) {
		t.Error("mute while a step is prepared")
	}
	if s.mutes(s.mute(0)).GetHeld() {
		t.Error("the mute is said to have held")
	}
}

func TestAMuteIsRefused(t *testing.T) {
	open := func(s *story) { s.expect(s.prepare(), prepared); s.expect(s.remove(removeID), removed) }
	for name, c := range map[string]struct {
		given func(s *story)
		fence change
		want  vipmovev1.Refusal_Code
	}{
		"while a step is open":        {given: open, want: vipmovev1.Refusal_UNDO_PENDING},
		"by an agent that only looks": {given: func(s *story) { s.policy.Act = false; s.start() }, want: vipmovev1.Refusal_OBSERVE_ONLY},
		"on a paused node":            {given: func(s *story) { s.store.paused = errPaused }, want: vipmovev1.Refusal_PAUSED_ON_NODE},
		"outside the allowed prefixes": {given: func(s *story) {
			s.policy.Prefixes = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
			s.start()
		}, want: vipmovev1.Refusal_PREFIX_NOT_ALLOWED},
		"without nftables for ARP": {given: func(s *story) { s.kernel.FailMute(fmt.Errorf("muting: %w", host.ErrMuteUnsupported)) }, want: vipmovev1.Refusal_MUTE_UNSUPPORTED},
		"late":                     {fence: func(f *vipmovev1.Fence) { f.DeadlineBoottime = durationpb.New(morning - 1) }, want: vipmovev1.Refusal_LATE},
		"for another boot":         {fence: func(f *vipmovev1.Fence) { f.BootId = "other" }, want: vipmovev1.Refusal_WRONG_BOOT},
		"by another journal I7":    {given: func(s *story) { s.expect(s.prepare(), prepared) }, fence: func(f *vipmovev1.Fence) { f.JournalId = "j2" }, want: vipmovev1.Refusal_OTHER_JOURNAL},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			if c.given != nil {
				c.given(s)
			}
			if c.fence == nil {
				c.fence = func(*vipmovev1.Fence) {}
			}
			s.refuses(s.mute(time.Second, c.fence), c.want)
			if len(s.kernel.Mutes()) > 0 {
				t.Error("the kernel was asked all the same")
			}
		})
	}
}

func TestAMuteSpendsNoBudget(t *testing.T) {
	s := newStory(t)
	s.policy.MaxChanges = 1
	s.start()
	s.expect(s.prepare(), prepared)
	s.expect(s.remove(removeID), removed)
	s.expect(s.confirm(), confirmed)
	s.mutes(s.mute(time.Second))
}

func TestAKernelThatDeniesAMuteIsAnErrorAndNoRefusal(t *testing.T) {
	s := newStory(t)
	s.kernel.FailMute(errors.New("no memory"))
	if r := s.mute(time.Second); r.GetError() == "" || r.GetMute() != nil {
		t.Errorf("answer %v", r)
	}
	if r := s.send(muteOrder(s.fenced(nil), "nonsense", time.Second)); r.GetError() == "" {
		t.Errorf("answer %v", r)
	}
}

func TestAMuteEndsWithTheAgentAndAtTheNextStart(t *testing.T) {
	s := newStory(t)
	s.mutes(s.mute(time.Second))
	if !s.steps.Shutdown(t.Context()) || s.kernel.Muted(vip) {
		t.Error("mute after the shutdown")
	}
	s.mutes(s.mute(time.Second))
	s.start() // killed, and started again
	if s.kernel.Muted(vip) {
		t.Error("mute after a start")
	}
	if want := []netip.Addr{vip, vip}; !slices.Equal(s.kernel.Mutes(), want) {
		t.Errorf("mutes %v, want %v", s.kernel.Mutes(), want)
	}
}
