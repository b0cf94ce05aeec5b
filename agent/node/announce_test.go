// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func (s *story) mayAnnounce(ip string, changes ...change) vipmovev1.Refusal_Code {
	s.t.Helper()
	r, err := s.steps.MayAnnounce(s.t.Context(), &vipmovev1.Announce{Fence: s.fenced(changes), Vip: ip, Interface: "eth0", Mac: "02:00:00:00:00:0b"})
	if err != nil {
		s.t.Fatal(err)
	}
	if r != nil && (r.GetMessage() == "" || r.GetNextStep() == "") {
		s.t.Errorf("refusal %v does not say why and what next", r)
	}
	return r.GetCode()
}

func cleaned(t *testing.T) *story {
	s := removedOnce(t)
	s.expect(s.confirm(), confirmed)
	return s
}

func TestTheSurvivorOfAPreparedRunMayAnnounce(t *testing.T) {
	s := cleaned(t)
	if code := s.mayAnnounce(vip.String()); code != vipmovev1.Refusal_NONE {
		t.Errorf("refused: %s", code)
	}
}

func TestAnAnnouncementIsRefused(t *testing.T) { // I5, I7
	for name, c := range map[string]struct {
		given func(s *story)
		ip    string
		fence change
		want  vipmovev1.Refusal_Code
	}{
		"of a run that was not prepared here": {fence: func(f *vipmovev1.Fence) { f.RunId = "run2" }, want: vipmovev1.Refusal_NOT_PREPARED},
		"of another plan":                     {fence: func(f *vipmovev1.Fence) { f.PlanHash = "other" }, want: vipmovev1.Refusal_NOT_PREPARED},
		"of another address":                  {ip: "192.0.2.51", want: vipmovev1.Refusal_NOT_PREPARED},
		"while a step is open":                {given: func(s *story) { s.expect(s.restore(true), restored); s.reopen() }, want: vipmovev1.Refusal_UNDO_PENDING},
		"on a paused node":                    {given: func(s *story) { s.store.paused = errPaused }, want: vipmovev1.Refusal_PAUSED_ON_NODE},
		"by an agent that only looks":         {given: func(s *story) { s.policy.Act = false; s.start() }, want: vipmovev1.Refusal_OBSERVE_ONLY},
		"outside the allowed prefixes": {given: func(s *story) {
			s.policy.Prefixes = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
			s.start()
		}, want: vipmovev1.Refusal_PREFIX_NOT_ALLOWED},
		"late":             {fence: func(f *vipmovev1.Fence) { f.DeadlineBoottime = durationpb.New(morning - 1) }, want: vipmovev1.Refusal_LATE},
		"of a lower term":  {given: func(s *story) { s.term = 0 }, want: vipmovev1.Refusal_STALE_TERM},
		"for another boot": {fence: func(f *vipmovev1.Fence) { f.BootId = "other" }, want: vipmovev1.Refusal_WRONG_BOOT},
	} {
		t.Run(name, func(t *testing.T) {
			s := cleaned(t)
			if c.given != nil {
				c.given(s)
			}
			if c.ip == "" {
				c.ip = vip.String()
			}
			if c.fence == nil {
				c.fence = func(*vipmovev1.Fence) {}
			}
			if got := s.mayAnnounce(c.ip, c.fence); got != c.want {
				t.Errorf("refusal %s, want %s", got, c.want)
			}
			if s.refused[c.want] == 0 {
				t.Error("the refusal was not counted")
			}
		})
	}
}

// reopen has another run's removal open on this node.
func (s *story) reopen() {
	s.t.Helper()
	next := func(f *vipmovev1.Fence) { f.RunId = "run2" }
	s.expect(s.prepare(next), prepared)
	s.expect(s.remove("run2/n1/1", next), removed)
}

func TestAnAnnouncementEndsAMute(t *testing.T) {
	s := cleaned(t)
	s.mutes(s.mute(time.Second))
	if code := s.mayAnnounce(vip.String()); code != vipmovev1.Refusal_NONE || s.kernel.Muted(vip) {
		t.Errorf("refusal %s, mute %v", code, s.kernel.Muted(vip))
	}
}
