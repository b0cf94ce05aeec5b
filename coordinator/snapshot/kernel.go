// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"net/netip"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func (r *reader) kernel(p *vipmovev1.KernelState) *diagnose.Kernel {
	k := &diagnose.Kernel{
		BootID: p.GetBootId(), All: sysctls(p.GetSysctlsAll()), IPForward: number(p.IpForward),
		IPVS:       r.ipvs(p.GetIpvs()),
		KubeProxy:  diagnose.KubeProxy{State: proxyStates[p.GetKubeProxy().GetState()], Mode: p.GetKubeProxy().GetMode(), Detail: p.GetKubeProxy().GetDetail()},
		ARPPath:    diagnose.ARPPath{Unknown: p.GetArpPath().GetUnknown(), Reasons: p.GetArpPath().GetReasons()},
		Incomplete: p.GetIncomplete(),
	}
	for i, l := range p.GetLinks() {
		r.in("link "+nameOr(l.GetName(), i), func() { k.Links = append(k.Links, r.link(l)) })
	}
	for i, a := range p.GetAddresses() {
		r.in(fmt.Sprintf("address %d", i+1), func() { k.Addresses = append(k.Addresses, r.address(a)) })
	}
	for i, e := range p.GetRoutes() {
		r.in(fmt.Sprintf("route %d", i+1), func() { k.Routes = append(k.Routes, r.route(e)) })
	}
	for i, n := range p.GetNeighbours() {
		r.in(fmt.Sprintf("neighbour %d", i+1), func() {
			k.Neighbours = append(k.Neighbours, diagnose.Neighbour{
				IP: r.addr("ip", n.GetIp()), MAC: r.mac("mac", n.GetMac()), Link: n.GetLink(), State: n.GetState(),
			})
		})
	}
	return k
}

func kernelToProto(k diagnose.Kernel) *vipmovev1.KernelState {
	p := &vipmovev1.KernelState{
		BootId: k.BootID, SysctlsAll: sysctlsToProto(k.All), IpForward: numberToProto(k.IPForward),
		Ipvs: ipvsToProto(k.IPVS),
		KubeProxy: &vipmovev1.KubeProxy{
			State: wireOf(proxyStates, k.KubeProxy.State), Mode: k.KubeProxy.Mode, Detail: k.KubeProxy.Detail,
		},
		ArpPath:    &vipmovev1.ArpPath{Unknown: k.ARPPath.Unknown, Reasons: k.ARPPath.Reasons},
		Incomplete: k.Incomplete,
	}
	for _, l := range k.Links {
		p.Links = append(p.Links, linkToProto(l))
	}
	for _, a := range k.Addresses {
		p.Addresses = append(p.Addresses, AddressToProto(a))
	}
	for _, e := range k.Routes {
		p.Routes = append(p.Routes, routeToProto(e))
	}
	for _, n := range k.Neighbours {
		p.Neighbours = append(p.Neighbours, &vipmovev1.Neighbour{Ip: text(n.IP), Mac: n.MAC, Link: n.Link, State: n.State})
	}
	return p
}

func (r *reader) link(p *vipmovev1.Link) diagnose.Link {
	return diagnose.Link{
		Name: p.GetName(), Index: int(p.GetIndex()), Kind: p.GetKind(),
		MasterIndex: int(p.GetMasterIndex()), ParentIndex: int(p.GetParentIndex()),
		MAC: r.mac("mac", p.GetMac()), PermanentMAC: r.mac("permanent mac", p.GetPermanentMac()),
		Flags: p.GetFlags(), Up: p.GetUp(), Carrier: p.GetCarrier(), Type: p.GetType(), BridgePort: p.GetBridgePort(),
		Sysctls: sysctls(p.GetSysctls()),
	}
}

func linkToProto(l diagnose.Link) *vipmovev1.Link {
	return &vipmovev1.Link{
		Name: l.Name, Index: int32(l.Index), Kind: l.Kind, MasterIndex: int32(l.MasterIndex), ParentIndex: int32(l.ParentIndex),
		Mac: l.MAC, PermanentMac: l.PermanentMAC, Flags: l.Flags, Up: l.Up, Carrier: l.Carrier,
		Type: l.Type, BridgePort: l.BridgePort, Sysctls: sysctlsToProto(l.Sysctls),
	}
}

