// SPDX-License-Identifier: Apache-2.0

package handover

import "fmt"

// moves are the only ways a step changes state.
var moves = map[StepState][]StepState{
	Pending:   {Recorded},
	Recorded:  {Applied, Pending, Restored, Refused, Confirmed, Unknown},
	Applied:   {Verified, Restored, Confirmed, Unknown},
	Verified:  {Confirmed, Applied, Restored, Unknown},
	Confirmed: {Restored, Unknown}, // rollback only
}

// runMoves are the only ways a run changes state; stops may pass through aborting in one event.
var runMoves = map[RunState][]RunState{
	"":            {Planned},
	Planned:       {Running, Aborting, RolledBack, NeedsDecision},
	Running:       {Paused, Aborting, Done, RolledBack, NeedsDecision},
	Paused:        {Aborting, RolledBack, NeedsDecision},
	Aborting:      {RolledBack, NeedsDecision},
	Done:          {Aborting, RolledBack, NeedsDecision}, // rollback
	RolledBack:    {Aborting, NeedsDecision},
	NeedsDecision: {Aborting, RolledBack},
}

// checkMove holds the invariants on every move, apart from the code that chooses it (I2, I3, I4).
func checkMove(was, is Run) error {
	if was.State != is.State && !contains(runMoves[was.State], is.State) {
		return fmt.Errorf("run cannot go from %q to %q", was.State, is.State)
	}
	for i, s := range is.Steps {
		if i >= len(was.Steps) || was.Steps[i].State == s.State {
			continue
		}
		from := was.Steps[i].State
		if !contains(moves[from], s.State) {
			return fmt.Errorf("node %s cannot go from %s to %s", s.Node, from, s.State)
		}
		if from == Confirmed && !is.Rollback {
			return fmt.Errorf("node %s is confirmed and no rollback was ordered", s.Node)
		}
		if s.State == Recorded {
			if err := mayBegin(was, s); err != nil {
				return err
			}
		}
	}
	if n := len(is.Open()); n > max(1, is.Plan.Options.MaxParallel) {
		return fmt.Errorf("I2: %d nodes in change, at most %d allowed", n, is.Plan.Options.MaxParallel)
	}
	return nil
}

// mayBegin holds I3 (survivor last) and I4 (canary first, confirmed before any other).
func mayBegin(r Run, s Step) error {
	for _, o := range r.Steps {
		if o.Node == s.Node {
			continue
		}
		if s.Node == r.Plan.Survivor && o.State != Confirmed {
			return fmt.Errorf("I3: survivor %s before %s, which is %s", s.Node, o.Node, o.State)
		}
		if o.Node == r.Plan.Canary && s.Node != r.Plan.Canary && o.State != Confirmed {
			return fmt.Errorf("I4: node %s before canary %s, which is %s", s.Node, o.Node, o.State)
		}
	}
	if r.State != Running || !r.allPrepared() {
		return fmt.Errorf("node %s begins while the run is %s", s.Node, r.State)
	}
	return nil
}
