// SPDX-License-Identifier: Apache-2.0

//go:build linux

package oracle

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// configuration is how a node is set up, in order.
type configuration []step

// step is one command, and what it does.
type step interface {
	String() string // for sh
	apply(*node) error
}

func (c configuration) String() string {
	var b strings.Builder
	for _, s := range c {
		b.WriteString("\t" + s.String() + "\n")
	}
	return b.String()
}

// apply carries out what the kernel accepts, and returns that: a route by a
// link that is down, an address that is there twice and the like are no part of
// the configuration. The error is of another kind.
func (c configuration) apply(n *node) (configuration, error) {
	refusals := []error{unix.EEXIST, unix.EINVAL, unix.ENETUNREACH, unix.ENETDOWN, unix.EHOSTUNREACH, unix.ESRCH, unix.EADDRNOTAVAIL}
	var done configuration
	for _, s := range c {
		err := s.apply(n)
		switch {
		case err == nil:
			done = append(done, s)
		case !slices.ContainsFunc(refusals, func(known error) bool { return errors.Is(err, known) }):
			return done, fmt.Errorf("%s: %w", s, err)
		}
	}
	return done, nil
}

// setting is one sysctl of net/ipv4/conf.
type setting struct {
	scope, name string
	value       int
}

func (s setting) String() string {
	return fmt.Sprintf("sysctl -w net.ipv4.conf.%s.%s=%d", s.scope, s.name, s.value)
}

func (s setting) apply(n *node) error { return n.set(s.scope, s.name, fmt.Sprint(s.value)) }

// link sets a link up or down, or its ARP on or off.
type link struct{ name, state string }

func (l link) String() string { return fmt.Sprintf("ip link set dev %s %s", l.name, l.state) }

func (l link) apply(n *node) error {
	to := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: n.index[l.name]}}
	return map[string]func(netlink.Link) error{
		"up": n.netlink.LinkSetUp, "down": n.netlink.LinkSetDown,
		"arp on": n.netlink.LinkSetARPOn, "arp off": n.netlink.LinkSetARPOff,
	}[l.state](to)
}

// address is one of `ip address`. It has a broadcast address only where one is
// given, as with ip(8).
type address struct {
	verb, link    string // verb: add, del
	prefix, peer  netip.Prefix
	broadcast     netip.Addr
	scope         int
	noPrefixRoute bool
}

func (a address) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ip address %s", a.verb)
	if a.peer.IsValid() {
		fmt.Fprintf(&b, " %s peer %s", a.prefix.Addr(), a.peer)
	} else {
		fmt.Fprintf(&b, " %s", a.prefix)
	}
	if a.broadcast.IsValid() {
		fmt.Fprintf(&b, " broadcast %s", a.broadcast)
	}
	fmt.Fprintf(&b, " dev %s scope %d", a.link, a.scope)
	if a.noPrefixRoute {
		b.WriteString(" noprefixroute")
	}
	return b.String()
}

func (a address) apply(n *node) error {
	to := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: n.index[a.link]}}
	wanted := &netlink.Addr{IPNet: ipnet(a.prefix), Scope: a.scope, Broadcast: net.IPv4zero} // zero: none
	if a.broadcast.IsValid() {
		wanted.Broadcast = a.broadcast.AsSlice()
	}
	if a.peer.IsValid() {
		wanted.Peer = ipnet(a.peer)
	}
	if a.noPrefixRoute {
		wanted.Flags = unix.IFA_F_NOPREFIXROUTE
	}
	if a.verb == "del" {
		return n.netlink.AddrDel(to, wanted)
	}
	return n.netlink.AddrAdd(to, wanted)
}

// route is one of `ip route`. Without links it has none, with two it is multipath.
type route struct {
	verb, kind string // verb: add, append, del
	prefix     netip.Prefix
	links      []string
	via, src   netip.Addr
	table      int
	metric     int
}

var routeKinds = map[string]int{
	"unicast": unix.RTN_UNICAST, "local": unix.RTN_LOCAL, "broadcast": unix.RTN_BROADCAST, "anycast": unix.RTN_ANYCAST,
	"multicast": unix.RTN_MULTICAST, "blackhole": unix.RTN_BLACKHOLE, "unreachable": unix.RTN_UNREACHABLE,
	"prohibit": unix.RTN_PROHIBIT, "throw": unix.RTN_THROW,
}

func (r route) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ip route %s %s %s table %d", r.verb, r.kind, r.prefix, r.table)
	if r.src.IsValid() {
		fmt.Fprintf(&b, " src %s", r.src)
	}
	if r.metric != 0 {
		fmt.Fprintf(&b, " metric %d", r.metric)
	}
	for _, l := range r.links {
		if len(r.links) > 1 {
			b.WriteString(" nexthop")
		}
		if r.via.IsValid() {
			fmt.Fprintf(&b, " via %s", r.via)
		}
		fmt.Fprintf(&b, " dev %s", l)
		if r.via.IsValid() {
			b.WriteString(" onlink")
		}
	}
	return b.String()
}

func (r route) apply(n *node) error {
	e := &netlink.Route{Dst: ipnet(r.prefix), Type: routeKinds[r.kind], Table: r.table, Priority: r.metric, Scope: r.scope()}
	if r.src.IsValid() {
		e.Src = r.src.AsSlice()
	}
	for _, name := range r.links {
		hop := &netlink.NexthopInfo{LinkIndex: n.index[name]}
		if r.via.IsValid() {
			hop.Gw, hop.Flags = r.via.AsSlice(), int(netlink.FLAG_ONLINK)
		}
		if len(r.links) == 1 {
			e.LinkIndex, e.Gw, e.Flags = hop.LinkIndex, hop.Gw, hop.Flags
		} else {
			e.MultiPath = append(e.MultiPath, hop)
		}
	}
	switch r.verb {
	case "append":
		return n.netlink.RouteAppend(e)
	case "del":
		return n.netlink.RouteDel(e)
	}
	return n.netlink.RouteAdd(e)
}

// scope is that of ip(8), iproute_modify.
func (r route) scope() netlink.Scope {
	switch {
	case r.kind == "local":
		return netlink.SCOPE_HOST
	case len(r.links) > 0 && !r.via.IsValid():
		return netlink.SCOPE_LINK
	}
	return netlink.SCOPE_UNIVERSE
}

// ipnet is where netip ends: the netlink library has its own types.
func ipnet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
}
