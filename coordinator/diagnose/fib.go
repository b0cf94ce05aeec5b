// SPDX-License-Identifier: Apache-2.0

package diagnose

import "net/netip"

// Routing tables (include/uapi/linux/rtnetlink.h).
const (
	tableDefault = 253
	tableMain    = 254
	tableLocal   = 255
)

// byKernel is the protocol of routes that the kernel made from addresses (RTPROT_KERNEL).
const byKernel = 2

// Kinds of route that matter for ARP, as `ip route` names them.
const (
	unicast   = "unicast"
	local     = "local"
	broadcast = "broadcast"
	anycast   = "anycast"
	multicast = "multicast"
	throw     = "throw"
)

var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// route is one entry as fib_lookup sees it.
type route struct {
	prefix netip.Prefix
	kind   string
	link   string
	table  uint32
	listed origin
}

// origin is what the ways of one multipath route have in common in a listing; zero where a route
// is not listed.
type origin struct {
	listed   bool
	protocol uint8
	source   netip.Addr
	scope    uint8
}

// fib is what a kernel's three own tables hold: what it listed, in its order, and then what it
// makes from its addresses by itself (fib_add_ifaddr, net/ipv4/fib_frontend.c).
type fib []route

func (k *Kernel) fib() fib {
	var f fib
	for _, r := range k.Routes {
		if !r.Prefix.IsValid() || !r.Prefix.Addr().Is4() {
			continue
		}
		e := route{prefix: r.Prefix.Masked(), kind: r.Type, link: k.linkName(r.Link, r.LinkIndex), table: r.Table,
			listed: origin{listed: true, protocol: r.Protocol, source: r.Source, scope: r.Scope}}
		if e.kind == "" {
			e.kind = unicast
		}
		if e.table == 0 {
			e.table = tableMain
			if e.kind == local || e.kind == broadcast {
				e.table = tableLocal
			}
		}
		if e.table >= tableDefault && e.table <= tableLocal {
			f = append(f, e) // another table is reached by a policy rule only
		}
	}
	for _, a := range k.Addresses {
		if a.Prefix.IsValid() && a.Prefix.Addr().Is4() {
			f = append(f, k.madeBy(a)...)
		}
	}
	return f
}

// Flags of an address (include/uapi/linux/if_addr.h).
const (
	secondaryAddress = 0x01
	noPrefixRoute    = 0x200
)

// madeBy lists the routes of one address. The local one is there whether the link is up or not.
func (k *Kernel) madeBy(a Address) []route {
	link := k.linkName(a.Link, a.LinkIndex)
	host := func(ip netip.Addr, kind string) route {
		return route{prefix: netip.PrefixFrom(ip, 32), kind: kind, link: link, table: tableLocal}
	}
	out := []route{host(a.Prefix.Addr(), local)}
	l := k.link(link)
	if l == nil || (!l.Up && !isLoopback(*l)) { // local routes outlive their link's going down
		return out
	}
	if b := a.Broadcast; b.Is4() && b != limitedBroadcast {
		out = append(out, host(b, broadcast))
	}
	subnet := a.subnet()
	if subnet.Addr().IsUnspecified() || a.Flags&secondaryAddress != 0 ||
		(subnet.Addr() == a.Prefix.Addr() && subnet.Bits() == 32) {
		return out
	}
	if a.Flags&noPrefixRoute == 0 {
		made := route{prefix: subnet, kind: unicast, link: link, table: tableMain}
		if isLoopback(*l) {
			made.kind, made.table = local, tableLocal
		}
		out = append(out, made)
	}
	if subnet.Bits() < 31 {
		out = append(out, host(lastAddr(subnet), broadcast))
	}
	return out
}

// subnet is what inet_ifa_match compares with: the peer's where there is one.
func (a Address) subnet() netip.Prefix {
	if a.Peer.IsValid() && a.Peer.Addr().Is4() {
		return netip.PrefixFrom(a.Peer.Addr(), a.Prefix.Bits()).Masked()
	}
	return a.Prefix.Masked()
}

func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}

func isLoopback(l Link) bool {
	const loopback = 0x8 // IFF_LOOPBACK
	return l.Type == "loopback" || l.Flags&loopback != 0
}
