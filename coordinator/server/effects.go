// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/handover"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// Times of orders. commandLife is the deadline that an agent holds a command to, on its own boot clock.
const (
	commandLife  = 5 * time.Second
	orderTimeout = 10 * time.Second
	reachSlack   = 15 * time.Second // beyond the undo's TTL, until a silent node is named unknown
	dwellLook    = 500 * time.Millisecond
	retryPause   = 500 * time.Millisecond
)

// carryOut starts one effect. Its outcome comes back as an event, unless the run had no use for it any more.
func (d *driver) carryOut(ctx context.Context, p *progress, f handover.Effect) {
	run := p.run
	ctx, cancel := context.WithCancel(ctx)
	errand := p.begin(f, cancel)
	d.workers.Go(func() {
		defer cancel()
		e := d.effect(ctx, p, run, f)
		if ctx.Err() == nil {
			d.post(ctx, envelope{run: run.ID, event: e, from: errand})
		}
	})
}

// effect does one thing and says what came of it. What it returns after the end of ctx is not used.
func (d *driver) effect(ctx context.Context, p *progress, run handover.Run, f handover.Effect) handover.Event {
	switch f.Kind {
	case handover.DoPrepare:
		d.setDoing(p, "giving every node its entry of the plan")
		return d.prepare(ctx, run, f)
	case handover.DoObserve:
		return handover.Event{Kind: handover.Observed, Carriers: d.carriers(ctx, run)}
	case handover.DoBaseline:
		d.setDoing(p, "looking at "+f.Node+" before its step")
		return d.baseline(ctx, p, run, f)
	case handover.DoRemove:
		d.setDoing(p, "removing the address from "+f.Node)
		return d.act(ctx, run, f, func(fence *vipmovev1.Fence) *vipmovev1.Command {
			return &vipmovev1.Command{Order: &vipmovev1.Command_Remove{Remove: &vipmovev1.Remove{Fence: fence, Ttl: durationpb.New(run.Plan.Options.TTL)}}}
		})
	case handover.DoVerify:
		d.setDoing(p, "verifying "+f.Node+": listing, wire, requests")
		return d.verify(ctx, p, run, f)
	case handover.DoDwell:
		d.setDoing(p, fmt.Sprintf("watching %s for %s", f.Node, f.Dwell))
		return d.dwell(ctx, p, run, f)
	case handover.DoConfirm:
		d.setDoing(p, "confirming "+f.Node)
		return d.act(ctx, run, f, func(fence *vipmovev1.Fence) *vipmovev1.Command {
			return &vipmovev1.Command{Order: &vipmovev1.Command_Confirm{Confirm: &vipmovev1.Confirm{Fence: fence, RemoveCommandId: f.CommandID}}}
		})
	case handover.DoRestore, handover.DoInquire:
		return d.insist(ctx, p, run, f)
	case handover.DoFinal:
		d.setDoing(p, "looking at the wire for the final verdict")
		return d.final(ctx, p, run)
	case handover.DoAnnounce:
		d.setDoing(p, f.Node+" announces its MAC, three times")
		return d.announce(ctx, p, run, f)
	}
	return handover.Event{Kind: handover.Broken, Detail: "no such effect: " + string(f.Kind)}
}

func (d *driver) prepare(ctx context.Context, run handover.Run, f handover.Effect) handover.Event {
	step, _ := run.Step(f.Node)
	var overrides []string
	for _, c := range run.Plan.Options.Overrides {
		overrides = append(overrides, string(c))
	}
	return d.act(ctx, run, f, func(fence *vipmovev1.Fence) *vipmovev1.Command {
		return &vipmovev1.Command{Order: &vipmovev1.Command_Prepare{Prepare: &vipmovev1.Prepare{
			Fence: fence, Entry: snapshot.AddressToProto(step.Address), Vip: run.Plan.Options.VIP.String(), Overrides: overrides}}}
	})
}

// act sends one changing order and turns its answer into an event. No answer is Lost, whatever became of it.
func (d *driver) act(ctx context.Context, run handover.Run, f handover.Effect, build func(*vipmovev1.Fence) *vipmovev1.Command) handover.Event {
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	event := handover.Event{Node: f.Node, CommandID: f.CommandID}
	fence, err := d.fence(run, f.Node)
	if err != nil {
		event.Kind, event.Detail = handover.Lost, err.Error()
		return event
	}
	c := build(fence)
	c.CommandId = f.CommandID
	if c.GetRemove() == nil { // only a remove is known by the step's id; every other order has its own
		c.CommandId = d.survey.ids()
	}
	r, err := d.fleet.Do(ctx, f.Node, c, nil)
	if err != nil {
		event.Kind, event.Detail = handover.Lost, err.Error()
		return event
	}
	return answerEvent(event, r)
}

