// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"time"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/agent/report"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// prepare stores this node's entry of a plan, after the whole guard: a run
// that would be refused here should not begin elsewhere. Saying the same again
// is answered alike. An entry that is not there any more can be prepared: its
// removal will say already absent.
func (s *Steps) prepare(ctx context.Context, o *vipmovev1.Prepare) (*vipmovev1.StepAnswer, *vipmovev1.Refusal, error) {
	f := o.GetFence()
	entry, err := report.TupleFromProto(o.GetEntry())
	if err != nil {
		return nil, nil, err
	}
	if f.GetRunId() == "" || f.GetPlanHash() == "" || f.GetStep() == "" {
		return nil, nil, errors.New("reading the order: run, plan hash and step must all be named")
	}
	p := Prepared{
		RunID: f.GetRunId(), PlanHash: f.GetPlanHash(), Step: f.GetStep(), VIP: o.GetVip(),
		Entry: entry, Overrides: o.GetOverrides(),
	}
	if r := s.obey(f); r != nil {
		return nil, r, nil
	}
	if r := checkDeadline(s.cfg.Kernel.BootTime(), f); r != nil {
		return nil, r, nil
	}
	old, there := s.ledger.prepared[p.RunID]
	p.Sequence = old.Sequence
	switch {
	case there && reflect.DeepEqual(old, p):
		return &vipmovev1.StepAnswer{State: vipmovev1.StepAnswer_STATE_PREPARED, Detail: "as before"}, nil, nil
	case there:
		return nil, refuse(vipmovev1.Refusal_ENTRY_CHANGED, "make a new plan, with a new run",
			"run %s has the entry %s here already", p.RunID, old.Entry), nil
	}
	return s.storeEntry(ctx, p)
}

func (s *Steps) storeEntry(ctx context.Context, p Prepared) (*vipmovev1.StepAnswer, *vipmovev1.Refusal, error) {
	state, refusal := s.guard(ctx, p)
	if refusal != nil {
		return nil, refusal, nil
	}
	p.Sequence = s.ledger.next()
	if err := s.cfg.Store.SavePrepared(p); err != nil {
		return nil, s.notDurable(err), nil
	}
	s.ledger.prepared[p.RunID] = p
	s.prune()
	s.cfg.Log.Info("prepared a step", "run", p.RunID, "step", p.Step, "address", p.Entry.Prefix.String(), "link", p.Entry.Link)
	a := &vipmovev1.StepAnswer{State: vipmovev1.StepAnswer_STATE_PREPARED}
	if absent(p.Entry, state) {
		a.Detail = fmt.Sprintf("%s is not there now", p.Entry)
	}
	return a, nil, nil
}

// guard is everything that is asked before a change, in the order of DESIGN
// section 7: the node, then the kernel.
func (s *Steps) guard(ctx context.Context, p Prepared) (host.State, *vipmovev1.Refusal) {
	if r := checkNode(s.cfg.Policy, s.facts()); r != nil {
		return host.State{}, r
	}
	state, err := s.cfg.Kernel.State(ctx, []netip.Addr{p.Entry.Prefix.Addr()})
	if err != nil {
		return state, refuse(vipmovev1.Refusal_DUMP_INCOMPLETE, "ask again", "reading the kernel: %v", err)
	}
	return state, checkEntry(s.cfg.Policy, state, p)
}

// remove takes the prepared entry off, once (I8).
func (s *Steps) remove(ctx context.Context, id string, o *vipmovev1.Remove) (*vipmovev1.StepAnswer, *vipmovev1.Refusal) {
	f := o.GetFence()
	if r := s.obey(f); r != nil {
		return nil, r
	}
	if step, ok := s.ledger.steps[id]; ok {
		return s.repeat(ctx, step, f)
	}
	p, found := s.ledger.prepared[f.GetRunId()]
	if r := checkPrepared(p, found, f); r != nil {
		return nil, r
	}
	if r := checkDeadline(s.cfg.Kernel.BootTime(), f); r != nil {
		return nil, r
	}
	if by, taken := s.ledger.takenBy(id, f); taken && !by.open() {
		return nil, refuse(vipmovev1.Refusal_STEP_CANCELLED, "make a new plan: a step removes its address at most once",
			"this step took the address off by command %s already, and ended %s", by.CommandID, by.Phase)
	}
	state, r := s.guard(ctx, p)
	if r != nil {
		return nil, r
	}
	step := Step{
		CommandID: id, RunID: p.RunID, PlanHash: p.PlanHash, Step: p.Step, BootID: s.bootID,
		Entry: p.Entry, Sequence: s.ledger.next(),
	}
	if absent(p.Entry, state) {
		step.Phase, step.Ended = AlreadyAbsent, s.cfg.Kernel.BootTime()
		step.Detail = fmt.Sprintf("%s was not there, by a full listing", p.Entry)
		return s.finish(ctx, step)
	}
	// What is put back is what the kernel listed, metric and protocol included.
	if a, ok := listed(p.Entry, state.Addresses); ok {
		step.Entry = a.Tuple()
	}
	return s.take(ctx, step, timeToLive(o.GetTtl().AsDuration()), f, twins(state, p.Entry))
}

