// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// fakeAgent obeys orders by the rules of docs/design.md section 6: prepared entry, record per command, undo
// with a TTL on its own clock, fence.
type fakeAgent struct {
	*fakeObserver
	ctx context.Context // of its process

	mu       sync.Mutex
	term     uint64
	prepared map[string]*vipmovev1.Prepare // by run
	steps    map[string]*fakeStep          // by command
	removals map[string]int                // by step: I8
	refuse   func(kind string) vipmovev1.Refusal_Code
	cannot   string
	control  bool
}

type fakeStep struct {
	state    vipmovev1.StepAnswer_State
	deadline time.Duration
	reason   string
}

func newFakeAgent(ctx context.Context, w *world, name string) *fakeAgent {
	a := &fakeAgent{ctx: ctx, prepared: map[string]*vipmovev1.Prepare{}, steps: map[string]*fakeStep{}, removals: map[string]int{}}
	a.fakeObserver = &fakeObserver{world: w, name: name, role: vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT, carry: a.carryOut, hello: a.standing}
	return a
}

func (a *fakeAgent) standing() *vipmovev1.Hello {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := helloOf(a.name, a.role, a.world.lan.host(a.name).boot)
	h.CanAct, h.CannotActReason, h.ControlPlane = a.cannot == "", a.cannot, a.control
	for id, s := range a.steps {
		if s.state == vipmovev1.StepAnswer_STATE_REMOVED {
			h.PendingUndo = &vipmovev1.PendingUndo{CommandId: id, Address: staleAddress()}
		}
	}
	return h
}

func (a *fakeAgent) carryOut(ctx context.Context, c *vipmovev1.Command, say func(*vipmovev1.ReplyHeard)) *vipmovev1.CommandResult {
	switch o := c.GetOrder().(type) {
	case *vipmovev1.Command_ReadKernel:
		return &vipmovev1.CommandResult{Answer: &vipmovev1.CommandResult_Kernel{Kernel: a.world.lan.kernel(a.name)}}
	case *vipmovev1.Command_Probe:
		return a.probe(ctx, o.Probe, say)
	case *vipmovev1.Command_Capture:
		pause(ctx, o.Capture.GetDuration().AsDuration())
		return &vipmovev1.CommandResult{Answer: &vipmovev1.CommandResult_Capture{Capture: &vipmovev1.CaptureAnswer{
			Outgoing: &vipmovev1.Outgoing{Node: a.name, Interface: o.Capture.GetInterface(), Vip: o.Capture.GetVip(), Captured: true, Error: "the fake sees none"}}}}
	}
	if m := c.GetMute(); m != nil {
		return a.mute(m)
	}
	if o := c.GetAnnounce(); o != nil {
		return a.announce(o)
	}
	return a.order(c)
}

// announce moves the witness's neighbour entry, if it heeds such frames.
func (a *fakeAgent) announce(o *vipmovev1.Announce) *vipmovev1.CommandResult {
	a.mu.Lock()
	code := a.fence(o.GetFence(), "announce")
	if code == vipmovev1.Refusal_NONE && a.prepared[o.GetFence().GetRunId()].GetFence().GetPlanHash() != o.GetFence().GetPlanHash() {
		code = vipmovev1.Refusal_NOT_PREPARED
	}
	a.mu.Unlock()
	if h := a.world.lan.host(a.name); code == vipmovev1.Refusal_NONE && (o.GetMac() != h.mac || o.GetInterface() != "eth0" || o.GetVip() != testVIP) {
		return &vipmovev1.CommandResult{Error: "not this NIC: " + o.String()}
	}
	if code != vipmovev1.Refusal_NONE {
		return &vipmovev1.CommandResult{Refusal: &vipmovev1.Refusal{Code: code, Message: "the fake refuses", NextStep: "mend it"}}
	}
	a.world.witness.learn(o.GetMac())
	return &vipmovev1.CommandResult{Answer: &vipmovev1.CommandResult_Announce{Announce: &vipmovev1.AnnounceAnswer{Sent: 6}}}
}

