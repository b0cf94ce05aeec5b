// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vipmove/vipmove/coordinator/fleet"
)

func TestWhatRequestsDidSinceAMark(t *testing.T) {
	now := began
	fresh := func(name string, reports, sent, failed uint64) fleet.Tally {
		return fleet.Tally{Witness: name, Connected: true, Reports: reports, Sent: sent, Failed: failed, ReportedAt: now}
	}
	away := fresh("a", 9, 90, 5)
	away.Connected = false
	stale := fresh("a", 9, 90, 5)
	stale.ReportedAt = now.Add(-staleReport - 1)
	gap := fresh("a", 9, 90, 5)
	gap.OpenGap, gap.LongestGap = 3*time.Second, 2*time.Second
	tests := []struct {
		name  string
		marks []fleet.Tally
		now   []fleet.Tally
		want  delta
	}{
		{"no witness", nil, nil, delta{}},
		{"no witness any more", []fleet.Tally{fresh("a", 5, 50, 5)}, nil, delta{}},
		{"it sent and reported", []fleet.Tally{fresh("a", 5, 50, 5)}, []fleet.Tally{fresh("a", 9, 90, 6)}, delta{sent: 40, failed: 1, measured: true}},
		{"no report since", []fleet.Tally{fresh("a", 9, 90, 5)}, []fleet.Tally{fresh("a", 9, 90, 5)}, delta{}},
		{"it reports and sends nothing", []fleet.Tally{fresh("a", 8, 90, 5)}, []fleet.Tally{fresh("a", 9, 90, 5)}, delta{}},
		{"its newest report is old", []fleet.Tally{fresh("a", 5, 50, 5)}, []fleet.Tally{stale}, delta{sent: 40}},
		{"it left, and what it had counted stands", []fleet.Tally{fresh("a", 5, 50, 4)}, []fleet.Tally{away}, delta{sent: 40, failed: 1}},
		{"one came since", nil, []fleet.Tally{fresh("a", 3, 20, 1)}, delta{sent: 20, failed: 1, measured: true}},
		{"two", []fleet.Tally{fresh("a", 5, 50, 5), fresh("b", 1, 10, 0)}, []fleet.Tally{away, fresh("b", 2, 30, 2)}, delta{sent: 60, failed: 2, measured: true}},
		{"a gap that is open", []fleet.Tally{fresh("a", 5, 50, 5)}, []fleet.Tally{gap}, delta{sent: 40, measured: true, openGap: 3 * time.Second, longestGap: 3 * time.Second}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := marksOf(tt.marks).since(tt.now, now)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(delta{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestStretchesOfTimeAddUp(t *testing.T) {
	first := delta{sent: 10, failed: 1, openGap: time.Second, longestGap: 4 * time.Second, measured: true}
	later := delta{sent: 5, failed: 2, openGap: 2 * time.Second, longestGap: 3 * time.Second}
	want := delta{sent: 15, failed: 3, openGap: 2 * time.Second, longestGap: 4 * time.Second}
	if diff := cmp.Diff(want, first.plus(later), cmp.AllowUnexported(delta{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
