// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"net/netip"
)

// ownAddress refuses a VIP that is a node's own address: on a real NIC with a subnet, or the only
// address that the node has on its NICs, or the source of one of its routes. What stands on a
// NIC as a host address beside others is left to ADDRESS_ON_NIC: a VIP manager puts it there.
func (n *Node) ownAddress(vip netip.Addr, c *collector) {
	k := n.Kernel
	for _, a := range k.Addresses {
		link := k.linkName(a.Link, a.LinkIndex)
		if a.Prefix.Addr() != vip || k.onlyCarries(link) {
			continue
		}
		switch {
		case !a.Prefix.IsSingleIP():
			c.add(VIPIsNodeAddress, Refuse, n.Name, fmt.Sprintf("%s: %s on %s, with its subnet", n.Name, a.Prefix, link))
		case k.isSource(vip):
			c.add(VIPIsNodeAddress, Refuse, n.Name, fmt.Sprintf("%s: %s on %s is the source of a route", n.Name, a.Prefix, link))
		case k.onlyAddress(vip):
			c.add(VIPIsNodeAddress, Refuse, n.Name, fmt.Sprintf("%s: %s on %s is its only address", n.Name, a.Prefix, link))
		}
	}
}

func (k *Kernel) isSource(ip netip.Addr) bool {
	for _, r := range k.Routes {
		if r.Source == ip && r.Type != local && r.Type != broadcast {
			return true
		}
	}
	return false
}

// onlyAddress: no other global IPv4 address on any link but loopback and those that only carry.
func (k *Kernel) onlyAddress(ip netip.Addr) bool {
	for _, a := range k.Addresses {
		link := k.linkName(a.Link, a.LinkIndex)
		l := k.link(link)
		if a.Prefix.Addr() != ip && a.Prefix.Addr().Is4() && !a.Prefix.Addr().IsLoopback() && a.Scope < scopeLink &&
			!k.onlyCarries(link) && (l == nil || !isLoopback(*l)) {
			return false
		}
	}
	return true
}
