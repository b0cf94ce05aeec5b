// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"maps"
	"slices"
	"time"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// How many records are kept. An open step is never dropped, nor one that the
// change budget still counts: MaxMaxChanges is below keptSteps.
const (
	keptSteps    = 256
	keptPrepared = 32
	// MaxMaxChanges is the highest Policy.MaxChanges.
	MaxMaxChanges = 100
)

// ledger is the agent's records in memory, and what follows from them. It is
// pure: no clock, no I/O. Whoever changes it saves first.
type ledger struct {
	term     Term
	prepared map[string]Prepared // by run id
	steps    map[string]Step     // by command id
	sequence uint64              // the last one given out
}

func newLedger(r Records) ledger {
	l := ledger{term: r.Term, prepared: map[string]Prepared{}, steps: map[string]Step{}}
	for _, p := range r.Prepared {
		l.prepared[p.RunID] = p
		l.sequence = max(l.sequence, p.Sequence)
	}
	for _, s := range r.Steps {
		l.steps[s.CommandID] = s
		l.sequence = max(l.sequence, s.Sequence)
	}
	return l
}

func (l *ledger) next() uint64 {
	l.sequence++
	return l.sequence
}

// pending is the open step, of which there is at most one; nil when none is.
// Were there two, after a crash in a state directory that was tampered with,
// the one that is due first comes first.
func (l *ledger) pending() *Step {
	var first *Step
	for _, s := range l.steps {
		if s.open() && (first == nil || s.Deadline < first.Deadline) {
			first = &s
		}
	}
	return first
}

// takenBy is the command other than id that took this step's address off
// already: one step does so once, however many commands say it (I8).
func (l *ledger) takenBy(id string, f *vipmovev1.Fence) (Step, bool) {
	for _, s := range l.steps {
		if s.CommandID != id && s.RunID == f.GetRunId() && s.Step == f.GetStep() && (s.took() || s.open()) {
			return s, true
		}
	}
	return Step{}, false
}

// changes counts the addresses taken off in this boot since a moment.
func (l *ledger) changes(bootID string, since time.Duration) int {
	n := 0
	for _, s := range l.steps {
		if s.BootID == bootID && s.took() && s.Removed >= since {
			n++
		}
	}
	return n
}

// surplus names the records that are too many: the oldest that are closed and
// that no budget counts any more.
func (l *ledger) surplus(bootID string, since time.Duration) (commands, runs []string) {
	closed := slices.SortedFunc(maps.Values(l.steps), func(a, b Step) int { return cmp.Compare(a.Sequence, b.Sequence) })
	closed = slices.DeleteFunc(closed, func(s Step) bool {
		return s.open() || s.BootID == bootID && s.took() && s.Removed >= since
	})
	for _, s := range closed[:clamp(len(l.steps)-keptSteps, len(closed))] {
		commands = append(commands, s.CommandID)
	}
	old := slices.SortedFunc(maps.Values(l.prepared), func(a, b Prepared) int { return cmp.Compare(a.Sequence, b.Sequence) })
	old = slices.DeleteFunc(old, func(p Prepared) bool { return l.pending() != nil && l.pending().RunID == p.RunID })
	for _, p := range old[:clamp(len(l.prepared)-keptPrepared, len(old))] {
		runs = append(runs, p.RunID)
	}
	return commands, runs
}

func clamp(n, most int) int { return max(0, min(n, most)) }
