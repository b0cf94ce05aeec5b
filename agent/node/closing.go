// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// belongs refuses an order that names a command of another run or step.
func belongs(step Step, f *vipmovev1.Fence) *vipmovev1.Refusal {
	if step.RunID == f.GetRunId() && step.PlanHash == f.GetPlanHash() && step.Step == f.GetStep() {
		return nil
	}
	return refuse(vipmovev1.Refusal_NOT_PREPARED, "name the run, plan and step that the command belongs to",
		"command %s belongs to step %s of run %s, not to step %s of run %s",
		step.CommandID, step.Step, step.RunID, f.GetStep(), f.GetRunId())
}

// find is how extend and confirm begin. A nil step means that answer and
// refusal say it all.
func (s *Steps) find(ctx context.Context, f *vipmovev1.Fence, id string) (*Step, *vipmovev1.StepAnswer, *vipmovev1.Refusal) {
	if r := s.obey(f); r != nil {
		return nil, nil, r
	}
	step, ok := s.ledger.steps[id]
	if !ok {
		return nil, notSeen(), nil
	}
	if r := belongs(step, f); r != nil {
		return nil, nil, r
	}
	step = s.settle(ctx, step, StillPresent)
	if !step.open() { // said before, or too late: the record answers
		answer, refusal := s.recall(ctx, step)
		return nil, answer, refusal
	}
	if s.blocked[id] != "" || step.Phase == Intended || s.unsaved[id] != nil {
		return nil, s.say(step), nil
	}
	now := s.cfg.Kernel.BootTime()
	if now >= step.Deadline { // its time ran out in this very order
		return nil, s.say(s.putBack(ctx, step, reasonExpired)), nil
	}
	if r := checkDeadline(now, f); r != nil {
		return nil, nil, r
	}
	return &step, nil, nil
}

func notSeen() *vipmovev1.StepAnswer {
	return &vipmovev1.StepAnswer{
		State:  vipmovev1.StepAnswer_STATE_NOT_SEEN,
		Detail: "no such command was carried out here",
	}
}

// extend prolongs the undo, from now on; it never shortens.
func (s *Steps) extend(ctx context.Context, o *vipmovev1.Extend) (*vipmovev1.StepAnswer, *vipmovev1.Refusal) {
	step, answer, refusal := s.find(ctx, o.GetFence(), o.GetRemoveCommandId())
	if step == nil {
		return answer, refusal
	}
	next := *step
	next.Deadline = max(next.Deadline, s.cfg.Kernel.BootTime()+timeToLive(o.GetTtl().AsDuration()))
	if err := s.commit(next); err != nil {
		return nil, s.notDurable(err)
	}
	return s.look(ctx, next), nil
}

// confirm retires the undo: on disk first, and only then said.
func (s *Steps) confirm(ctx context.Context, o *vipmovev1.Confirm) (*vipmovev1.StepAnswer, *vipmovev1.Refusal) {
	step, answer, refusal := s.find(ctx, o.GetFence(), o.GetRemoveCommandId())
	if step == nil {
		return answer, refusal
	}
	next := *step
	next.Phase, next.Ended = Confirmed, s.cfg.Kernel.BootTime()
	if err := s.commit(next); err != nil {
		return nil, s.notDurable(err)
	}
	s.cfg.Log.Info("confirmed a removal", "command", next.CommandID, "address", next.Entry.Prefix.String(), "link", next.Entry.Link)
	return s.look(ctx, next), nil
}