// repeat answers a Remove that came before, without doing anything.
func (s *Steps) repeat(ctx context.Context, step Step, f *vipmovev1.Fence) (*vipmovev1.StepAnswer, *vipmovev1.Refusal) {
	if r := belongs(step, f); r != nil {
		return nil, r
	}
	if step.Phase == Cancelled {
		return nil, refuse(vipmovev1.Refusal_STEP_CANCELLED, "make a new plan", "this step was cancelled: %s", step.Detail)
	}
	return s.recall(ctx, step)
}

// recall answers from the record, a recorded refusal included.
func (s *Steps) recall(ctx context.Context, step Step) (*vipmovev1.StepAnswer, *vipmovev1.Refusal) {
	if step.Phase == Refused {
		return nil, recorded(step)
	}
	return s.look(ctx, step), nil
}

// recorded is the refusal that a Remove met after it had been recorded.
func recorded(step Step) *vipmovev1.Refusal {
	code := vipmovev1.Refusal_Code(vipmovev1.Refusal_Code_value[step.Refusal])
	return refuse(code, "make a new plan, or order the step with a new command", "%s", step.Detail)
}

// take is the change itself: the undo record on disk, the delete, what the
// listing says on disk, and only then the answer (I9).
func (s *Steps) take(ctx context.Context, step Step, ttl time.Duration, f *vipmovev1.Fence, others []host.Address) (*vipmovev1.StepAnswer, *vipmovev1.Refusal) {
	step.Phase, step.Deadline = Intended, s.cfg.Kernel.BootTime()+ttl
	if err := s.commit(step); err != nil {
		step.Phase, step.Refusal, step.Ended = Refused, vipmovev1.Refusal_STATE_NOT_DURABLE.String(), s.cfg.Kernel.BootTime()
		step.Detail = fmt.Sprintf("the undo record could not be written: %v", err)
		_ = s.note(step)
		return nil, s.notDurable(err)
	}
	if r := checkDeadline(s.cfg.Kernel.BootTime(), f); r != nil { // the disk was slow
		step.Phase, step.Refusal, step.Detail = Refused, r.GetCode().String(), r.GetMessage()
		step.Ended = s.cfg.Kernel.BootTime()
		_ = s.note(step)
		return nil, r
	}
	out, err := s.cfg.Kernel.Remove(ctx, step.Entry)
	now := s.cfg.Kernel.BootTime()
	step = taken(step, out, err, now, now+ttl)
	if step.Phase == Removed {
		step.Detail = join(step.Detail, s.othersLeft(ctx, others))
	}
	return s.finish(ctx, step)
}

// finish records what came of a Remove and answers. A removal that cannot be
// recorded, or that left the address there in another form, is undone at once.
func (s *Steps) finish(ctx context.Context, step Step) (*vipmovev1.StepAnswer, *vipmovev1.Refusal) {
	err := s.note(step)
	s.cfg.Log.Info("carried out a removal", "command", step.CommandID, "phase", string(step.Phase),
		"address", step.Entry.Prefix.String(), "link", step.Entry.Link, "deadline", step.Deadline, "detail", step.Detail)
	switch {
	case step.open() && err != nil:
		step = s.putBack(ctx, step, reasonNotDurable)
	case step.open() && step.Deadline <= s.cfg.Kernel.BootTime():
		step = s.putBack(ctx, step, reasonPresent)
	}
	s.prune()
	if step.Phase == Refused {
		return nil, recorded(step)
	}
	return s.say(step), nil
}

// taken judges what the kernel seam said of a delete.
func taken(step Step, out host.Outcome, err error, now, deadline time.Duration) Step {
	step.Detail = out.Detail
	if err != nil {
		step.Detail = err.Error()
	}
	_, stillListed := listed(step.Entry, out.Left)
	switch {
	case out.Result == host.Removed, out.Result == host.StillPresent && out.Sent && !stillListed:
		// The second: the entry went, and the IP is there in another form.
		step.Phase, step.Removed, step.Deadline = Removed, now, deadline
		if out.Result == host.StillPresent {
			step.Deadline = now // due: put back at once
		}
	case out.Result == host.AlreadyAbsent:
		step.Phase, step.Ended = AlreadyAbsent, now
	case out.Result == host.StillPresent:
		step.Phase, step.Ended = StillPresent, now
	case out.Sent: // unknown; open, so that it is put back unless a listing says otherwise
		step.Phase, step.Deadline = Intended, deadline
	default:
		step.Phase, step.Ended = Refused, now
		step.Refusal = kernelRefusal(err).String()
	}
	return step
}

// kernelRefusal names why nothing was sent to the kernel.
func kernelRefusal(err error) vipmovev1.Refusal_Code {
	switch {
	case errors.Is(err, host.ErrNoLink), errors.Is(err, host.ErrLinkRenamed):
		return vipmovev1.Refusal_LINK_CHANGED
	case errors.Is(err, host.ErrNotHostPrefix):
		return vipmovev1.Refusal_NOT_HOST_PREFIX
	}
	return vipmovev1.Refusal_DUMP_INCOMPLETE
}

func timeToLive(d time.Duration) time.Duration {
	if d <= 0 {
		return DefaultTTL
	}
	return min(d, MaxTTL)
}
