// SPDX-License-Identifier: Apache-2.0

//go:build linux

package oracle

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Routing tables. 100 is reached by no rule.
const (
	tableOther   = 100
	tableDefault = unix.RT_TABLE_DEFAULT
	tableMain    = unix.RT_TABLE_MAIN
	tableLocal   = unix.RT_TABLE_LOCAL
)

// The VIPs and senders: on the two subnets, on neither, martian, and what is
// special to the kernel. Those named often come first.
var (
	vips = []string{"192.0.2.50", "192.0.2.50", "192.0.2.50", "192.0.2.50", "192.0.2.50", "192.0.2.50", "192.0.2.50", "192.0.2.50", "192.0.2.50",
		"198.51.100.50", "10.96.0.10", "192.0.2.255", "127.0.0.9", "169.254.20.10", "240.0.0.5", "0.0.0.9"}
	senders = []string{"192.0.2.1", "192.0.2.1", "192.0.2.140", "198.51.100.1", "198.51.100.1", "203.0.113.9", "203.0.113.9",
		"127.0.0.1", "127.0.0.1", "127.0.0.8", "0.0.0.0", "0.0.0.0",
		"192.0.2.11", "192.0.2.21", "198.51.100.11", "192.0.2.50", "192.0.2.255", "192.0.2.99", "10.96.0.1",
		"169.254.1.1", "240.0.0.1", "0.1.2.3", "224.0.0.1", "255.255.255.255"}
)

// dice draw. The same seed and number draw the same.
type dice struct{ *rand.Rand }

func newDice(seed, number uint64) dice { return dice{rand.New(rand.NewPCG(seed, number))} }

func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

// of draws one; what is there twice comes twice as often.
func of[T any](d dice, values ...T) T { return values[d.IntN(len(values))] }

// draw is one configuration and what is asked of it.
func (d dice) draw(w *world) (configuration, []question) {
	vip := netip.MustParseAddr(of(d, vips...))
	c := append(d.settings(), d.proxy(vip)...)
	c = append(c, d.links(d.chance(40))...)
	c = append(c, d.addresses(vip)...)
	c = append(c, d.routes(vip, w.localRoutes)...)
	c = append(c, d.removals(c)...)
	c = append(c, d.links(d.chance(15))...)
	if d.chance(10) {
		d.Shuffle(len(c), func(i, j int) { c[i], c[j] = c[j], c[i] })
	}
	return c, d.questions(vip)
}

// questions are of different senders, so that no reply is to two of them.
func (d dice) questions(vip netip.Addr) []question {
	var list []question
	for len(list) < 7 {
		sender := netip.MustParseAddr(of(d, senders...))
		if !slices.ContainsFunc(list, func(q question) bool { return q.sender == sender }) {
			list = append(list, question{vip: vip, sender: sender, nic: of(d, "eth0", "eth0", "eth1"), broadcast: d.chance(50)})
		}
	}
	return list
}

// settings are few, mostly, and mostly those that matter most.
func (d dice) settings() configuration {
	var c configuration
	for _, scope := range scopes {
		for _, name := range names {
			often := map[string]int{"forwarding": 30, "arp_ignore": 20, "arp_filter": 12, "proxy_arp": 25, "rp_filter": 22, "route_localnet": 15, "accept_local": 20}[name]
			if !d.chance(max(often, 4)) {
				continue
			}
			value := of(d, 1, 1, 1, 1, 1, 0, d.IntN(10))
			switch name {
			case "arp_ignore":
				value = of(d, 0, 1, 1, 2, 2, 3, 3, 8, d.IntN(10))
			case "rp_filter":
				value = of(d, 0, 1, 1, 2, 2, d.IntN(10))
			}
			c = append(c, setting{scope, name, value})
		}
	}
	return c
}

// proxy is what proxy ARP needs, now and then.
func (d dice) proxy(vip netip.Addr) configuration {
	if !d.chance(12) {
		return nil
	}
	at := of(d, "all", "eth0", "eth1")
	return configuration{
		setting{at, "forwarding", 1}, setting{of(d, "all", at), "proxy_arp", 1},
		link{"kube-ipvs0", "up"},
		route{verb: "add", kind: "unicast", prefix: netip.PrefixFrom(vip, of(d, 32, 24)).Masked(), links: []string{of(d, "eth0", "eth1", "kube-ipvs0")}, table: tableMain},
	}
}

func (d dice) links(some bool) configuration {
	switch n := d.IntN(24); {
	case !some:
		return nil
	case n == 0:
		return configuration{link{"eth1", "down"}}
	case n == 1:
		return configuration{link{"eth0", "arp off"}}
	case n == 2:
		return configuration{link{"eth1", "arp off"}}
	case n < 8:
		return configuration{link{"kube-ipvs0", "up"}, link{"kube-ipvs0", "down"}}
	default:
		return configuration{link{"kube-ipvs0", "up"}}
	}
}