// restore puts back what a step took off; of one that took nothing off it
// makes sure that it never will.
func (s *Steps) restore(ctx context.Context, o *vipmovev1.Restore) (*vipmovev1.StepAnswer, *vipmovev1.Refusal) {
	f, id := o.GetFence(), o.GetRemoveCommandId()
	if r := s.obey(f); r != nil {
		return nil, r
	}
	step, ok := s.ledger.steps[id]
	if !ok {
		return s.cancel(ctx, id, o)
	}
	if r := belongs(step, f); r != nil {
		return nil, r
	}
	switch {
	case step.open():
		if r := checkDeadline(s.cfg.Kernel.BootTime(), f); r != nil {
			return nil, r
		}
		return s.say(s.putBack(ctx, step, reasonOrdered)), nil
	case step.Phase == Confirmed && o.GetRollback():
		return s.rollback(ctx, step, f)
	case step.Phase == Refused:
		step.Phase, step.Ended = Cancelled, s.cfg.Kernel.BootTime()
		_ = s.note(step)
	}
	return s.look(ctx, step), nil
}

// cancel answers a Restore of a command that was never seen. With rollback and
// an entry prepared for that very run, the record was lost and the address
// with it: the entry is put back.
func (s *Steps) cancel(ctx context.Context, id string, o *vipmovev1.Restore) (*vipmovev1.StepAnswer, *vipmovev1.Refusal) {
	f := o.GetFence()
	if r := checkDeadline(s.cfg.Kernel.BootTime(), f); r != nil {
		return nil, r
	}
	step := Step{
		CommandID: id, RunID: f.GetRunId(), PlanHash: f.GetPlanHash(), Step: f.GetStep(), BootID: s.bootID,
		Phase: Cancelled, Ended: s.cfg.Kernel.BootTime(), Detail: "restored before it had removed anything",
		Sequence: s.ledger.next(),
	}
	p, found := s.ledger.prepared[f.GetRunId()]
	if checkPrepared(p, found, f) == nil {
		step.Entry = p.Entry
		if o.GetRollback() {
			step.Phase, step.Detail = Confirmed, "no record of the removal is left"
			return s.rollback(ctx, step, f)
		}
	}
	_ = s.note(step)
	s.cfg.Log.Info("cancelled a step before it removed anything", "command", id, "run", step.RunID, "step", step.Step)
	s.prune()
	return s.say(step), nil
}

// rollback puts a confirmed removal back. The step is open again meanwhile, so
// that a crash or a kernel that refuses does not end it.
func (s *Steps) rollback(ctx context.Context, step Step, f *vipmovev1.Fence) (*vipmovev1.StepAnswer, *vipmovev1.Refusal) {
	facts := s.facts()
	facts.Pending, facts.Changes = nil, -1 // putting back spends no budget and waits for nobody
	if r := checkNode(s.cfg.Policy, facts); r != nil {
		return nil, r
	}
	if step.BootID != s.bootID {
		return nil, refuse(vipmovev1.Refusal_WRONG_BOOT, "leave it: the kernel that held the address is gone",
			"the address was removed in boot %s, this is boot %s", step.BootID, s.bootID)
	}
	now := s.cfg.Kernel.BootTime()
	if r := checkDeadline(now, f); r != nil {
		return nil, r
	}
	step.Phase, step.Deadline, step.Detail = Removed, now, fmt.Sprintf("rolling back %s", step.Entry)
	if err := s.commit(step); err != nil {
		return nil, s.notDurable(err)
	}
	return s.say(s.putBack(ctx, step, reasonOrdered)), nil
}

// inquire says what came of a step and changes nothing on the node. It is
// answered whatever the boot and however late: it is how a coordinator finds
// out what it missed.
func (s *Steps) inquire(ctx context.Context, o *vipmovev1.Inquire) (*vipmovev1.StepAnswer, *vipmovev1.Refusal) {
	f := o.GetFence()
	if r := checkSender(s.ledger.term, s.cfg.Node, f); r != nil {
		return nil, r
	}
	step, ok := s.ledger.steps[o.GetRemoveCommandId()]
	if !ok {
		if s.damaged != "" {
			return &vipmovev1.StepAnswer{State: vipmovev1.StepAnswer_STATE_UNKNOWN, Detail: s.damaged}, nil
		}
		return notSeen(), nil
	}
	if r := belongs(step, f); r != nil {
		return nil, r
	}
	return s.recall(ctx, s.settle(ctx, step, StillPresent))
}