// answerEvent reads an agent's result. An error that names no state says nothing about the node: Lost.
func answerEvent(event handover.Event, r *vipmovev1.CommandResult) handover.Event {
	event.Kind = handover.Answered
	if refusal := r.GetRefusal(); refusal.GetCode() != vipmovev1.Refusal_NONE {
		event.Answer, event.Code = handover.AnswerRefused, diagnose.Code(refusal.GetCode().String())
		event.Detail = refusal.GetMessage()
		if refusal.GetNextStep() != "" {
			event.Detail += "; " + refusal.GetNextStep()
		}
		return event
	}
	step := r.GetStep()
	answer, known := answers[step.GetState()]
	if step == nil || !known {
		event.Kind, event.Detail = handover.Lost, orText(r.GetError(), "the node gave no answer about its step")
		return event
	}
	event.Answer, event.Detail, event.PresentAgain = answer, orText(step.GetDetail(), r.GetError()), step.GetPresentAgain()
	if answer == handover.AnswerRestored && step.GetRestoreReason() != "" {
		event.Detail = fmt.Sprintf("put back by the agent (%s) %s", step.GetRestoreReason(), step.GetDetail())
	}
	return event
}

var answers = map[vipmovev1.StepAnswer_State]handover.Answer{
	vipmovev1.StepAnswer_STATE_PREPARED:       handover.AnswerPrepared,
	vipmovev1.StepAnswer_STATE_NOT_SEEN:       handover.AnswerNotSeen,
	vipmovev1.StepAnswer_STATE_REMOVED:        handover.AnswerRemoved,
	vipmovev1.StepAnswer_STATE_ALREADY_ABSENT: handover.AnswerAlreadyAbsent,
	vipmovev1.StepAnswer_STATE_CONFIRMED:      handover.AnswerConfirmed,
	vipmovev1.StepAnswer_STATE_RESTORED:       handover.AnswerRestored,
	vipmovev1.StepAnswer_STATE_STILL_PRESENT:  handover.AnswerStillPresent,
	vipmovev1.StepAnswer_STATE_UNKNOWN:        handover.AnswerUnknown,
	vipmovev1.StepAnswer_STATE_REFUSED:        handover.AnswerRefused,
	vipmovev1.StepAnswer_STATE_CANCELLED:      handover.AnswerCancelled,
}

// fence says who orders what and until when; the deadline is in the agent's own boot clock, never ahead of it.
func (d *driver) fence(run handover.Run, node string) (*vipmovev1.Fence, error) {
	boot, ok := d.fleet.Boottime(node)
	if !ok {
		return nil, fmt.Errorf("node %s has no session", node)
	}
	step, _ := run.Step(node)
	return &vipmovev1.Fence{
		JournalId: d.journal.ID(), Term: d.journal.Term(), RunId: run.ID, PlanHash: run.Plan.Hash, Step: run.ID + "/" + node,
		Node: node, BootId: step.BootID, DeadlineBoottime: durationpb.New(boot + commandLife),
	}, nil
}

// late is the one refusal that a new deadline mends.
var late = diagnose.Code(vipmovev1.Refusal_LATE.String())

// insist asks or restores until the node answers, for as long as its undo may live and a while more; then
// the node is unreachable and named unknown.
func (d *driver) insist(ctx context.Context, p *progress, run handover.Run, f handover.Effect) handover.Event {
	what, order := insistence(f)
	d.setDoing(p, what)
	patience := run.Plan.Options.TTL + reachSlack
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	last := "no session"
	for limit.Err() == nil {
		if err := d.fleet.Wait(limit, f.Node); err != nil {
			break
		}
		e := d.act(limit, run, f, order)
		if e.Kind == handover.Answered && e.Code != late {
			return e
		}
		last = e.Detail
		pause(limit, retryPause)
	}
	return handover.Event{Kind: handover.Unreachable, Node: f.Node, CommandID: f.CommandID, Detail: fmt.Sprintf(
		"could not be asked for %s (%s); its agent puts an unconfirmed removal back by itself. Look at its agent's log and at `ip addr show` there", patience, last)}
}

func insistence(f handover.Effect) (what string, order func(*vipmovev1.Fence) *vipmovev1.Command) {
	if f.Kind == handover.DoRestore {
		return "putting the address back on " + f.Node, func(fence *vipmovev1.Fence) *vipmovev1.Command {
			return &vipmovev1.Command{Order: &vipmovev1.Command_Restore{Restore: &vipmovev1.Restore{Fence: fence, RemoveCommandId: f.CommandID, Rollback: f.Rollback}}}
		}
	}
	return "asking " + f.Node + " what came of its step", func(fence *vipmovev1.Fence) *vipmovev1.Command {
		return &vipmovev1.Command{Order: &vipmovev1.Command_Inquire{Inquire: &vipmovev1.Inquire{Fence: fence, RemoveCommandId: f.CommandID}}}
	}
}

// pause waits, or for the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func orText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
