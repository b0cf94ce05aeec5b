// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"net/netip"
	"slices"
)

// refusesSource is fib_validate_source (net/ipv4/fib_frontend.c): whether a request from this sender
// is dropped.
func (r *request) refusesSource(s settings) bool {
	if s.rpFilter == 0 && s.acceptLocal {
		return false
	}
	if s.rpFilter == 0 && !s.checksLocalRoutes {
		return r.ownSIP
	}
	switch {
	case s.sip.kind == "":
		return s.rpFilter != 0
	case s.sip.kind != unicast && (s.sip.kind != local || !s.acceptLocal):
		return true
	case s.sip.link == r.nic.Name, s.rpFilter == 0:
		return false
	}
	return s.rpFilter == 1 || r.unnumbered() // else loose: any way back will do
}

// filtered is arp_filter() (net/ipv4/arp.c): whether a reply would leave by another link, or not at
// all (ip_route_output from the VIP, which must be an address or local by table local for that).
func (r *request) filtered(s settings) bool {
	if !s.byLocalTable() && !slices.ContainsFunc(r.kernel.Addresses, func(a Address) bool { return a.Prefix.Addr() == r.vip }) {
		return true
	}
	return s.sip.kind == "" || s.sip.kind == local || s.sip.link != r.nic.Name
}

// unnumbered: the NIC has no IPv4 address, where even loose rp_filter wants the way back to be itself.
func (r *request) unnumbered() bool {
	for _, a := range r.kernel.Addresses {
		if a.Prefix.Addr().Is4() && r.on(a, r.nic.Name) {
			return false
		}
	}
	return true
}

func (r *request) on(a Address, link string) bool {
	return r.kernel.linkName(a.Link, a.LinkIndex) == link
}

// hidden is arp_ignore() (net/ipv4/arp.c). 4 to 7 are reserved and all above 8 unknown: both are 0.
func (r *request) hidden(s settings) bool {
	switch s.arpIgnore {
	case 1:
		return !r.confirm(r.nic, netip.Addr{}, scopeHost, s)
	case 2:
		return !r.confirm(r.nic, r.sip, scopeHost, s)
	case 3:
		for i := range r.kernel.Links {
			if r.confirm(&r.kernel.Links[i], netip.Addr{}, scopeLink, s) {
				return false
			}
		}
		return true
	}
	return s.arpIgnore == 8
}

// confirm is confirm_addr_indev (net/ipv4/devinet.c): the link has the VIP within scope, and a
// subnet that holds it and, where one is given, dst too; not necessarily the VIP's own subnet.
func (r *request) confirm(l *Link, dst netip.Addr, scope uint8, s settings) bool {
	least := uint8(scopeHost)
	if known := orOf(r.kernel.All.RouteLocalnet, l.Sysctls.RouteLocalnet); len(known) == 1 && known[0] ||
		len(known) > 1 && s.localnetElsewhere {
		least = scopeLink
	}
	anyDst := !dst.IsValid() || dst.IsUnspecified()
	var has, same bool
	for _, a := range r.kernel.Addresses {
		if !a.Prefix.Addr().Is4() || !r.on(a, l.Name) {
			continue
		}
		has = has || a.Prefix.Addr() == r.vip && min(a.Scope, least) <= scope
		same = same || a.subnet().Contains(r.vip) && (anyDst || a.subnet().Contains(dst))
	}
	return has && same
}

// neighbourOf picks an address that an ordinary neighbour on this NIC could have: in the NIC's
// subnet, the one with the VIP if there is one, routed back through it, and nobody's here.
func neighbourOf(k *Kernel, f fib, nic *Link, vip netip.Addr) netip.Addr {
	subnet := k.ownSubnet(nic.Name, vip)
	if !subnet.IsValid() {
		subnet = netip.PrefixFrom(vip, 24).Masked()
	}
	first := subnet.Addr().Next()
	for ip, tries := first, 0; tries < 1024 && subnet.Contains(ip); ip, tries = ip.Next(), tries+1 {
		if w := f.lookup(ip); ip != vip && len(w) == 1 && w[0].kind == unicast && w[0].link == nic.Name {
			return ip
		}
	}
	if first == vip {
		return first.Next()
	}
	return first
}

// ownSubnet is the subnet of the NIC's own addresses that holds the VIP, else its longest; the
// VIP's own entry and host prefixes do not count. The zero Prefix: none.
func (k *Kernel) ownSubnet(nic string, vip netip.Addr) netip.Prefix {
	var best netip.Prefix
	for _, a := range k.Addresses {
		if !a.Prefix.IsValid() || a.Prefix.Addr() == vip || a.Prefix.Addr().Is4() != vip.Is4() ||
			k.linkName(a.Link, a.LinkIndex) != nic {
			continue
		}
		s := a.subnet()
		if !s.IsSingleIP() && (!best.IsValid() || nearer(s, best, vip)) {
			best = s
		}
	}
	return best
}

// nearer prefers the subnet with the VIP, then the longer, then the lower.
func nearer(a, b netip.Prefix, vip netip.Addr) bool {
	if a.Contains(vip) != b.Contains(vip) {
		return a.Contains(vip)
	}
	if a.Bits() != b.Bits() {
		return a.Bits() > b.Bits()
	}
	return a.Addr().Less(b.Addr())
}
