// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/agent/report"
	"github.com/vipmove/vipmove/agent/wire"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

const (
	// maxOrders bounds the orders under way; more are refused, not queued.
	maxOrders = 16
	// introduction is how long a node may take to answer the question by
	// which it learns this host's MAC.
	introduction = 100 * time.Millisecond

	neverActs = "a witness changes nothing"
)

var (
	errBusy     = fmt.Errorf("%d orders are under way already", maxOrders)
	errNoSource = errors.New("the NIC has no IPv4 address of its own")
)

// Welcome implements session.Handler. A witness obeys no one, so any journal
// and any term will do.
func (w *observer) Welcome(*vipmovev1.Welcome) error { return nil }

// Disconnected implements session.Handler. Orders under way end with their
// context; requests go on.
func (w *observer) Disconnected(error) {}

// Command implements session.Handler: each order runs on its own goroutine.
func (w *observer) Command(ctx context.Context, c *vipmovev1.Command, reply func(*vipmovev1.CommandResult)) {
	answer := func(r *vipmovev1.CommandResult, err error) {
		if r == nil {
			r = &vipmovev1.CommandResult{}
		}
		if err != nil {
			r.Error = err.Error()
		}
		r.CommandId = c.GetCommandId()
		reply(r)
	}
	select {
	case w.slots <- struct{}{}:
	default:
		answer(nil, errBusy)
		return
	}
	w.orders.Go(func() {
		defer func() { <-w.slots }()
		var r *vipmovev1.CommandResult
		err := w.opts.Enter(func() (err error) {
			r, err = w.obey(ctx, c)
			return err
		})
		answer(r, err)
	})
}

// obey carries out one order, on a thread inside the witness's namespace.
func (w *observer) obey(ctx context.Context, c *vipmovev1.Command) (*vipmovev1.CommandResult, error) {
	switch order := c.GetOrder().(type) {
	case *vipmovev1.Command_ReadKernel:
		kernel, err := w.looker.ReadKernel(ctx, order.ReadKernel)
		return &vipmovev1.CommandResult{Answer: &vipmovev1.CommandResult_Kernel{Kernel: kernel}}, err
	case *vipmovev1.Command_Probe:
		rounds := w.looker.Probe(ctx, order.Probe, w.heard(c.GetCommandId()))
		return &vipmovev1.CommandResult{Answer: &vipmovev1.CommandResult_Probe{Probe: rounds}}, nil
	case *vipmovev1.Command_Capture:
		capture := w.looker.Capture(ctx, order.Capture)
		return &vipmovev1.CommandResult{Answer: &vipmovev1.CommandResult_Capture{Capture: capture}}, nil
	case *vipmovev1.Command_SendRequests:
		sent, err := w.sendRequests(ctx, order.SendRequests)
		return &vipmovev1.CommandResult{Answer: &vipmovev1.CommandResult_SendRequests{SendRequests: sent}}, err
	case *vipmovev1.Command_Watch:
		return nil, nil // the standing watch of a witness is its requests
	case *vipmovev1.Command_Prepare, *vipmovev1.Command_Remove, *vipmovev1.Command_Extend,
		*vipmovev1.Command_Confirm, *vipmovev1.Command_Restore, *vipmovev1.Command_Inquire, *vipmovev1.Command_Mute, *vipmovev1.Command_Announce:
		return &vipmovev1.CommandResult{Refusal: &vipmovev1.Refusal{
			Code:     vipmovev1.Refusal_OBSERVE_ONLY,
			Message:  neverActs,
			NextStep: "send this order to the agent of a node",
		}}, nil
	default:
		return nil, errors.New("this witness does not know that order: is it older than the coordinator?")
	}
}

// heard passes replies on while their round runs.
func (w *observer) heard(command string) func(*vipmovev1.ReplyHeard) {
	return func(r *vipmovev1.ReplyHeard) {
		r.CommandId = command
		w.session.Send(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_ReplyHeard{ReplyHeard: r}})
	}
}

