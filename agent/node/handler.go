// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// Bounds on what one agent has in hand. A coordinator that wants more asks
// again.
const (
	maxQueued  = 64 // step orders that wait
	maxLooking = 32 // orders that look, at the same time
)

// job is one step order.
type job struct {
	session context.Context // ends with the session that it came by
	command *vipmovev1.Command
	reply   func(*vipmovev1.CommandResult)
}

// hello is this agent's first message of a session.
func (n *Node) hello() *vipmovev1.Hello {
	h := &vipmovev1.Hello{
		Node: n.cfg.Name, Role: vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT, Version: n.cfg.Version,
		BootId: n.bootID, ControlPlane: n.cfg.ControlPlane, PendingUndo: n.steps.Pending(), CanAct: true,
	}
	if r := n.steps.CannotAct(); r != nil {
		h.CanAct, h.CannotActReason = false, r.GetMessage()
	}
	return h
}

// firstHello begins a session.
func (n *Node) firstHello() *vipmovev1.Hello {
	h := n.hello()
	n.told.Store(proto.CloneOf(h)) // the session fills h in
	return h
}

// tellStanding says hello again when this agent's standing changed: an undo that is pending or no longer, rights.
func (n *Node) tellStanding() {
	h := n.hello()
	if was := n.told.Load(); was == nil || proto.Equal(was, h) {
		return
	}
	if n.session.Send(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_Hello{Hello: h}}) {
		n.told.Store(h)
	}
}

// Welcome takes the coordinator's term and watched VIPs. A coordinator of
// another journal is welcome to look; what it orders is refused.
func (n *Node) Welcome(w *vipmovev1.Welcome) error {
	n.steps.Welcome(w.GetJournalId(), w.GetTerm())
	if err := n.watch.setVIPs(w.GetWatchedVips()); err != nil {
		n.cfg.Log.Warn("cannot watch everything that the coordinator asks for", "error", err)
	}
	return nil
}

// Disconnected has nothing to do: an undo goes on by itself, and what waits in
// the queue is dropped by the worker.
func (n *Node) Disconnected(error) {}

// Command starts what a command asks for. Orders that look run beside each
// other; those about a step wait for the one before.
func (n *Node) Command(ctx context.Context, c *vipmovev1.Command, reply func(*vipmovev1.CommandResult)) {
	switch o := c.GetOrder().(type) {
	case *vipmovev1.Command_ReadKernel:
		n.look(c, reply, func(r *vipmovev1.CommandResult) { n.readKernel(ctx, o.ReadKernel, r) })
	case *vipmovev1.Command_Probe:
		n.look(c, reply, func(r *vipmovev1.CommandResult) {
			answer := n.looker.Probe(ctx, o.Probe, func(h *vipmovev1.ReplyHeard) { n.heard(c.GetCommandId(), h) })
			r.Answer = &vipmovev1.CommandResult_Probe{Probe: answer}
		})
	case *vipmovev1.Command_Capture:
		n.look(c, reply, func(r *vipmovev1.CommandResult) {
			r.Answer = &vipmovev1.CommandResult_Capture{Capture: n.looker.Capture(ctx, o.Capture)}
		})
	case *vipmovev1.Command_Watch:
		err := n.watch.setVIPs(o.Watch.GetVips())
		reply(result(c, err))
	case *vipmovev1.Command_Prepare, *vipmovev1.Command_Remove, *vipmovev1.Command_Extend,
		*vipmovev1.Command_Confirm, *vipmovev1.Command_Restore, *vipmovev1.Command_Inquire,
		*vipmovev1.Command_Mute, *vipmovev1.Command_Announce:
		select {
		case n.queue <- job{ctx, c, reply}:
		default:
			reply(result(c, fmt.Errorf("%d orders wait already, ask again", maxQueued)))
		}
	case *vipmovev1.Command_SendRequests:
		reply(result(c, fmt.Errorf("node %s is an agent and sends no requests; ask a witness", n.cfg.Name)))
	default:
		reply(result(c, fmt.Errorf("version %s of the agent does not know this order (%T)", n.cfg.Version, o)))
	}
}

// look runs an order that changes nothing, beside all others.
func (n *Node) look(c *vipmovev1.Command, reply func(*vipmovev1.CommandResult), fill func(*vipmovev1.CommandResult)) {
	select {
	case n.slots <- struct{}{}:
	default:
		reply(result(c, fmt.Errorf("%d looks are under way already, ask again", maxLooking)))
		return
	}
	n.looking.Go(func() {
		defer func() { <-n.slots }()
		r := result(c, nil)
		fill(r)
		reply(r)
	})
}

func (n *Node) readKernel(ctx context.Context, o *vipmovev1.ReadKernel, r *vipmovev1.CommandResult) {
	k, err := n.looker.ReadKernel(ctx, o)
	if err != nil {
		r.Error = err.Error()
		return
	}
	r.Answer = &vipmovev1.CommandResult_Kernel{Kernel: k}
}

// heard shows a reply while its round still runs.
func (n *Node) heard(id string, h *vipmovev1.ReplyHeard) {
	h.CommandId = id
	n.session.Send(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_ReplyHeard{ReplyHeard: h}})
}

// work carries out step orders, one at a time, in the order they came. An
// order whose session is over is not carried out: nobody would hear of it, and
// a headless agent changes nothing but its own undo (I13).
func (n *Node) work(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case j := <-n.queue:
			if j.session.Err() != nil {
				n.cfg.Log.Warn("dropped an order whose session is over", "command", j.command.GetCommandId())
				continue
			}
			if j.command.GetAnnounce() != nil {
				j.reply(n.announce(ctx, j.command))
			} else {
				j.reply(n.steps.Order(ctx, j.command))
			}
			n.tellStanding()
		case <-n.standing:
			n.tellStanding()
		}
	}
}

func result(c *vipmovev1.Command, err error) *vipmovev1.CommandResult {
	r := &vipmovev1.CommandResult{CommandId: c.GetCommandId()}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}
