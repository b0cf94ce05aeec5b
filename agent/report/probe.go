// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/agent/wire"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// Probe carries out one round and gives one vipmovev1.Round for each request,
// in order, whatever happens: what could not be sent says why. onReply, if not
// nil, gets every reply as it is heard, command_id left empty; it runs on the
// round's receiving goroutine. The hearing request, if any, has no Round of
// its own: what it is for is in Round.heard of all.
func (l *Looker) Probe(ctx context.Context, order *vipmovev1.Probe, onReply func(*vipmovev1.ReplyHeard)) *vipmovev1.ProbeAnswer {
	p := &probing{looker: l, order: order, window: order.GetWindow().AsDuration(), onReply: onReply}
	if p.window == 0 {
		p.window = wire.DefaultWindow
	}
	if err := p.plan(ctx); err != nil {
		return p.failed(err)
	}
	var ear *hearing
	if len(p.hearing) > 0 {
		ear = listenFor(ctx, p.nic, l.cfg.Sockets(p.nic), p.hearing)
	}
	results, err := p.round(ctx)
	if ear != nil {
		p.others = ear.end()
	}
	if results == nil {
		return p.failed(err)
	}
	if l.cfg.OnRound != nil {
		l.cfg.OnRound(p.nic, p.vip, results[:len(order.GetRequests())])
	}
	return p.answer(results)
}

// probing is one call of Probe.
type probing struct {
	looker  *Looker
	order   *vipmovev1.Probe
	window  time.Duration
	onReply func(*vipmovev1.ReplyHeard)

	vip      netip.Addr
	nic      wire.NIC
	requests []wire.Request // those of the order, then the hearing request if any
	hearing  []netip.Addr
	others   []wire.MAC // whom the hearing test heard
}

var kinds = map[vipmovev1.ProbeKind]wire.Kind{
	vipmovev1.ProbeKind_PROBE_KIND_BROADCAST:          wire.Broadcast,
	vipmovev1.ProbeKind_PROBE_KIND_ZERO_SENDER:        wire.ZeroSender,
	vipmovev1.ProbeKind_PROBE_KIND_ANNOUNCER_QUESTION: wire.AnnouncerQuestion,
	vipmovev1.ProbeKind_PROBE_KIND_UNICAST:            wire.Unicast,
}

// plan turns the order into requests. Senders are held to the NIC's own
// addresses here, against the kernel's listing: never the VIP, never one that
// is somebody else's, whatever the order says.
func (p *probing) plan(ctx context.Context) error {
	vip, err := netip.ParseAddr(p.order.GetVip())
	if err != nil {
		return fmt.Errorf("reading the address to ask for: %w", err)
	}
	p.vip = vip.Unmap()
	if p.hearing, err = addresses(p.order.GetHearingAddresses()); err != nil {
		return fmt.Errorf("reading the addresses of the hearing test: %w", err)
	}
	nic, own, err := p.looker.nic(ctx, p.order.GetInterface())
	if err != nil {
		return err
	}
	p.nic = nic
	for _, r := range p.order.GetRequests() {
		request, err := p.request(r, own)
		if err != nil {
			return err
		}
		p.requests = append(p.requests, request)
	}
	return p.askHearing(own)
}

func (p *probing) request(r *vipmovev1.ProbeRequest, own []netip.Prefix) (wire.Request, error) {
	kind, ok := kinds[r.GetKind()]
	if !ok {
		return wire.Request{}, fmt.Errorf("asking for %s: this version knows no probe of kind %v", p.vip, r.GetKind())
	}
	request := wire.Request{Kind: kind, VIP: p.vip, Window: p.window}
	if r.GetTargetMac() != "" {
		mac, err := wire.ParseMAC(r.GetTargetMac())
		if err != nil {
			return request, err
		}
		request.TargetMAC = mac
	}
	if kind == wire.ZeroSender || kind == wire.AnnouncerQuestion {
		return request, nil // their senders are part of the kind
	}
	sender, err := senderFor(p.vip, r.GetSenderIp(), own)
	request.Sender = sender
	return request, err
}