// addresses are those of the node, the VIP on some link, and others that get
// into its way.
func (d dice) addresses(vip netip.Addr) configuration {
	var c configuration
	add := func(link string, bits int, addr string) {
		c = append(c, address{verb: "add", link: link, prefix: netip.PrefixFrom(netip.MustParseAddr(addr), bits), noPrefixRoute: d.chance(4)})
	}
	if d.chance(92) {
		add("eth0", of(d, 24, 24, 24, 24, 25, 16), "192.0.2.11")
	}
	switch d.IntN(8) {
	case 0, 1, 2:
		add("eth1", 24, "198.51.100.11")
	case 3, 4:
		add("eth1", of(d, 24, 24, 25, 32), "192.0.2.21")
	case 5:
		add("eth1", 24, "192.0.2.21")
		add("eth1", 24, "198.51.100.11")
	}
	if d.chance(65) {
		c = append(c, d.address(vip))
	}
	for d.chance(30) {
		c = append(c, d.address(netip.MustParseAddr(of(d, vip.String(), "192.0.2.51", "192.0.2.21", "192.0.2.11", "10.96.0.1", "198.51.100.60", "127.0.0.8", "203.0.113.1", "169.254.9.9"))))
	}
	if d.chance(10) {
		d.Shuffle(len(c), func(i, j int) { c[i], c[j] = c[j], c[i] })
	}
	return c
}

func (d dice) address(ip netip.Addr) address {
	a := address{
		verb: "add", link: of(d, "kube-ipvs0", "kube-ipvs0", "kube-ipvs0", "lo", "eth0", "eth0", "eth1"),
		prefix:        netip.PrefixFrom(ip, of(d, 32, 32, 32, 32, 32, 31, 30, 28, 24, 24, 16, 8)),
		scope:         of(d, 0, 0, 0, 0, unix.RT_SCOPE_LINK, unix.RT_SCOPE_HOST, unix.RT_SCOPE_HOST, unix.RT_SCOPE_SITE),
		noPrefixRoute: d.chance(8),
	}
	if d.chance(12) {
		a.peer = netip.PrefixFrom(netip.MustParseAddr(of(d, "192.0.2.99", "192.0.2.50", "192.0.2.1", "203.0.113.9")), a.prefix.Bits())
	}
	if d.chance(8) {
		a.broadcast = netip.MustParseAddr(of(d, "192.0.2.50", "192.0.2.255", "192.0.2.1", "203.0.113.9", "255.255.255.255"))
	}
	return a
}

// routes lead to the VIP or to senders, or nowhere.
func (d dice) routes(vip netip.Addr, local bool) configuration {
	var c configuration
	for d.chance(45) {
		r := route{verb: of(d, "add", "append"), kind: "unicast", table: tableMain, links: []string{of(d, links...)}}
		if local && d.chance(30) {
			r.kind, r.table = "local", of(d, tableLocal, tableLocal, tableLocal, tableLocal, tableMain, tableDefault, tableOther)
		} else if d.chance(30) {
			r.kind = of(d, "blackhole", "unreachable", "prohibit", "throw", "blackhole", "broadcast", "anycast", "multicast")
		}
		if !slices.Contains([]string{"unicast", "local", "broadcast", "anycast", "multicast"}, r.kind) {
			r.links = nil
		}
		if d.chance(15) {
			r.table = of(d, tableLocal, tableDefault, tableOther)
		}
		to := of(d, vip.String(), vip.String(), vip.String(), "0.0.0.0", "0.0.0.0", of(d, senders...))
		r.prefix = netip.PrefixFrom(netip.MustParseAddr(to), of(d, 32, 32, 32, 28, 24, 24, 16, 1, 0)).Masked()
		if to == "0.0.0.0" {
			r.prefix = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		if d.chance(20) {
			r.metric = of(d, 1, 100)
		}
		if r.kind == "unicast" {
			d.hops(&r)
		}
		c = append(c, r)
	}
	return c
}

// hops gives a route gateways, a source, or two ways at once.
func (d dice) hops(r *route) {
	switch d.IntN(12) {
	case 0, 1, 2:
		r.via = netip.MustParseAddr(of(d, "192.0.2.1", "198.51.100.1"))
	case 3:
		r.src = netip.MustParseAddr(of(d, "192.0.2.11", "192.0.2.50"))
	case 4:
		if d.chance(50) {
			r.links = []string{"eth0", "eth1"}
		}
	}
}

// removals take away again what an earlier step has put there.
func (d dice) removals(from configuration) configuration {
	var c configuration
	for _, s := range from {
		if !d.chance(4) {
			continue
		}
		switch s := s.(type) {
		case address:
			s.verb = "del"
			c = append(c, s)
		case route:
			s.verb = "del"
			c = append(c, s)
		}
	}
	if d.chance(2) {
		c = append(c, address{verb: "del", link: "lo", prefix: netip.MustParsePrefix("127.0.0.1/8"), scope: unix.RT_SCOPE_HOST})
	}
	return c
}

// kernelChooses says whether which route wins cannot be read: of the ways of a
// multipath route the kernel takes one by a hash, two routes that differ in link and
// metric alone look like such ways in the message, and where main rejects it depends
// on the kernel's version whether table default is looked at.
func (c configuration) kernelChooses() bool {
	var alike, rejects, behind bool
	seen := map[string]bool{}
	for _, s := range c {
		r, ok := s.(route)
		if !ok || r.verb == "del" {
			continue
		}
		to := fmt.Sprintf("%s %s table %d", r.kind, r.prefix, r.table)
		alike = alike || len(r.links) > 1 || seen[to]
		seen[to] = true
		rejects = rejects || len(r.links) == 0
		behind = behind || r.table == tableDefault
	}
	return alike || rejects && behind
}
