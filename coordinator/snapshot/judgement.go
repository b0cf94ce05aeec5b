// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// ReportToProto writes a judgement as it stood at the given time; the zero time is left out.
// Verdicts, states, severities and codes go as the constants' own text.
func ReportToProto(r diagnose.Report, at time.Time) *vipmovev1.Judgement {
	p := &vipmovev1.Judgement{
		Vip: text(r.VIP), Verdict: string(r.Verdict), Owner: r.Owner, OwnerReason: r.OwnerReason,
		Segment: &vipmovev1.Segment{Prefix: prefixText(r.Segment.Prefix), Interfaces: r.Segment.Interfaces, Reason: r.Segment.Reason},
	}
	if !at.IsZero() {
		p.At = timestamppb.New(at)
	}
	for _, x := range r.Responders {
		p.Responders = append(p.Responders, responder(x))
	}
	for _, h := range r.Holders {
		p.Holders = append(p.Holders, holder(h))
	}
	for _, o := range r.Observers {
		p.Observers = append(p.Observers, observer(o))
	}
	for _, f := range r.Findings {
		p.Findings = append(p.Findings, FindingToProto(f))
	}
	return p
}

func responder(x diagnose.Responder) *vipmovev1.Responder {
	return &vipmovev1.Responder{
		Node: x.Node, Interface: x.Interface, Mac: x.MAC, Announcer: string(x.Announcer), Reason: x.Reason, SeenBy: x.SeenBy,
		RepliesPerRequest: uint32(x.RepliesPerRequest), AnswersQuestion: x.AnswersQuestion, Mismatched: x.Mismatched,
		Fastest: durationpb.New(x.Fastest), Muted: string(x.Muted), MutedReason: x.MutedReason,
	}
}

// holder writes a local route without an address as the link and prefix of that route; the reason
// says that it is one.
func holder(h diagnose.Holder) *vipmovev1.Holder {
	p := &vipmovev1.Holder{Node: h.Node, State: string(h.State), Reason: h.Reason}
	if h.Route != nil {
		p.Address = &vipmovev1.Address{Link: h.Route.Link, LinkIndex: int32(h.Route.LinkIndex), Prefix: prefixText(h.Route.Prefix)}
	} else {
		p.Address = AddressToProto(h.Address)
	}
	return p
}

func observer(o diagnose.ObserverView) *vipmovev1.ObserverView {
	p := &vipmovev1.ObserverView{
		Observer: o.Observer, Role: wireOf(roles, o.Role), Interface: o.Interface, State: string(o.State), Detail: o.Detail,
		Rounds: uint32(o.Rounds), Replies: make(map[string]uint32, len(o.Replies)),
	}
	for mac, n := range o.Replies {
		p.Replies[mac] = uint32(n)
	}
	return p
}

// FindingToProto writes one finding; whether it is overridden is the plan's to say.
func FindingToProto(f diagnose.Finding) *vipmovev1.Finding {
	return &vipmovev1.Finding{
		Code: string(f.Code), Severity: string(f.Severity), Nodes: f.Nodes, Subject: f.Subject,
		Message: f.Message, Evidence: f.Evidence, NextStep: f.NextStep,
	}
}
