// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strings"
	"time"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// Tally is what a witness's requests came to since this process first heard of it. It outlives sessions
// and the witness's own restarts: Sent, Failed and Reports never fall.
type Tally struct {
	Witness      string
	Connected    bool
	Reports      uint64 // reports that brought something new
	Sent, Failed uint64
	OpenGap      time.Duration // by its newest report
	LongestGap   time.Duration // the same, since the witness started
	ReportedAt   time.Time     // when the newest report that brought something new came in, by Config.Now
}

// tally adds up one witness's reports. Guarded by Fleet.mu.
type tally struct {
	last         *vipmovev1.Requests
	reports      uint64
	sent, failed uint64
	at           time.Time
}

// take adds what a report brings. The first one is the base: what came before it is of no run that this
// process knows. Counters that fell are those of a witness that restarted and counts from zero.
func (t *tally) take(q *vipmovev1.Requests, now time.Time) {
	was := t.last
	if was == nil {
		was = q
	}
	restarted := q.GetSent() < was.GetSent() || q.GetSucceeded() < was.GetSucceeded() || q.GetFailed() < was.GetFailed()
	if restarted {
		was = &vipmovev1.Requests{}
	}
	if t.last != nil && !restarted && !q.GetAt().AsTime().After(was.GetAt().AsTime()) {
		return // not newer than what came before
	}
	t.sent += q.GetSent() - was.GetSent()
	t.failed += q.GetFailed() - was.GetFailed()
	t.last, t.at = q, now
	t.reports++
}

// Tallies lists every witness that this process ever heard of, by name, connected or not.
func (f *Fleet) Tallies() []Tally {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Tally
	for name, m := range f.members {
		if t := m.tally; t.last != nil {
			out = append(out, Tally{Witness: name, Connected: m.session != nil, Reports: t.reports, Sent: t.sent, Failed: t.failed,
				OpenGap: t.last.GetOpenGap().AsDuration(), LongestGap: t.last.GetLongestGap().AsDuration(), ReportedAt: t.at})
		}
	}
	slices.SortFunc(out, func(a, b Tally) int { return strings.Compare(a.Witness, b.Witness) })
	return out
}