func sysctls(p *vipmovev1.Sysctls) diagnose.Sysctls {
	if p == nil {
		return diagnose.Sysctls{}
	}
	return diagnose.Sysctls{
		ArpIgnore: number(p.ArpIgnore), ArpAnnounce: number(p.ArpAnnounce), ArpFilter: number(p.ArpFilter),
		ProxyArp: number(p.ProxyArp), RpFilter: number(p.RpFilter), PromoteSecondaries: number(p.PromoteSecondaries),
		RouteLocalnet: number(p.RouteLocalnet), AcceptLocal: number(p.AcceptLocal), Forwarding: number(p.Forwarding),
	}
}

func sysctlsToProto(s diagnose.Sysctls) *vipmovev1.Sysctls {
	return &vipmovev1.Sysctls{
		ArpIgnore: numberToProto(s.ArpIgnore), ArpAnnounce: numberToProto(s.ArpAnnounce), ArpFilter: numberToProto(s.ArpFilter),
		ProxyArp: numberToProto(s.ProxyArp), RpFilter: numberToProto(s.RpFilter), PromoteSecondaries: numberToProto(s.PromoteSecondaries),
		RouteLocalnet: numberToProto(s.RouteLocalnet), AcceptLocal: numberToProto(s.AcceptLocal), Forwarding: numberToProto(s.Forwarding),
	}
}

var ipvsStates = map[vipmovev1.Ipvs_State]diagnose.IPVSState{
	vipmovev1.Ipvs_STATE_ABSENT:     diagnose.IPVSAbsent,
	vipmovev1.Ipvs_STATE_NONE:       diagnose.IPVSNone,
	vipmovev1.Ipvs_STATE_PRESENT:    diagnose.IPVSPresent,
	vipmovev1.Ipvs_STATE_UNREADABLE: diagnose.IPVSUnreadable,
}

// A state that this version does not know is unknown.
var proxyStates = map[vipmovev1.KubeProxy_State]diagnose.KubeProxyState{
	vipmovev1.KubeProxy_STATE_ABSENT:          diagnose.KubeProxyAbsent,
	vipmovev1.KubeProxy_STATE_RUNNING:         diagnose.KubeProxyRunning,
	vipmovev1.KubeProxy_STATE_UNKNOWN_MANAGER: diagnose.KubeProxyUnknownManager,
}

// ipvs keeps address and port of each service, and the number of those that have a firewall mark
// in their place. A service with neither is an error.
func (r *reader) ipvs(p *vipmovev1.Ipvs) diagnose.IPVS {
	i := diagnose.IPVS{State: ipvsStates[p.GetState()], Reason: p.GetReason()}
	for n, s := range p.GetServices() {
		switch a := r.addr(fmt.Sprintf("ipvs service %d", n+1), s.GetAddress()); {
		case a.IsValid() && s.GetPort() > 65535:
			r.bad(fmt.Sprintf("ipvs service %d", n+1), fmt.Errorf("port %d", s.GetPort()))
		case a.IsValid():
			i.Services = append(i.Services, netip.AddrPortFrom(a, uint16(s.GetPort())))
		case s.GetFwmark() != 0:
			i.Marks++
		default:
			r.bad(fmt.Sprintf("ipvs service %d", n+1), fmt.Errorf("neither address nor firewall mark"))
		}
	}
	return i
}

func ipvsToProto(i diagnose.IPVS) *vipmovev1.Ipvs {
	p := &vipmovev1.Ipvs{State: wireOf(ipvsStates, i.State), Reason: i.Reason}
	for _, s := range i.Services {
		p.Services = append(p.Services, &vipmovev1.IpvsService{Address: s.Addr().String(), Port: uint32(s.Port())})
	}
	for n := range i.Marks {
		p.Services = append(p.Services, &vipmovev1.IpvsService{Fwmark: uint32(n + 1)}) // the marks themselves are not kept
	}
	return p
}

// wireOf is the wire's value of a state, its zero for one without.
func wireOf[W, S comparable](states map[W]S, state S) (wire W) {
	for w, s := range states {
		if s == state {
			wire = w
		}
	}
	return wire
}
