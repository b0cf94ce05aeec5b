// SPDX-License-Identifier: Apache-2.0

//go:build linux

package story

import (
	"fmt"
	"testing"
)

// A kernel that is kept silent says nothing, the announcer on its node goes on, and all is as before afterwards.
func TestMutedKernelsLeaveTheAnnouncerAlone(t *testing.T) {
	t.Parallel()
	s := newStage(t, options{})
	before := s.answering()
	var j struct {
		Verdict    string
		Owner      string
		Responders []struct{ Node, Muted, MutedReason string }
	}
	s.ask(&j, "owners", "192.0.2.50", "--mute")
	got := ""
	for _, r := range j.Responders {
		want := "silent"
		if r.Node == s.Announcer() {
			want = "answers"
		}
		if r.Muted != want {
			t.Errorf("%s with its kernel mute: %s (%s), want %s", r.Node, r.Muted, r.MutedReason, want)
		}
		got += r.Node + " "
	}
	if j.Verdict != "contested" || j.Owner != s.Announcer() || len(j.Responders) != len(before) {
		t.Errorf("verdict %s, owner %q, responders %s", j.Verdict, j.Owner, got)
	}
	if after := s.answering(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("answering after: %v, before: %v", after, before)
	}
}