// senderFor is the wanted address if it is one of the NIC's own; with none
// wanted, the NIC's own on the VIP's subnet, else its first.
func senderFor(vip netip.Addr, wanted string, own []netip.Prefix) (netip.Addr, error) {
	var sender netip.Addr
	if wanted != "" {
		a, err := netip.ParseAddr(wanted)
		if err != nil {
			return sender, fmt.Errorf("reading the sender address: %w", err)
		}
		if !slices.ContainsFunc(own, func(p netip.Prefix) bool { return p.Addr() == a.Unmap() }) {
			return sender, fmt.Errorf("sending from %s: it is no address of this NIC, and a probe teaches its sender to the whole segment", a)
		}
		return a.Unmap(), nil
	}
	for _, p := range own {
		if p.Addr() != vip && (!sender.IsValid() || p.Masked().Contains(vip)) {
			sender = p.Addr()
			if p.Masked().Contains(vip) {
				break
			}
		}
	}
	return sender, nil // none: wire.ErrNoAddress, in the round
}

// askHearing adds the broadcast that other observers listen for. It is left
// out where it could only be refused: an observer that has no address to ask
// with, or that would ask for its own, is not heard, and that is for the
// others to say.
func (p *probing) askHearing(own []netip.Prefix) error {
	if p.order.GetHearingAsk() == "" {
		return nil
	}
	ask, err := netip.ParseAddr(p.order.GetHearingAsk())
	if err != nil {
		return fmt.Errorf("reading the address of the hearing test: %w", err)
	}
	ask = ask.Unmap()
	sender, err := senderFor(ask, "", own)
	if err != nil || !sender.IsValid() || sender == p.vip {
		return err
	}
	for _, r := range p.requests {
		if r.Sender == ask || r.VIP == ask {
			return nil
		}
	}
	p.requests = append(p.requests, wire.Request{Kind: wire.Broadcast, VIP: ask, Sender: sender, Window: p.window})
	return nil
}

func (p *probing) round(ctx context.Context) ([]wire.Result, error) {
	options := []wire.RoundOption{wire.Hear(p.hearing...)}
	if p.onReply != nil {
		options = append(options, wire.OnReply(p.heard))
	}
	return p.looker.prober(p.nic).Round(ctx, p.requests, options...)
}

func (p *probing) heard(request int, r wire.Reply) {
	if asked := p.order.GetRequests(); request < len(asked) {
		p.onReply(&vipmovev1.ReplyHeard{
			Interface: p.nic.Name, Kind: asked[request].GetKind(), Reply: reply(r.Frame, r.After),
		})
	}
}

// answer gives a Round for each request of the order.
func (p *probing) answer(results []wire.Result) *vipmovev1.ProbeAnswer {
	n := len(p.order.GetRequests())
	rounds := Rounds(p.looker.cfg.Observer, p.nic.Name, results[:n])
	// All share the window, so what one heard of the others, all did.
	for _, r := range results {
		p.others = append(p.others, r.Heard...)
	}
	var heard []string
	for _, mac := range p.others {
		if s := mac.String(); !slices.Contains(heard, s) {
			heard = append(heard, s)
		}
	}
	for _, r := range rounds {
		r.Heard, r.Number = heard, p.order.GetNumber()
	}
	return &vipmovev1.ProbeAnswer{Rounds: rounds}
}

// failed gives a Round for each request that says why it did not leave.
func (p *probing) failed(err error) *vipmovev1.ProbeAnswer {
	answer := &vipmovev1.ProbeAnswer{}
	for _, r := range p.order.GetRequests() {
		answer.Rounds = append(answer.Rounds, &vipmovev1.Round{
			Observer: p.looker.cfg.Observer, Interface: p.order.GetInterface(), Vip: p.order.GetVip(),
			Kind: r.GetKind(), TargetMac: r.GetTargetMac(), SenderIp: r.GetSenderIp(),
			Window: durationpb.New(p.window), SendError: err.Error(), Number: p.order.GetNumber(),
		})
	}
	return answer
}
