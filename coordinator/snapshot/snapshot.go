// SPDX-License-Identifier: Apache-2.0

// Package snapshot converts between the wire's messages and the plain types that diagnose judges.
// A snapshot's JSON form is protojson of vipmove.v1.Snapshot.
//
// What a judgement does not read is dropped on the way in: versions, times of reading, lifetimes of
// rounds. Snapshot.Without is the operator's and no part of the message.
package snapshot

import (
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// SchemaVersion is the meaning of a Snapshot that this version writes and the newest it reads. A
// file without one is read as version 1.
const SchemaVersion = 1

// FromProto reads a snapshot. Absent fields stay unknown. It refuses a newer schema, and everything
// malformed with an error that names where it stands: a value that cannot be read is not skipped.
func FromProto(p *vipmovev1.Snapshot) (diagnose.Snapshot, error) {
	if v := p.GetSchemaVersion(); v < 0 || v > SchemaVersion {
		return diagnose.Snapshot{}, fmt.Errorf("reading snapshot: %w", newerSchema(v))
	}
	r := &reader{}
	s := r.snapshot(p)
	if r.err != nil {
		return diagnose.Snapshot{}, fmt.Errorf("reading snapshot: %w", r.err)
	}
	return s, nil
}

func (r *reader) snapshot(p *vipmovev1.Snapshot) diagnose.Snapshot {
	s := diagnose.Snapshot{VIP: r.addr("vip", p.GetVip()), Interface: p.GetInterface()}
	if t := p.GetTakenAt(); t != nil {
		s.TakenAt = t.AsTime()
	}
	for i, n := range p.GetNodes() {
		r.in(fmt.Sprintf("node %s", nameOr(n.GetName(), i)), func() { s.Nodes = append(s.Nodes, r.node(n)) })
	}
	for i, q := range p.GetRounds() {
		r.in(fmt.Sprintf("round %d of %s", i+1, q.GetObserver()), func() { s.Rounds = append(s.Rounds, r.round(q)) })
	}
	for _, g := range p.GetOutgoing() {
		r.in("outgoing of "+g.GetNode(), func() {
			if of := r.addr("vip", g.GetVip()); of == s.VIP || !of.IsValid() {
				s.Outgoing = append(s.Outgoing, r.outgoing(g))
			}
		})
	}
	for _, q := range p.GetRequests() {
		r.in("requests of "+q.GetWitness(), func() { s.Requests = append(s.Requests, r.requests(q)) })
	}
	return s
}

// ToProto writes a snapshot with this version's schema version.
func ToProto(s diagnose.Snapshot) *vipmovev1.Snapshot {
	p := &vipmovev1.Snapshot{SchemaVersion: SchemaVersion, Vip: text(s.VIP), Interface: s.Interface}
	if !s.TakenAt.IsZero() {
		p.TakenAt = timestamppb.New(s.TakenAt)
	}
	for _, n := range s.Nodes {
		p.Nodes = append(p.Nodes, nodeToProto(n))
	}
	for _, q := range s.Rounds {
		p.Rounds = append(p.Rounds, roundToProto(q))
	}
	for _, g := range s.Outgoing {
		p.Outgoing = append(p.Outgoing, outgoingToProto(g))
	}
	for _, q := range s.Requests {
		p.Requests = append(p.Requests, requestsToProto(q))
	}
	return p
}

func nameOr(name string, i int) string {
	if name == "" {
		return fmt.Sprintf("%d", i+1)
	}
	return name
}