// mute keeps the kernel's replies back, as the real one's nftables do.
func (a *fakeAgent) mute(o *vipmovev1.Mute) *vipmovev1.CommandResult {
	a.mu.Lock()
	code := a.fence(o.GetFence(), "mute")
	a.mu.Unlock()
	if code != vipmovev1.Refusal_NONE {
		return &vipmovev1.CommandResult{Refusal: &vipmovev1.Refusal{Code: code, Message: "the fake refuses", NextStep: "mend it"}}
	}
	answer := &vipmovev1.MuteAnswer{Muted: o.GetDuration().AsDuration() > 0}
	a.world.lan.change(func() {
		h := a.world.lan.hosts[a.name]
		answer.Held = !answer.Muted && time.Now().Before(h.muteUntil)
		h.muteUntil = time.Now().Add(o.GetDuration().AsDuration())
		for _, other := range a.world.lan.hosts {
			if answer.Muted && other != h && time.Now().Before(other.muteUntil) {
				a.world.lan.broken = append(a.world.lan.broken, "two kernels mute at once: "+h.name+" and "+other.name)
			}
		}
	})
	return &vipmovev1.CommandResult{Answer: &vipmovev1.CommandResult_Mute{Mute: answer}}
}

// order is a change, or a question about one. It also tells the coordinator the new standing, as a real one does.
func (a *fakeAgent) order(c *vipmovev1.Command) *vipmovev1.CommandResult {
	a.mu.Lock()
	answer, code := a.decide(c)
	a.mu.Unlock()
	if code != vipmovev1.Refusal_NONE {
		return &vipmovev1.CommandResult{Refusal: &vipmovev1.Refusal{Code: code, Message: "the fake refuses", NextStep: "mend it"},
			Answer: &vipmovev1.CommandResult_Step{Step: &vipmovev1.StepAnswer{State: vipmovev1.StepAnswer_STATE_REFUSED}}}
	}
	if answer == nil {
		return &vipmovev1.CommandResult{Error: "no such order"}
	}
	a.tell(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_Hello{Hello: a.standing()}})
	return &vipmovev1.CommandResult{Answer: &vipmovev1.CommandResult_Step{Step: answer}}
}

func (a *fakeAgent) decide(c *vipmovev1.Command) (*vipmovev1.StepAnswer, vipmovev1.Refusal_Code) {
	fence, about := fenceOf(c)
	if fence == nil {
		return nil, vipmovev1.Refusal_NONE
	}
	if code := a.fence(fence, kindOf(c)); code != vipmovev1.Refusal_NONE {
		return nil, code
	}
	a.expire()
	switch o := c.GetOrder().(type) {
	case *vipmovev1.Command_Prepare:
		a.prepared[fence.GetRunId()] = o.Prepare
		return &vipmovev1.StepAnswer{State: vipmovev1.StepAnswer_STATE_PREPARED}, vipmovev1.Refusal_NONE
	case *vipmovev1.Command_Remove:
		return a.remove(c.GetCommandId(), fence, o.Remove.GetTtl().AsDuration())
	case *vipmovev1.Command_Extend:
		if s := a.steps[about]; s != nil && s.state == vipmovev1.StepAnswer_STATE_REMOVED {
			s.deadline = max(s.deadline, a.boottime()+o.Extend.GetTtl().AsDuration())
		}
	case *vipmovev1.Command_Confirm:
		if s := a.steps[about]; s != nil && s.state == vipmovev1.StepAnswer_STATE_REMOVED {
			s.state = vipmovev1.StepAnswer_STATE_CONFIRMED
			a.world.lan.change(func() { a.world.lan.hosts[a.name].open = false })
		}
	case *vipmovev1.Command_Restore:
		a.restore(about, o.Restore.GetRollback())
	}
	return a.say(about), vipmovev1.Refusal_NONE
}

func (a *fakeAgent) fence(f *vipmovev1.Fence, kind string) vipmovev1.Refusal_Code {
	switch {
	case a.refuse != nil && a.refuse(kind) != vipmovev1.Refusal_NONE:
		return a.refuse(kind)
	case f.GetNode() != a.name:
		return vipmovev1.Refusal_WRONG_NODE
	case f.GetTerm() < a.term: // I7
		return vipmovev1.Refusal_STALE_TERM
	case f.GetBootId() != a.world.lan.host(a.name).boot && kind != "inquire":
		return vipmovev1.Refusal_WRONG_BOOT
	case a.boottime() > f.GetDeadlineBoottime().AsDuration() && kind != "inquire":
		return vipmovev1.Refusal_LATE
	}
	a.term = f.GetTerm()
	return vipmovev1.Refusal_NONE
}

