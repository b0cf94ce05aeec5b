// SPDX-License-Identifier: Apache-2.0

// Package report puts what a node's kernel and the wire said into the messages
// of proto/vipmove/v1, and carries out the three orders that only look: read
// the kernel, probe, capture. Agent and witness share it. It judges nothing.
package report

import (
	"net/netip"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/agent/host"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// KernelState puts one reading into its message. read_at, a wall-clock time
// that host.State does not have, is left for the caller.
func KernelState(s host.State) *vipmovev1.KernelState {
	k := &vipmovev1.KernelState{
		BootId:      s.BootID,
		Boottime:    durationpb.New(s.BootTime),
		SysctlsAll:  sysctls(s.AllSysctls),
		IpForward:   number(s.IPForward),
		Ipvs:        ipvs(s.IPVS),
		KubeProxy:   kubeProxy(s.KubeProxy),
		ArpPath:     &vipmovev1.ArpPath{Unknown: s.ARPPath.Unknown, Reasons: s.ARPPath.Reasons},
		Incomplete:  s.Incomplete,
		DumpRetries: uint32(s.DumpRetries),
	}
	names := make(map[int]string, len(s.Links))
	for _, l := range s.Links {
		names[l.Index] = l.Name
		k.Links = append(k.Links, link(l, s.LinkSysctls))
	}
	for _, a := range s.Addresses {
		k.Addresses = append(k.Addresses, AddressToProto(a.Tuple()))
	}
	for _, r := range s.Routes {
		k.Routes = append(k.Routes, routes(r, names)...)
	}
	for _, n := range s.Neighbours {
		k.Neighbours = append(k.Neighbours, &vipmovev1.Neighbour{
			Ip: text(n.IP), Mac: n.MAC, Link: n.Link, State: n.State,
		})
	}
	return k
}

func link(l host.Link, settings map[string]host.Sysctls) *vipmovev1.Link {
	p := &vipmovev1.Link{
		Name: l.Name, Index: int32(l.Index), Kind: l.Kind,
		MasterIndex: int32(l.MasterIndex), ParentIndex: int32(l.ParentIndex),
		Mac: l.MAC, PermanentMac: l.PermanentMAC,
		Flags: l.Flags, Up: l.Up, Carrier: l.Carrier,
		Type: l.Type, Mtu: int32(l.MTU), BridgePort: l.BridgePort,
	}
	// No entry: nothing could be read, and every field stays unknown.
	if s, ok := settings[l.Name]; ok {
		p.Sysctls = sysctls(s)
	}
	return p
}

func sysctls(s host.Sysctls) *vipmovev1.Sysctls {
	return &vipmovev1.Sysctls{
		ArpIgnore: number(s.ArpIgnore), ArpAnnounce: number(s.ArpAnnounce), ArpFilter: number(s.ArpFilter),
		ProxyArp: number(s.ProxyArp), RpFilter: number(s.RpFilter),
		PromoteSecondaries: number(s.PromoteSecondaries),
		RouteLocalnet:      number(s.RouteLocalnet), AcceptLocal: number(s.AcceptLocal),
		Forwarding: number(s.Forwarding),
	}
}

// routes gives one message for each next hop, since a message names one: of a
// multipath route no gateway may be forgotten. names are link names by index.
func routes(r host.Route, names map[int]string) []*vipmovev1.Route {
	one := func(name string, index int, gateway netip.Addr) *vipmovev1.Route {
		return &vipmovev1.Route{
			Prefix: prefix(r.Prefix), Type: r.Type, Table: r.Table,
			Link: name, LinkIndex: int32(index),
			Source: text(r.Source), Gateway: text(gateway),
			Scope: uint32(r.Scope), Protocol: uint32(r.Protocol),
		}
	}
	if len(r.Links) <= 1 && len(r.Gateways) <= 1 {
		var gateway netip.Addr
		if len(r.Gateways) == 1 {
			gateway = r.Gateways[0]
		}
		return []*vipmovev1.Route{one(r.Link, r.LinkIndex, gateway)}
	}
	// Where some hop has no gateway nobody can tell which: links and gateways
	// then stand alone.
	paired := len(r.Links) == len(r.Gateways)
	var list []*vipmovev1.Route
	for i, index := range r.Links {
		var gateway netip.Addr
		if paired {
			gateway = r.Gateways[i]
		}
		list = append(list, one(names[index], index, gateway))
	}
	if !paired {
		for _, gateway := range r.Gateways {
			list = append(list, one("", 0, gateway))
		}
	}
	return list
}

func ipvs(i host.IPVS) *vipmovev1.Ipvs {
	states := map[host.IPVSState]vipmovev1.Ipvs_State{
		host.IPVSAbsent:     vipmovev1.Ipvs_STATE_ABSENT,
		host.IPVSNone:       vipmovev1.Ipvs_STATE_NONE,
		host.IPVSPresent:    vipmovev1.Ipvs_STATE_PRESENT,
		host.IPVSUnreadable: vipmovev1.Ipvs_STATE_UNREADABLE,
	}
	p := &vipmovev1.Ipvs{State: states[i.State], Reason: i.Reason, Source: i.Source}
	for _, s := range i.Services {
		p.Services = append(p.Services, &vipmovev1.IpvsService{
			Address: text(s.Address), Port: uint32(s.Port), Protocol: s.Protocol, Fwmark: s.FWMark,
		})
	}
	return p
}

// kubeProxy leaves the state unspecified where it is unknown: the contract has
// no value for that but its zero.
func kubeProxy(k host.KubeProxy) *vipmovev1.KubeProxy {
	states := map[host.KubeProxyState]vipmovev1.KubeProxy_State{
		host.KubeProxyAbsent:         vipmovev1.KubeProxy_STATE_ABSENT,
		host.KubeProxyRunning:        vipmovev1.KubeProxy_STATE_RUNNING,
		host.KubeProxyUnknownManager: vipmovev1.KubeProxy_STATE_UNKNOWN_MANAGER,
	}
	return &vipmovev1.KubeProxy{State: states[k.State], Mode: k.Mode, Detail: k.Detail}
}

func number(v *int) *int32 {
	if v == nil {
		return nil
	}
	n := int32(*v)
	return &n
}

// text is empty for the zero Addr, as the contract has it.
func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func prefix(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

// addresses parses each, dropping none: the first that is no address is the error.
func addresses(list []string) ([]netip.Addr, error) {
	out := make([]netip.Addr, 0, len(list))
	for _, s := range list {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(out, a.Unmap()) {
			out = append(out, a.Unmap())
		}
	}
	return out, nil
}
