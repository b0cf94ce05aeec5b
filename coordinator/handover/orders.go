// SPDX-License-Identifier: Apache-2.0

package handover

import "fmt"

// abort is always possible and has one meaning per state: what is open is put back, what is confirmed stays.
func (r *Run) abort(e Event) ([]Effect, error) {
	switch r.State {
	case Done, RolledBack, NeedsDecision:
		return nil, fmt.Errorf("aborting a run that has ended (%s); to put confirmed nodes back use rollback", r.State)
	case Aborting:
		return nil, nil
	}
	return r.stop(AbortedByOperator, "aborted by "+orElse(e.By, "the operator")), nil
}

// rollback puts confirmed nodes back too, newest first.
func (r *Run) rollback(e Event) ([]Effect, error) {
	if r.Rollback && r.State == Aborting {
		return nil, nil
	}
	wasAborting := r.State == Aborting
	r.Rollback = true
	r.Code, r.Reason = RolledBackByOrder, "rolled back by "+orElse(e.By, "the operator")
	r.State = Aborting
	if wasAborting && len(r.Open()) > 0 {
		return nil, nil // the restores are on their way; confirmed ones follow
	}
	return r.closeDown(), nil
}

// resume takes a run over with a higher term: nothing is assumed of what the last leader had sent (I7).
func (r *Run) resume(e Event) ([]Effect, error) {
	if e.Term <= r.Term {
		return nil, fmt.Errorf("resuming with term %d, the run is at %d", e.Term, r.Term)
	}
	r.Term = e.Term
	switch r.State {
	case Planned:
		return r.stop(NotStarted, "the coordinator restarted before the run began"), nil
	case Aborting:
		return r.closeDown(), nil
	case Running:
	default:
		return nil, nil
	}
	if !r.allPrepared() {
		return r.prepareAll(), nil
	}
	var out []Effect
	for _, s := range r.Steps {
		if s.open() {
			out = append(out, Effect{Kind: DoInquire, Node: s.Node, CommandID: s.CommandID})
		}
	}
	if len(out) == 0 {
		return r.proceed(), nil
	}
	return out, nil
}