func (a *fakeAgent) remove(id string, f *vipmovev1.Fence, ttl time.Duration) (*vipmovev1.StepAnswer, vipmovev1.Refusal_Code) {
	p := a.prepared[f.GetRunId()]
	switch s := a.steps[id]; {
	case s != nil && s.state == vipmovev1.StepAnswer_STATE_CANCELLED:
		return nil, vipmovev1.Refusal_STEP_CANCELLED
	case s != nil:
		return a.say(id), vipmovev1.Refusal_NONE // from the record, not again
	case p == nil || p.GetFence().GetPlanHash() != f.GetPlanHash(): // I5
		return nil, vipmovev1.Refusal_NOT_PREPARED
	case !a.world.lan.host(a.name).held:
		a.steps[id] = &fakeStep{state: vipmovev1.StepAnswer_STATE_ALREADY_ABSENT}
		return a.say(id), vipmovev1.Refusal_NONE
	}
	a.steps[id] = &fakeStep{state: vipmovev1.StepAnswer_STATE_REMOVED, deadline: a.boottime() + ttl}
	if a.removals[f.GetStep()]++; a.removals[f.GetStep()] > 1 {
		a.world.lan.change(func() { a.world.lan.broken = append(a.world.lan.broken, "I8: "+f.GetStep()+" removed twice") })
	}
	a.world.lan.change(func() { h := a.world.lan.hosts[a.name]; h.held, h.open = false, true })
	a.world.hosts.Go(func() { a.undo(id) })
	return a.say(id), vipmovev1.Refusal_NONE
}

// undo puts back what nobody confirmed in time.
func (a *fakeAgent) undo(id string) {
	for a.ctx.Err() == nil {
		a.mu.Lock()
		a.expire()
		s := a.steps[id]
		left, open := s.deadline-a.boottime(), s.state == vipmovev1.StepAnswer_STATE_REMOVED
		a.mu.Unlock()
		if !open {
			return
		}
		pause(a.ctx, left)
	}
}

func (a *fakeAgent) expire() {
	for _, s := range a.steps {
		if s.state == vipmovev1.StepAnswer_STATE_REMOVED && a.boottime() >= s.deadline {
			a.putBack(s, "expired")
		}
	}
}

func (a *fakeAgent) putBack(s *fakeStep, reason string) {
	s.state, s.reason = vipmovev1.StepAnswer_STATE_RESTORED, reason
	a.world.lan.change(func() { h := a.world.lan.hosts[a.name]; h.held, h.open = true, false })
}

func (a *fakeAgent) restore(id string, rollback bool) {
	switch s := a.steps[id]; {
	case s == nil:
		a.steps[id] = &fakeStep{state: vipmovev1.StepAnswer_STATE_CANCELLED}
	case s.state == vipmovev1.StepAnswer_STATE_REMOVED, rollback && s.state == vipmovev1.StepAnswer_STATE_CONFIRMED:
		a.putBack(s, "ordered")
	}
}

func (a *fakeAgent) say(id string) *vipmovev1.StepAnswer {
	s := a.steps[id]
	if s == nil {
		return &vipmovev1.StepAnswer{State: vipmovev1.StepAnswer_STATE_NOT_SEEN}
	}
	gone := s.state == vipmovev1.StepAnswer_STATE_REMOVED || s.state == vipmovev1.StepAnswer_STATE_CONFIRMED
	return &vipmovev1.StepAnswer{State: s.state, RestoreReason: s.reason, PresentAgain: gone && a.world.lan.host(a.name).held, Detail: fmt.Sprintf("of %s", a.name)}
}

// fenceOf finds an order's fence and the removal that it is about.
func fenceOf(c *vipmovev1.Command) (*vipmovev1.Fence, string) {
	switch o := c.GetOrder().(type) {
	case *vipmovev1.Command_Prepare:
		return o.Prepare.GetFence(), ""
	case *vipmovev1.Command_Remove:
		return o.Remove.GetFence(), c.GetCommandId()
	case *vipmovev1.Command_Extend:
		return o.Extend.GetFence(), o.Extend.GetRemoveCommandId()
	case *vipmovev1.Command_Confirm:
		return o.Confirm.GetFence(), o.Confirm.GetRemoveCommandId()
	case *vipmovev1.Command_Restore:
		return o.Restore.GetFence(), o.Restore.GetRemoveCommandId()
	case *vipmovev1.Command_Inquire:
		return o.Inquire.GetFence(), o.Inquire.GetRemoveCommandId()
	}
	return nil, ""
}