// sendRequests asks one node for the VIP. The requests are those of the target
// but for the address.
func (w *observer) sendRequests(ctx context.Context, order *vipmovev1.SendRequests) (*vipmovev1.SendRequestsAnswer, error) {
	via, t, err := w.way(ctx, order)
	if err != nil {
		return nil, fmt.Errorf("requesting %s through %s: %w", order.GetVip(), order.GetTargetMac(), err)
	}
	if own, err := netip.ParseAddr(order.GetNodeAddress()); err == nil {
		introduce(ctx, w.looker, via, own)
	}
	o, err := ThroughMAC(ctx, via, t, int(order.GetCount()))
	if err != nil {
		return nil, err
	}
	answer := &vipmovev1.SendRequestsAnswer{
		Sent:         o.Sent,
		Succeeded:    o.Succeeded,
		FailedByType: make(map[string]uint32, len(o.ByType)),
		LastError:    o.LastError,
	}
	for failure, n := range o.ByType {
		answer.FailedByType[string(failure)] = n
	}
	return answer, nil
}

// way reads an order to send requests.
func (w *observer) way(ctx context.Context, order *vipmovev1.SendRequests) (via Via, t Target, err error) {
	vip, err := netip.ParseAddr(order.GetVip())
	if err != nil {
		return via, t, fmt.Errorf("reading the VIP: %w", err)
	}
	if via.MAC, err = wire.ParseMAC(order.GetTargetMac()); err != nil {
		return via, t, fmt.Errorf("reading the MAC: %w", err)
	}
	t = w.opts.Target
	t.Address = netip.AddrPortFrom(vip.Unmap(), t.Address.Port())
	if timeout := order.GetTimeout().AsDuration(); timeout > 0 {
		t.Timeout = timeout
	}
	state, err := w.opts.Kernel.State(ctx, nil)
	if err != nil {
		return via, t, err
	}
	via.NIC, via.Source, err = leaving(state, order.GetInterface(), t.Address.Addr())
	return via, t, err
}

// leaving finds a NIC and the address on it that the VIP's segment knows: one
// whose prefix has the VIP, else the first.
func leaving(s host.State, name string, vip netip.Addr) (nic wire.NIC, source netip.Addr, err error) {
	for _, link := range s.Links {
		if link.Name != name {
			continue
		}
		if nic, err = report.NIC(link); err != nil {
			return nic, source, err
		}
		for _, a := range s.Addresses {
			own := a.Prefix.Addr()
			if a.LinkIndex != link.Index || !own.Is4() || own == vip {
				continue
			}
			if a.Prefix.Contains(vip) {
				return nic, own, nil
			}
			if !source.IsValid() {
				source = own
			}
		}
		if !source.IsValid() {
			return nic, source, &wire.NICError{Doing: "finding a source address on", NIC: name, Err: errNoSource}
		}
		return nic, source, nil
	}
	if len(s.Incomplete) > 0 {
		return nic, source, fmt.Errorf("finding NIC %s: %v", name, s.Incomplete)
	}
	return nic, source, &wire.NICError{Doing: "finding", NIC: name, Err: wire.ErrGone}
}

// introduce asks a node by ARP about one of its addresses, so that it knows
// this host's MAC. Otherwise a node that holds the VIP asks for it itself with
// the VIP as sender (arp_announce 0; arp_solicit in net/ipv4/arp.c), and every
// cache on the segment then sends the VIP's frames to that node. Whether it
// answers proves nothing here. The probe counts against the NIC's budget.
func introduce(ctx context.Context, l *report.Looker, via Via, about netip.Addr) {
	l.Probe(ctx, &vipmovev1.Probe{
		Interface: via.NIC.Name,
		Vip:       about.String(),
		Window:    durationpb.New(introduction),
		Requests: []*vipmovev1.ProbeRequest{{
			Kind:      vipmovev1.ProbeKind_PROBE_KIND_UNICAST,
			TargetMac: via.MAC.String(),
			SenderIp:  via.Source.String(),
		}},
	}, nil)
}
