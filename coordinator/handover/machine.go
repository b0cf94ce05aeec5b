// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"slices"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

// New is the empty run that a Created event fills.
func New() Run { return Run{} }

// Apply is the one door: it moves the run by one event and says what to do next. It returns an error,
// and the run as it was, for a move that is impossible; the caller then applies a Broken event.
// Events that came too late to matter (of a step that is closed, of an attempt that is over) change nothing.
func (r Run) Apply(e Event) (Run, []Effect, error) {
	next := r
	next.Steps = slices.Clone(r.Steps)
	effects, err := next.apply(e)
	if err == nil {
		err = checkMove(r, next)
	}
	if err != nil {
		return r, nil, fmt.Errorf("applying %s of node %q to run %s: %w", e.Kind, e.Node, r.ID, err)
	}
	next.Revision = r.Revision + 1
	if next.Ended() && !r.Ended() {
		next.EndedAt = e.At
	}
	return next, effects, nil
}

func (r *Run) apply(e Event) ([]Effect, error) {
	switch e.Kind {
	case Created:
		return nil, r.create(e)
	case Started:
		return r.start(e)
	case AbortAsked:
		return r.abort(e)
	case RollbackAsk:
		return r.rollback(e)
	case Resumed:
		return r.resume(e)
	case Broken:
		return r.stop(InvariantBroken, e.Detail), nil
	case Observed:
		return r.observed(e)
	case FinalLooked:
		return r.final(e)
	case Announced:
		return r.announced(e)
	}
	s := r.find(e.Node)
	if s == nil {
		return nil, fmt.Errorf("no step for that node")
	}
	switch e.Kind {
	case Baselined:
		return r.baselined(s, e)
	case Answered:
		return r.answered(s, e)
	case Lost:
		return r.lost(s, e), nil
	case Unreachable:
		return r.unreachable(s, e), nil
	case VerifiedEv:
		return r.verified(s, e)
	case Dwelled:
		return r.dwelled(s, e)
	}
	return nil, fmt.Errorf("unknown event")
}

func (r *Run) create(e Event) error {
	if r.State != "" {
		return fmt.Errorf("the run exists")
	}
	if e.Plan == nil || e.RunID == "" {
		return fmt.Errorf("a created event without plan or id")
	}
	r.ID, r.Plan, r.State, r.StartedBy, r.StartedAt, r.Term = e.RunID, *e.Plan, Planned, e.By, e.At, e.Term
	for _, p := range e.Plan.Steps {
		r.Steps = append(r.Steps, Step{PlannedStep: p, State: Pending})
	}
	return nil
}

func (r *Run) start(e Event) ([]Effect, error) {
	if r.State != Planned {
		return nil, fmt.Errorf("starting a run that is %s", r.State)
	}
	r.State = Running
	return r.prepareAll(), nil
}

func (r *Run) prepareAll() []Effect {
	var out []Effect
	for _, s := range r.Steps {
		if !s.Prepared {
			out = append(out, Effect{Kind: DoPrepare, Node: s.Node})
		}
	}
	return out
}

func (r *Run) allPrepared() bool {
	for _, s := range r.Steps {
		if !s.Prepared {
			return false
		}
	}
	return true
}

// observed chooses the next steps with fresh carriers, or asks for the final look.
func (r *Run) observed(e Event) ([]Effect, error) {
	if r.State != Running || len(r.Open()) > 0 {
		return nil, nil
	}
	for i := range r.Steps {
		if s := &r.Steps[i]; s.State == Pending {
			s.Role = roleOf(s.Node, r.Plan.Canary, r.Plan.Survivor, e.Carriers)
		}
	}
	var out []Effect
	for _, node := range r.nextNodes() {
		out = append(out, Effect{Kind: DoBaseline, Node: node})
	}
	if len(out) == 0 {
		out = append(out, Effect{Kind: DoFinal})
	}
	return out, nil
}

// nextNodes: the canary alone, then idle nodes in waves, then carriers one by one, the survivor alone and last.
func (r *Run) nextNodes() []string {
	var pending []PlannedStep
	for _, s := range r.Steps {
		if s.State == Pending {
			pending = append(pending, s.PlannedStep)
		}
	}
	slices.SortStableFunc(pending, func(a, b PlannedStep) int {
		if before(a, b) {
			return -1
		}
		return 1
	})
	var out []string
	for _, p := range pending {
		if len(out) > 0 && (p.Role != RoleIdle || len(out) >= r.Plan.Options.MaxParallel) {
			break
		}
		out = append(out, p.Node)
		if p.Role != RoleIdle {
			break
		}
	}
	return out
}

func (r *Run) baselined(s *Step, e Event) ([]Effect, error) {
	if r.State != Running || s.State != Pending {
		return nil, nil
	}
	if !e.OK {
		s.Detail = e.Detail
		if e.Code == SurvivorMoved && len(r.Open()) == 0 {
			r.State, r.Code, r.Reason = Paused, e.Code, e.Detail
			return nil, nil
		}
		return r.stop(e.Code, e.Detail), nil
	}
	s.Attempt++
	s.State, s.CommandID = Recorded, fmt.Sprintf("%s/%s/%d", r.ID, s.Node, s.Attempt)
	return []Effect{{Kind: DoRemove, Node: s.Node, CommandID: s.CommandID}}, nil
}

