// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vipmove/vipmove/agent/host"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// checkOwn: the address is not one that the node itself lives by.
func checkOwn(_ Policy, s host.State, e Prepared) *vipmovev1.Refusal {
	const never = "leave it: this is never removed, and no override changes that"
	ip := e.Entry.Prefix.Addr()
	for _, a := range s.Addresses {
		if a.Prefix.Addr() != ip || !carries(linkOf(s, a.LinkIndex)) || linkOf(s, a.LinkIndex).Type == "loopback" {
			continue
		}
		if a.LinkIndex != e.Entry.LinkIndex {
			return refuse(vipmovev1.Refusal_NODE_OWN_ADDRESS, never, "%s is also an address of %s, a NIC of this node", ip, a.Link)
		}
		if first(s, a) {
			return refuse(vipmovev1.Refusal_NODE_OWN_ADDRESS, never, "%s is the first address of %s, so this node's own", ip, a.Link)
		}
	}
	for _, r := range s.Routes {
		if slices.Contains(r.Gateways, ip) {
			return refuse(vipmovev1.Refusal_GATEWAY_ADDRESS, never, "%s is the gateway of route %s", ip, r.Prefix)
		}
		if r.Type == "unicast" && r.Source == ip {
			return refuse(vipmovev1.Refusal_ROUTE_SOURCE, never, "%s is the source address of route %s", ip, r.Prefix)
		}
	}
	return nil
}

// first reports whether a is the first IPv4 address that its link lists.
func first(s host.State, a host.Address) bool {
	for _, other := range s.Addresses {
		if other.LinkIndex == a.LinkIndex && other.Prefix.Addr().Is4() {
			return other == a
		}
	}
	return false
}

// checkOtherLinks: no other link holds the address, but for a dummy that is
// known by name and is left alone.
func checkOtherLinks(_ Policy, s host.State, e Prepared) *vipmovev1.Refusal {
	for _, a := range twins(s, e.Entry) {
		if slices.Contains(managedDummies, a.Link) {
			continue
		}
		return refuse(vipmovev1.Refusal_ON_ANOTHER_LINK, "find out who put it there; removing one copy would leave the other answering",
			"%s is on %s too", a.Prefix.Addr(), a.Link)
	}
	return nil
}

// twins are the same IP on other links.
func twins(s host.State, t host.Tuple) []host.Address {
	var list []host.Address
	for _, a := range s.Addresses {
		if a.LinkIndex != t.LinkIndex && a.Prefix.Addr() == t.Prefix.Addr() {
			list = append(list, a)
		}
	}
	return list
}

// checkReadable: without the IPVS table nobody knows what is live. It comes
// before checkComplete, which would say less.
func checkReadable(_ Policy, s host.State, e Prepared) *vipmovev1.Refusal {
	switch s.IPVS.State {
	case host.IPVSAbsent, host.IPVSNone, host.IPVSPresent:
		return nil
	}
	return refuse(vipmovev1.Refusal_IPVS_UNREADABLE, "let the agent read IPVS (NET_ADMIN, or /proc/net/ip_vs)",
		"whether %s has an IPVS service cannot be read: %s", e.Entry.Prefix.Addr(), cmp.Or(s.IPVS.Reason, "not told why"))
}

// checkIPVS: nothing is served behind the address. Never overridden.
func checkIPVS(_ Policy, s host.State, e Prepared) *vipmovev1.Refusal {
	ip := e.Entry.Prefix.Addr()
	if !s.IPVS.Serves(ip) {
		return nil
	}
	return refuse(vipmovev1.Refusal_LIVE_IPVS_SERVICE, "leave it: removing it would cut that service off",
		"%s has an IPVS service behind it%s", ip, marked(s.IPVS, ip))
}

// marked says that only a firewall mark makes the address look live.
func marked(table host.IPVS, ip netip.Addr) string {
	if slices.ContainsFunc(table.Services, func(v host.IPVSService) bool { return v.Address == ip }) {
		return ""
	}
	return ", or may have: a service by firewall mark names no address"
}

// checkManager: whoever manages the link does not run here. The operator may
// override either code, by a recorded override of this run.
func checkManager(_ Policy, s host.State, e Prepared) *vipmovev1.Refusal {
	r := manager(s, e.Entry.Link)
	if r == nil || slices.Contains(e.Overrides, r.GetCode().String()) {
		return nil
	}
	return r
}

func manager(s host.State, link string) *vipmovev1.Refusal {
	unknown := func(format string, args ...any) *vipmovev1.Refusal {
		return refuse(vipmovev1.Refusal_UNKNOWN_MANAGER,
			"make sure that nothing here manages "+link+", then plan with the override UNKNOWN_MANAGER", format, args...)
	}
	switch s.KubeProxy.State {
	case host.KubeProxyRunning:
		return refuse(vipmovev1.Refusal_MANAGER_RUNNING, "remove kube-proxy from this node first: it puts the address back",
			"kube-proxy runs on this node (mode %s)", s.KubeProxy.Mode)
	case host.KubeProxyUnknownManager:
		return unknown("something may manage services on this node: %s", s.KubeProxy.Detail)
	case host.KubeProxyAbsent:
		if link != DefaultLink {
			return unknown("this agent cannot tell whether the manager of %s runs", link)
		}
		return nil
	}
	return unknown("whether kube-proxy runs on this node is not known: %s", s.KubeProxy.Detail)
}

func linkOf(s host.State, index int) host.Link {
	for _, l := range s.Links {
		if l.Index == index {
			return l
		}
	}
	return host.Link{Index: index}
}

func describe(a host.Address) string { return describeTuple(a.Tuple()) }

// describeTuple names what tells two addresses with one IP apart.
func describeTuple(t host.Tuple) string {
	parts := []string{t.Prefix.String(), fmt.Sprintf("scope %d", t.Scope)}
	if t.Label != "" {
		parts = append(parts, fmt.Sprintf("label %q", t.Label))
	}
	if t.Peer.IsValid() {
		parts = append(parts, "peer "+t.Peer.String())
	}
	return strings.Join(parts, " ")
}
