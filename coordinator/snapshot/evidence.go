// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

var probeKinds = map[vipmovev1.ProbeKind]diagnose.ProbeKind{
	vipmovev1.ProbeKind_PROBE_KIND_BROADCAST:          diagnose.Broadcast,
	vipmovev1.ProbeKind_PROBE_KIND_ZERO_SENDER:        diagnose.ZeroSender,
	vipmovev1.ProbeKind_PROBE_KIND_ANNOUNCER_QUESTION: diagnose.AnnouncerQuestion,
	vipmovev1.ProbeKind_PROBE_KIND_UNICAST:            diagnose.Unicast,
}

// round reads one request. A kind that this version does not know keeps no name and so counts for
// nothing.
func (r *reader) round(p *vipmovev1.Round) diagnose.Round {
	q := diagnose.Round{
		Observer: p.GetObserver(), Interface: p.GetInterface(), VIP: r.addr("vip", p.GetVip()), Kind: probeKinds[p.GetKind()],
		TargetMAC: r.mac("target mac", p.GetTargetMac()), SenderIP: r.addr("sender ip", p.GetSenderIp()),
		Number: int(p.GetNumber()), Sent: p.GetSent(), SendError: p.GetSendError(),
		Dropped: int(p.GetDropped()), Truncated: p.GetTruncated(),
		HearingExpected: p.GetHearingExpected(), Muted: p.GetMuted(),
	}
	for i, m := range p.GetReplies() {
		r.in(fmt.Sprintf("reply %d", i+1), func() { q.Replies = append(q.Replies, r.reply(m)) })
	}
	for i, m := range p.GetUnsolicited() {
		r.in(fmt.Sprintf("unsolicited %d", i+1), func() { q.Unsolicited = append(q.Unsolicited, r.reply(m)) })
	}
	for i, m := range p.GetHeard() {
		q.Heard = append(q.Heard, r.mac(fmt.Sprintf("heard %d", i+1), m))
	}
	return q
}

func roundToProto(q diagnose.Round) *vipmovev1.Round {
	p := &vipmovev1.Round{
		Observer: q.Observer, Interface: q.Interface, Vip: text(q.VIP), Kind: wireOf(probeKinds, q.Kind),
		TargetMac: q.TargetMAC, SenderIp: text(q.SenderIP), Number: uint32(q.Number), Sent: q.Sent, SendError: q.SendError,
		Dropped: uint32(q.Dropped), Truncated: q.Truncated, Heard: q.Heard, HearingExpected: q.HearingExpected, Muted: q.Muted,
	}
	for _, m := range q.Replies {
		p.Replies = append(p.Replies, replyToProto(m))
	}
	for _, m := range q.Unsolicited {
		p.Unsolicited = append(p.Unsolicited, replyToProto(m))
	}
	return p
}

func replyToProto(m diagnose.Reply) *vipmovev1.Reply {
	return &vipmovev1.Reply{
		SenderMac: m.SenderMAC, EthSource: m.EthSource, SenderIp: text(m.SenderIP), Vlan: uint32(m.VLAN), After: durationToProto(m.After),
	}
}

func (r *reader) reply(p *vipmovev1.Reply) diagnose.Reply {
	return diagnose.Reply{
		SenderMAC: r.mac("sender mac", p.GetSenderMac()), EthSource: r.mac("eth source", p.GetEthSource()),
		SenderIP: r.addr("sender ip", p.GetSenderIp()), VLAN: r.vlan(p.GetVlan()), After: r.duration("after", p.GetAfter()),
	}
}

// outgoing reads one capture. One that lost frames keeps what it has and says so in Error, so that
// nothing is concluded from what is not in it.
func (r *reader) outgoing(p *vipmovev1.Outgoing) diagnose.Outgoing {
	g := diagnose.Outgoing{Node: p.GetNode(), Interface: p.GetInterface(), Captured: p.GetCaptured(), Error: p.GetError()}
	if p.GetTruncated() && g.Error == "" {
		g.Error = "the capture lost frames"
	}
	for i, m := range p.GetReplies() {
		r.in(fmt.Sprintf("reply %d", i+1), func() {
			g.Replies = append(g.Replies, diagnose.OutgoingReply{
				SenderMAC: r.mac("sender mac", m.GetSenderMac()), TargetMAC: r.mac("target mac", m.GetTargetMac()),
				TargetIP: r.addr("target ip", m.GetTargetIp()),
			})
		})
	}
	return g
}

func outgoingToProto(g diagnose.Outgoing) *vipmovev1.Outgoing {
	p := &vipmovev1.Outgoing{Node: g.Node, Interface: g.Interface, Captured: g.Captured, Error: g.Error}
	for _, m := range g.Replies {
		p.Replies = append(p.Replies, &vipmovev1.Reply{SenderMac: m.SenderMAC, TargetMac: m.TargetMAC, TargetIp: text(m.TargetIP)})
	}
	return p
}

func (r *reader) requests(p *vipmovev1.Requests) diagnose.Requests {
	return diagnose.Requests{
		Witness: p.GetWitness(), Sent: p.GetSent(), Succeeded: p.GetSucceeded(), Failed: p.GetFailed(),
		NeighbourMAC: r.mac("neighbour mac", p.GetNeighbourMac()), OpenGap: r.duration("open gap", p.GetOpenGap()),
		LastError: p.GetLastError(),
	}
}

func requestsToProto(q diagnose.Requests) *vipmovev1.Requests {
	return &vipmovev1.Requests{
		Witness: q.Witness, Sent: q.Sent, Succeeded: q.Succeeded, Failed: q.Failed,
		NeighbourMac: q.NeighbourMAC, OpenGap: durationToProto(q.OpenGap), LastError: q.LastError,
	}
}
