// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

var roles = map[vipmovev1.ObserverRole]diagnose.Role{
	vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT:   diagnose.RoleAgent,
	vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS: diagnose.RoleWitness,
}

// node reads an observer. A role that is not known is an error: an agent taken for a witness
// would be one whose unread inventory blocks nothing.
func (r *reader) node(p *vipmovev1.Node) diagnose.Node {
	n := diagnose.Node{
		Name: p.GetName(), Role: roles[p.GetRole()], Connected: p.GetConnected(),
		CanAct: p.GetCanAct(), CannotActReason: p.GetCannotActReason(), ControlPlane: p.GetControlPlane(),
	}
	if n.Name == "" {
		r.bad("name", fmt.Errorf("it has none"))
	}
	if n.Role == "" {
		r.bad("role", fmt.Errorf("%s is neither agent nor witness", p.GetRole()))
	}
	if p.GetKernel() != nil {
		n.Kernel = r.kernel(p.GetKernel())
	}
	if u := p.GetPendingUndo(); u != nil {
		n.PendingUndo = &diagnose.PendingUndo{
			RunID: u.GetRunId(), Step: u.GetStep(), Blocked: u.GetBlocked(),
			Prefix: r.prefix("pending undo", u.GetAddress().GetPrefix()),
		}
	}
	return n
}

func nodeToProto(n diagnose.Node) *vipmovev1.Node {
	p := &vipmovev1.Node{
		Name: n.Name, Connected: n.Connected,
		CanAct: n.CanAct, CannotActReason: n.CannotActReason, ControlPlane: n.ControlPlane,
	}
	for wire, role := range roles {
		if role == n.Role {
			p.Role = wire
		}
	}
	if n.Kernel != nil {
		p.Kernel = kernelToProto(*n.Kernel)
	}
	if u := n.PendingUndo; u != nil {
		p.PendingUndo = &vipmovev1.PendingUndo{RunId: u.RunID, Step: u.Step, Blocked: u.Blocked}
		if u.Prefix.IsValid() {
			p.PendingUndo.Address = &vipmovev1.Address{Prefix: u.Prefix.String()}
		}
	}
	return p
}

// AddressFromProto reads one exact tuple, as a command names it and an undo restores it.
func AddressFromProto(p *vipmovev1.Address) (diagnose.Address, error) {
	r := &reader{}
	a := r.address(p)
	if r.err != nil {
		return diagnose.Address{}, fmt.Errorf("reading address: %w", r.err)
	}
	return a, nil
}

func (r *reader) address(p *vipmovev1.Address) diagnose.Address {
	a := diagnose.Address{
		Link: p.GetLink(), LinkIndex: int(p.GetLinkIndex()), Prefix: r.prefix("prefix", p.GetPrefix()),
		Scope: r.small("scope", p.GetScope()), Label: p.GetLabel(), Flags: p.GetFlags(),
		ValidLifetime: p.GetValidLifetime(), PreferredLife: p.GetPreferredLifetime(),
		Peer: r.prefix("peer", p.GetPeer()), Broadcast: r.addr("broadcast", p.GetBroadcast()),
	}
	if !a.Prefix.IsValid() {
		r.bad("prefix", fmt.Errorf("it has none"))
	}
	return a
}

// AddressToProto writes one exact tuple.
func AddressToProto(a diagnose.Address) *vipmovev1.Address {
	return &vipmovev1.Address{
		Link: a.Link, LinkIndex: int32(a.LinkIndex), Prefix: prefixText(a.Prefix),
		Scope: uint32(a.Scope), Label: a.Label, Flags: a.Flags,
		ValidLifetime: a.ValidLifetime, PreferredLifetime: a.PreferredLife,
		Peer: prefixText(a.Peer), Broadcast: text(a.Broadcast),
	}
}

func (r *reader) route(p *vipmovev1.Route) diagnose.Route {
	e := diagnose.Route{
		Prefix: r.prefix("prefix", p.GetPrefix()), Type: p.GetType(), Table: p.GetTable(),
		Link: p.GetLink(), LinkIndex: int(p.GetLinkIndex()),
		Source: r.addr("source", p.GetSource()), Gateway: r.addr("gateway", p.GetGateway()),
		Scope: r.small("scope", p.GetScope()), Protocol: r.small("protocol", p.GetProtocol()),
	}
	if !e.Prefix.IsValid() {
		r.bad("prefix", fmt.Errorf("it has none"))
	}
	return e
}

func routeToProto(e diagnose.Route) *vipmovev1.Route {
	return &vipmovev1.Route{
		Prefix: prefixText(e.Prefix), Type: e.Type, Table: e.Table, Link: e.Link, LinkIndex: int32(e.LinkIndex),
		Source: text(e.Source), Gateway: text(e.Gateway), Scope: uint32(e.Scope), Protocol: uint32(e.Protocol),
	}
}