func (r *Run) verified(s *Step, e Event) ([]Effect, error) {
	if r.State != Running || s.State != Applied || e.CommandID != s.CommandID {
		return nil, nil
	}
	if !e.OK {
		s.Detail = e.Detail
		return r.stop(e.Code, e.Detail), nil
	}
	s.State, s.VerifiedAt = Verified, e.At
	dwell := r.Plan.Options.Dwell
	if s.Node == r.Plan.Canary {
		dwell = r.Plan.Options.CanarySoak
	}
	return []Effect{{Kind: DoDwell, Node: s.Node, CommandID: s.CommandID, Dwell: dwell}}, nil
}

func (r *Run) dwelled(s *Step, e Event) ([]Effect, error) {
	if r.State != Running || s.State != Verified || e.CommandID != s.CommandID {
		return nil, nil
	}
	if !e.OK {
		s.Detail = e.Detail
		return r.stop(e.Code, e.Detail), nil
	}
	if s.NoUndo {
		return r.confirmed(s, e), nil
	}
	return []Effect{{Kind: DoConfirm, Node: s.Node, CommandID: s.CommandID}}, nil
}

func (r *Run) confirmed(s *Step, e Event) []Effect {
	s.State, s.ConfirmedAt = Confirmed, e.At
	return r.proceed()
}

// proceed goes on when no step is open: observe and choose, or, when stopping, end.
func (r *Run) proceed() []Effect {
	switch {
	case len(r.Open()) > 0:
		return nil
	case r.State == Aborting:
		return r.closeDown()
	case r.State == Running && r.allPrepared():
		return []Effect{{Kind: DoObserve}}
	}
	return nil
}

func (r *Run) final(e Event) ([]Effect, error) {
	if r.State != Running {
		return nil, nil
	}
	r.Verdict = e.Verdict
	if !e.OK {
		r.State, r.Code, r.Reason = NeedsDecision, e.Code, e.Detail
		return nil, nil
	}
	if r.Announces() {
		r.Reason = e.Detail // the run is as good as done; what caches do comes after the announcement
		return []Effect{{Kind: DoAnnounce, Node: r.Plan.Survivor}}, nil
	}
	r.State, r.Code, r.Reason = Done, e.Code, e.Detail
	return nil, nil
}

// Announces reports whether the run ends with the survivor's announcement. An agent announces only the address that
// was prepared for it, so a survivor without a step of its own cannot.
func (r Run) Announces() bool {
	_, planned := r.Step(r.Plan.Survivor)
	return r.Plan.Options.Announce && planned
}

// announced ends the run: an announcement that failed undoes nothing, it is said.
func (r *Run) announced(e Event) ([]Effect, error) {
	if r.State != Running {
		return nil, nil
	}
	if r.Verdict == "" || !r.Announces() {
		return nil, fmt.Errorf("an announcement before the verdict")
	}
	r.State, r.Code, r.Reason = Done, e.Code, r.Reason+"; "+e.Detail
	return nil, nil
}

func (r *Run) find(node string) *Step {
	for i := range r.Steps {
		if r.Steps[i].Node == node {
			return &r.Steps[i]
		}
	}
	return nil
}

// stop undoes what is open and ends the run with the first reason given.
func (r *Run) stop(code diagnose.Code, detail string) []Effect {
	if r.Code == "" {
		r.Code, r.Reason = code, detail
	}
	r.State = Aborting
	return r.closeDown()
}

// closeDown restores every open step; with none open it puts confirmed ones back on rollback, newest
// first and one at a time, and then names the end (I10).
func (r *Run) closeDown() []Effect {
	var out []Effect
	for _, s := range r.Steps {
		if s.open() {
			out = append(out, Effect{Kind: DoRestore, Node: s.Node, CommandID: s.CommandID})
		}
	}
	if len(out) > 0 {
		return out
	}
	if last := r.lastConfirmed(); r.Rollback && last != nil {
		return []Effect{{Kind: DoRestore, Node: last.Node, CommandID: last.CommandID, Rollback: true}}
	}
	r.State = RolledBack
	for _, s := range r.Steps {
		if s.State == Unknown {
			r.State = NeedsDecision
		}
	}
	if personNeeded[r.Code] && (r.Changed || r.Code == InvariantBroken) {
		r.State = NeedsDecision
	}
	return nil
}

func (r *Run) lastConfirmed() *Step {
	var last *Step
	for i := range r.Steps {
		if s := &r.Steps[i]; s.State == Confirmed && !s.NoUndo && (last == nil || s.ConfirmedAt.After(last.ConfirmedAt)) {
			last = s
		}
	}
	return last
}
