// SPDX-License-Identifier: Apache-2.0

package diagnose_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

var vip = netip.MustParseAddr("192.0.2.50")

// kernel builds one node's inventory, step by step. All sysctls are known and 0 until set.
type kernel struct{ k diagnose.Kernel }

func number(n int) *int { return &n }

func zero() diagnose.Sysctls {
	return diagnose.Sysctls{ArpIgnore: number(0), ArpAnnounce: number(0), ArpFilter: number(0), ProxyArp: number(0), RpFilter: number(0),
		PromoteSecondaries: number(0), RouteLocalnet: number(0), AcceptLocal: number(0), Forwarding: number(0)}
}

// plain is n1 as it is without any trouble: lo, eth0 with 192.0.2.11/24, and an empty kube-ipvs0 that is
// DOWN and NOARP.
func plain() *kernel {
	b := &kernel{k: diagnose.Kernel{All: zero()}}
	b.link(diagnose.Link{Name: "lo", Index: 1, Type: "loopback", Up: true, Flags: 0x49})
	b.link(diagnose.Link{Name: "eth0", Index: 2, Type: "ether", Up: true, Flags: 0x1043, MAC: "02:00:00:00:00:01"})
	b.link(diagnose.Link{Name: "kube-ipvs0", Index: 3, Type: "ether", Kind: "dummy", Flags: 0x82})
	return b.at("lo", "127.0.0.1/8", 254).at("eth0", "192.0.2.11/24", 0)
}

func (b *kernel) link(l diagnose.Link) *kernel {
	l.Sysctls = zero()
	b.k.Links = append(b.k.Links, l)
	return b
}

func (b *kernel) at(link, prefix string, scope uint8) *kernel {
	b.k.Addresses = append(b.k.Addresses, diagnose.Address{Link: link, Prefix: netip.MustParsePrefix(prefix), Scope: scope})
	return b
}

func (b *kernel) route(kind, prefix, link string, table uint32) *kernel {
	b.k.Routes = append(b.k.Routes, diagnose.Route{Prefix: netip.MustParsePrefix(prefix), Type: kind, Link: link, Table: table, Protocol: 3})
	return b
}

// made is a route that the kernel lists as its own.
func (b *kernel) made(kind, prefix, link string, table uint32) *kernel {
	b.route(kind, prefix, link, table)
	b.k.Routes[len(b.k.Routes)-1].Protocol = 2
	return b
}

// set changes settings: "all.arp_ignore=1 eth0.rp_filter=2"; an empty value is one that could not be read.
func (b *kernel) set(text string) *kernel {
	for _, one := range strings.Fields(text) {
		name, value, _ := strings.Cut(one, "=")
		link, setting, _ := strings.Cut(name, ".")
		s := &b.k.All
		for i := range b.k.Links {
			if b.k.Links[i].Name == link {
				s = &b.k.Links[i].Sysctls
			}
		}
		field := map[string]**int{"arp_ignore": &s.ArpIgnore, "arp_filter": &s.ArpFilter, "proxy_arp": &s.ProxyArp, "rp_filter": &s.RpFilter,
			"route_localnet": &s.RouteLocalnet, "accept_local": &s.AcceptLocal, "forwarding": &s.Forwarding}[setting]
		*field = nil
		if value != "" {
			*field = number(int(value[0] - '0'))
		}
	}
	return b
}

func (b *kernel) change(f func(*diagnose.Kernel)) *kernel {
	f(&b.k)
	return b
}

func (b *kernel) node() diagnose.Node {
	return diagnose.Node{Name: "n1", Role: diagnose.RoleAgent, Connected: true, CanAct: true, Kernel: &b.k}
}

// held is the trouble itself: the VIP as a /32 on kube-ipvs0.
func held() *kernel { return plain().at("kube-ipvs0", "192.0.2.50/32", 0) }

func up(k *diagnose.Kernel)   { k.Links[2].Up, k.Links[2].Flags = true, 0x83 }
func down(k *diagnose.Kernel) { k.Links[1].Up = false }

const (
	onLink  = "192.0.2.1"
	offLink = "203.0.113.9"
	zeroIP  = "0.0.0.0"
	martian = "127.0.0.1"
	own     = "192.0.2.11"
)

// The facts of CASES.md section 0 and what net/ipv4 says besides, each as a kernel and a sender.
func TestWouldAnswer(t *testing.T) {
	const yes, no, unknown = diagnose.AnswerYes, diagnose.AnswerNo, diagnose.AnswerUnknown
	second := diagnose.Link{Name: "eth1", Index: 4, Type: "ether", Up: true, MAC: "02:00:00:00:01:01"}
	for _, tt := range []struct {
		name   string
		kernel *kernel
		sender string
		want   diagnose.Would
		cause  diagnose.Cause
	}{
		{"nothing held", plain(), onLink, no, diagnose.CauseNotLocal},
		{"fact 1: /32 on a link that is DOWN and NOARP", held(), onLink, yes, diagnose.CauseLocal},
		{"fact 1: with that link up", held().change(up), onLink, yes, diagnose.CauseLocal},
		{"fact 2: arp_ignore of the dummy itself", held().set("kube-ipvs0.arp_ignore=1"), onLink, yes, diagnose.CauseLocal},
		{"fact 2: arp_filter, the way back is this NIC", held().set("all.arp_filter=1"), onLink, yes, diagnose.CauseLocal},
		{"arp_filter, no way back", held().set("eth0.arp_filter=1"), offLink, no, diagnose.CauseArpFilter},
		{"fact 3: all=1", held().set("all.arp_ignore=1"), onLink, no, diagnose.CauseArpIgnore},
		{"fact 3: eth0=1", held().set("eth0.arp_ignore=1"), onLink, no, diagnose.CauseArpIgnore},
		{"fact 3: all=2", held().set("all.arp_ignore=2"), onLink, no, diagnose.CauseArpIgnore},
		{"fact 3: all=1 eth0=3 answers, the larger counts", held().set("all.arp_ignore=1 eth0.arp_ignore=3"), onLink, yes, diagnose.CauseLocal},
		{"fact 3: 3 hides scope host", plain().at("kube-ipvs0", "192.0.2.50/32", 254).set("eth0.arp_ignore=3"), onLink, no, diagnose.CauseArpIgnore},
		{"3 shows scope link", plain().at("kube-ipvs0", "192.0.2.50/32", 253).set("eth0.arp_ignore=3"), onLink, yes, diagnose.CauseLocal},
		{"3 shows scope host where route_localnet is on", plain().at("kube-ipvs0", "192.0.2.50/32", 254).set("eth0.arp_ignore=3 all.route_localnet=1"), onLink, yes, diagnose.CauseLocal},
		{"fact 3: 4 is reserved", held().set("eth0.arp_ignore=4"), onLink, yes, diagnose.CauseLocal},
		{"fact 3: 7 is reserved", held().set("eth0.arp_ignore=7"), onLink, yes, diagnose.CauseLocal},
		{"fact 3: 8 is silent", held().set("eth0.arp_ignore=8"), onLink, no, diagnose.CauseArpIgnore},
		{"fact 3: 9 is unknown to it", held().set("eth0.arp_ignore=9"), onLink, yes, diagnose.CauseLocal},
		{"fact 4: on the receiving NIC with 1", held().at("eth0", "192.0.2.50/32", 0).set("all.arp_ignore=1"), onLink, yes, diagnose.CauseLocal},
		{"2: the sender in a subnet of the NIC that has the VIP too", plain().at("eth0", "192.0.2.50/32", 0).set("all.arp_ignore=2"), onLink, yes, diagnose.CauseLocal},
		{"2: the sender elsewhere", plain().at("eth0", "192.0.2.50/32", 0).set("all.arp_ignore=2"), offLink, no, diagnose.CauseArpIgnore},
		{"2: a zero sender is as 1", plain().at("eth0", "192.0.2.50/32", 0).set("all.arp_ignore=2"), zeroIP, yes, diagnose.CauseLocal},
		{"fact 5: a local route alone", plain().route("local", "192.0.2.50/32", "kube-ipvs0", 255), onLink, yes, diagnose.CauseLocal},
		{"fact 5: a local block on lo", plain().route("local", "192.0.2.48/28", "lo", 255), onLink, yes, diagnose.CauseLocal},
		{"fact 5: silent at 1", plain().route("local", "192.0.2.48/28", "lo", 255).set("all.arp_ignore=1"), onLink, no, diagnose.CauseArpIgnore},
		{"a local block, and a longer route elsewhere: policy rules would part their tables", plain().route("local", "192.0.2.48/28", "lo", 255).route("unicast", "192.0.2.50/32", "eth0", 254), onLink, unknown, diagnose.CauseUnknown},
		{"a local block, and a longer route for the sender only", plain().route("local", "192.0.2.48/28", "lo", 255).route("unicast", "192.0.2.1/32", "eth0", 254), onLink, yes, diagnose.CauseLocal},
		{"a local route of a policy table", plain().route("local", "0.0.0.0/0", "lo", 2004), onLink, no, diagnose.CauseNotLocal},
		{"a local route of table default, which main hides", plain().route("local", "192.0.2.50/32", "lo", 253), onLink, no, diagnose.CauseNotLocal},
		{"a whole subnet on lo is local", plain().at("lo", "192.0.2.49/28", 0), onLink, yes, diagnose.CauseLocal},
		{"a subnet on an up dummy is not", plain().change(up).at("kube-ipvs0", "192.0.2.49/28", 0), onLink, no, diagnose.CauseNotLocal},
		{"the VIP is a broadcast address", plain().change(up).at("kube-ipvs0", "192.0.2.49/30", 0).at("eth0", "192.0.2.33/27", 0), onLink, no, diagnose.CauseNotLocal},
		{"an explicit broadcast address", plain().change(func(k *diagnose.Kernel) { k.Addresses[1].Broadcast = vip }), onLink, no, diagnose.CauseNotLocal},
		{"with a peer, 1: its subnet is the peer's", plain().change(func(k *diagnose.Kernel) {
			k.Addresses = append(k.Addresses[:1:1], diagnose.Address{Link: "eth0", Prefix: netip.MustParsePrefix("192.0.2.50/32"), Peer: netip.MustParsePrefix("192.0.2.99/32")})
		}).set("all.arp_ignore=1"), onLink, no, diagnose.CauseArpIgnore},
		{"with a peer, 1: another subnet of the NIC holds it", plain().change(func(k *diagnose.Kernel) {
			k.Addresses = append(k.Addresses, diagnose.Address{Link: "eth0", Prefix: netip.MustParsePrefix("192.0.2.50/32"), Peer: netip.MustParsePrefix("192.0.2.99/32")})
		}).set("all.arp_ignore=1"), onLink, yes, diagnose.CauseLocal},
		{"strict, the way back is a noprefixroute subnet", held().change(func(k *diagnose.Kernel) { k.Addresses[1].Flags = 0x200 }).set("all.rp_filter=1"), onLink, no, diagnose.CauseSource},
		{"strict, noprefixroute and its route by hand", held().change(func(k *diagnose.Kernel) { k.Addresses[1].Flags = 0x200 }).route("", "192.0.2.0/24", "eth0", 0).set("all.rp_filter=1"), onLink, yes, diagnose.CauseLocal},
		{"strict, a secondary address makes no route", held().change(func(k *diagnose.Kernel) { k.Addresses[1].Flags = 0x01 }).set("all.rp_filter=1"), onLink, no, diagnose.CauseSource},
		{"a local route without a table", plain().route("local", "192.0.2.50/32", "lo", 0), onLink, yes, diagnose.CauseLocal},
		{"a local route of table main", plain().route("local", "192.0.2.50/32", "lo", 254), onLink, yes, diagnose.CauseLocal},
		{"a local route of table main is nothing to a zero sender where policy rules parted the tables", plain().route("local", "192.0.2.50/32", "lo", 254), zeroIP, unknown, diagnose.CauseUnknown},
		{"an IPv6 route says nothing", held().route("unicast", "2001:db8::/64", "eth0", 254).set("all.rp_filter=1"), onLink, yes, diagnose.CauseLocal},
		{"a throw and a default table behind it", plain().route("throw", "192.0.2.50/32", "", 254).route("local", "192.0.2.50/32", "lo", 253), onLink, yes, diagnose.CauseLocal},
		{"a blackhole and a default table behind it: kernels differ", plain().route("blackhole", "192.0.2.50/32", "", 254).route("local", "192.0.2.50/32", "lo", 253), onLink, unknown, diagnose.CauseUnknown},
		{"the default table is nothing to a zero sender", plain().route("blackhole", "192.0.2.50/32", "", 254).route("local", "192.0.2.50/32", "lo", 253), zeroIP, no, diagnose.CauseNotLocal},
		{"a local route of table default is no address to reply from: arp_filter", plain().route("throw", "192.0.2.50/32", "", 254).route("local", "192.0.2.50/32", "lo", 253).set("all.arp_filter=1"), onLink, no, diagnose.CauseArpFilter},
		{"an anycast route leads back as well: arp_filter", held().route("anycast", "0.0.0.0/0", "eth0", 254).set("all.arp_filter=1 all.accept_local=1"), offLink, yes, diagnose.CauseLocal},
		{"an anycast route is no way back: rp_filter", held().route("anycast", "0.0.0.0/0", "eth0", 254).set("all.rp_filter=2"), offLink, no, diagnose.CauseSource},
		{"the subnet on two NICs, this one's listed first: strict", held().link(second).made("unicast", "192.0.2.0/24", "eth0", 254).made("unicast", "192.0.2.0/24", "eth1", 254).
			set("all.rp_filter=1"), onLink, yes, diagnose.CauseLocal},
		{"the subnet on two NICs, the other's listed first: strict", held().link(second).made("unicast", "192.0.2.0/24", "eth1", 254).made("unicast", "192.0.2.0/24", "eth0", 254).
			set("all.rp_filter=1"), onLink, no, diagnose.CauseSource},
		{"local and broadcast alike, both listed", held().made("local", "192.0.2.50/32", "kube-ipvs0", 255).made("broadcast", "192.0.2.50/32", "eth0", 255), onLink, yes, diagnose.CauseLocal},
		{"broadcast and local alike, both listed", held().made("broadcast", "192.0.2.50/32", "eth0", 255).made("local", "192.0.2.50/32", "kube-ipvs0", 255), onLink, no, diagnose.CauseNotLocal},
		{"a broadcast that an address should have made, and the kernel lists without it", held().change(up).at("kube-ipvs0", "192.0.2.49/30", 0).at("eth0", "192.0.2.33/27", 0).
			change(func(k *diagnose.Kernel) { k.Addresses[3].Broadcast = vip }).made("local", "192.0.2.50/32", "kube-ipvs0", 255), onLink, yes, diagnose.CauseLocal},
		{"a blackhole for it", held().change(func(k *diagnose.Kernel) { k.Addresses = k.Addresses[:2] }).route("blackhole", "192.0.2.50/32", "", 254), onLink, no, diagnose.CauseNotLocal},

		{"fact 9: proxy ARP, the route by another link", plain().link(second).route("unicast", "192.0.2.50/32", "eth1", 254).set("all.proxy_arp=1 eth0.forwarding=1"), onLink, yes, diagnose.CauseProxy},
		{"fact 9: never for a zero sender", plain().link(second).route("unicast", "192.0.2.50/32", "eth1", 254).set("all.proxy_arp=1 eth0.forwarding=1"), zeroIP, no, diagnose.CauseNotLocal},
		{"proxy ARP to a martian", plain().link(second).route("unicast", "192.0.2.50/32", "eth1", 254).set("all.proxy_arp=1 eth0.forwarding=1"), martian, no, diagnose.CauseMartian},
		{"proxy ARP, the route by the same NIC", plain().set("eth0.proxy_arp=1 eth0.forwarding=1"), onLink, no, diagnose.CauseNotLocal},
		{"proxy ARP without forwarding", plain().link(second).route("unicast", "192.0.2.50/32", "eth1", 254).set("eth0.proxy_arp=1"), onLink, no, diagnose.CauseNotLocal},
		{"forwarding without proxy ARP", plain().link(second).route("unicast", "192.0.2.50/32", "eth1", 254).set("eth0.forwarding=1"), onLink, no, diagnose.CauseNotLocal},
		{"fact 9: a zero sender wakes a held address", held(), zeroIP, yes, diagnose.CauseLocal},
		{"fact 9: and obeys arp_ignore", held().set("eth0.arp_ignore=1"), zeroIP, no, diagnose.CauseArpIgnore},
		{"a zero sender does not meet rp_filter", held().set("all.rp_filter=1"), zeroIP, yes, diagnose.CauseLocal},
		{"a zero sender does not meet arp_filter", held().set("all.arp_filter=1"), zeroIP, yes, diagnose.CauseLocal},

		{"fact 17: the announcer question", held(), martian, no, diagnose.CauseMartian},
		{"fact 17: route_localnet alone", held().set("eth0.route_localnet=1"), martian, no, diagnose.CauseSource},
		{"fact 17: accept_local alone", held().set("eth0.accept_local=1"), martian, no, diagnose.CauseMartian},
		{"fact 17: both", held().set("eth0.route_localnet=1 eth0.accept_local=1"), martian, yes, diagnose.CauseLocal},
		{"fact 17: both, one of all", held().set("all.route_localnet=1 eth0.accept_local=1"), martian, yes, diagnose.CauseLocal},
		{"both of another link", held().set("kube-ipvs0.route_localnet=1 kube-ipvs0.accept_local=1"), martian, no, diagnose.CauseMartian},
		{"both, strict rp_filter", held().set("eth0.route_localnet=1 eth0.accept_local=1 eth0.rp_filter=1"), martian, no, diagnose.CauseSource},
		{"both, loose rp_filter", held().set("eth0.route_localnet=1 eth0.accept_local=1 eth0.rp_filter=2"), martian, yes, diagnose.CauseLocal},

		{"off link without rp_filter", held(), offLink, yes, diagnose.CauseLocal},
		{"off link, strict, no route", held().set("all.rp_filter=1"), offLink, no, diagnose.CauseSource},
		{"off link, loose, no route", held().set("all.rp_filter=2"), offLink, no, diagnose.CauseSource},
		{"off link, loose, a route by another NIC", held().link(second).route("unicast", "0.0.0.0/0", "eth1", 254).set("all.rp_filter=2"), offLink, yes, diagnose.CauseLocal},
		{"off link, strict, a route by another NIC", held().link(second).route("unicast", "0.0.0.0/0", "eth1", 254).set("all.rp_filter=1"), offLink, no, diagnose.CauseSource},
		{"off link, strict, the default route by this NIC", held().route("unicast", "0.0.0.0/0", "eth0", 254).set("all.rp_filter=1"), offLink, yes, diagnose.CauseLocal},
		{"off link, loose, this NIC has no address", held().change(func(k *diagnose.Kernel) { k.Addresses = append(k.Addresses[:1:1], k.Addresses[2]) }).
			link(second).route("unicast", "0.0.0.0/0", "eth1", 254).set("all.rp_filter=2"), offLink, no, diagnose.CauseSource},
		{"the node's own address as sender", held(), own, no, diagnose.CauseSource},
		{"the node's own address, accept_local", held().set("eth0.accept_local=1"), own, yes, diagnose.CauseLocal},
		{"a multicast sender", held(), "224.0.0.1", no, diagnose.CauseMartian},
		{"the broadcast sender", held(), "255.255.255.255", no, diagnose.CauseMartian},

		{"the NIC is down", held().change(down), onLink, no, diagnose.CauseNIC},
		{"the NIC has no ARP", held().change(func(k *diagnose.Kernel) { k.Links[1].Flags |= 0x80 }), onLink, no, diagnose.CauseNIC},
		{"the NIC is a bridge port", held().change(func(k *diagnose.Kernel) { k.Links[1].BridgePort = true }), onLink, no, diagnose.CauseNIC},
		{"the NIC is a slave of a bond", held().link(diagnose.Link{Name: "bond0", Index: 9, Kind: "bond"}).change(func(k *diagnose.Kernel) { k.Links[1].MasterIndex = 9 }), onLink, no, diagnose.CauseNIC},
		{"the NIC is in a VRF", held().link(diagnose.Link{Name: "red", Index: 9, Kind: "vrf"}).change(func(k *diagnose.Kernel) { k.Links[1].MasterIndex = 9 }), onLink, unknown, diagnose.CauseUnknown},
		{"the NIC's master is not listed", held().change(func(k *diagnose.Kernel) { k.Links[1].MasterIndex = 9 }), onLink, unknown, diagnose.CauseUnknown},

		{"I6: arp_ignore of the NIC not read", held().set("eth0.arp_ignore="), onLink, unknown, diagnose.CauseUnknown},
		{"I6: arp_ignore of all not read", held().set("all.arp_ignore= eth0.arp_ignore=1"), onLink, unknown, diagnose.CauseUnknown},
		{"arp_ignore not read, nothing held", plain().set("all.arp_ignore= eth0.arp_ignore="), onLink, no, diagnose.CauseNotLocal},
		{"rp_filter not read, on link", held().set("all.rp_filter= eth0.rp_filter="), onLink, yes, diagnose.CauseLocal},
		{"I6: rp_filter not read, off link", held().set("eth0.rp_filter="), offLink, unknown, diagnose.CauseUnknown},
		{"accept_local not read and route_localnet off", held().set("eth0.accept_local="), martian, no, diagnose.CauseMartian},
		{"I6: route_localnet not read and accept_local on", held().set("eth0.route_localnet= all.accept_local=1"), martian, unknown, diagnose.CauseUnknown},
		{"I6: proxy_arp not read, the route by another link", plain().link(second).route("unicast", "192.0.2.50/32", "eth1", 254).set("eth0.proxy_arp= eth0.forwarding=1"), onLink, unknown, diagnose.CauseUnknown},
		{"I6: route_localnet of the holder not read, 3", plain().at("kube-ipvs0", "192.0.2.50/32", 254).set("eth0.arp_ignore=3 kube-ipvs0.route_localnet="), onLink, unknown, diagnose.CauseUnknown},
		{"I6: two routes, their order not listed", plain().link(second).route("unicast", "192.0.2.50/32", "eth1", 254).route("unicast", "192.0.2.50/32", "eth0", 254).
			set("eth0.proxy_arp=1 eth0.forwarding=1"), onLink, unknown, diagnose.CauseUnknown},
		{"I6: local and broadcast alike", held().route("broadcast", "192.0.2.50/32", "eth0", 255), onLink, unknown, diagnose.CauseUnknown},
		{"I6: the inventory is not complete", held().change(func(k *diagnose.Kernel) { k.Incomplete = []string{"routes: interrupted"} }), onLink, unknown, diagnose.CauseUnknown},
		{"I6: something on the ARP path", held().change(func(k *diagnose.Kernel) { k.ARPPath.Unknown = true }), onLink, unknown, diagnose.CauseUnknown},
		{"I6: something on the ARP path, nothing held", plain().change(func(k *diagnose.Kernel) { k.ARPPath.Unknown = true }), onLink, unknown, diagnose.CauseUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := diagnose.WouldAnswer(tt.kernel.node(), "eth0", vip, diagnose.From(netip.MustParseAddr(tt.sender)))
			if a.Would != tt.want || a.Cause != tt.cause || a.Reason == "" {
				t.Errorf("from %s: %s by %s (%s), want %s by %s", tt.sender, a.Would, a.Cause, a.Reason, tt.want, tt.cause)
			}
		})
	}
}

func TestWouldAnswerIsUnknownWithoutWhatItNeeds(t *testing.T) {
	nothing := diagnose.Node{Name: "n1"}
	for name, a := range map[string]diagnose.Answer{
		"no inventory":  diagnose.WouldAnswer(nothing, "eth0", vip, diagnose.Martian()),
		"no such link":  diagnose.WouldAnswer(held().node(), "eth9", vip, diagnose.Sender{}),
		"IPv6":          diagnose.WouldAnswer(held().node(), "eth0", netip.MustParseAddr("2001:db8::50"), diagnose.Sender{}),
		"no address":    diagnose.WouldAnswer(held().node(), "eth0", netip.Addr{}, diagnose.Sender{}),
		"an IPv6 asker": diagnose.WouldAnswer(held().node(), "eth0", vip, diagnose.From(netip.MustParseAddr("2001:db8::1"))),
	} {
		if a.Would != diagnose.AnswerUnknown {
			t.Errorf("%s: %s (%s), want unknown", name, a.Would, a.Reason)
		}
	}
}

// What is never asked for by ARP is never answered for, whoever holds it.
func TestAddressesThatARPNeverAnswersFor(t *testing.T) {
	localnet := plain().set("eth0.route_localnet=1")
	for _, tt := range []struct {
		vip    string
		kernel *kernel
		want   diagnose.Would
	}{
		{"127.0.0.1", plain(), diagnose.AnswerNo},
		{"127.0.0.1", localnet, diagnose.AnswerYes},
		{"224.0.0.1", plain().route("local", "224.0.0.0/4", "lo", 255), diagnose.AnswerNo},
		{"255.255.255.255", plain(), diagnose.AnswerNo},
		{"0.0.0.0", plain(), diagnose.AnswerNo},
		{"169.254.20.10", plain().at("kube-ipvs0", "169.254.20.10/32", 0), diagnose.AnswerYes},
	} {
		if a := diagnose.WouldAnswer(tt.kernel.node(), "eth0", netip.MustParseAddr(tt.vip), diagnose.From(netip.MustParseAddr(onLink))); a.Would != tt.want {
			t.Errorf("%s: %s (%s), want %s", tt.vip, a.Would, a.Reason, tt.want)
		}
	}
}

func TestSendersByName(t *testing.T) {
	if diagnose.ZeroAddress() != diagnose.From(netip.MustParseAddr(zeroIP)) || diagnose.Martian() != diagnose.From(netip.MustParseAddr(martian)) {
		t.Error("the named senders are not 0.0.0.0 and 127.0.0.1")
	}
	// A NIC with three subnets: the ordinary neighbour is of the one that holds the VIP, which alone has a way back.
	several := bare(nic("eth0")).at("eth0", "203.0.113.9/30", 0).at("eth0", "192.0.2.11/24", 0).at("eth0", "198.51.100.9/30", 0).at("kube-ipvs0", "192.0.2.50/32", 0).
		set("eth0.arp_ignore=0 eth0.rp_filter=1")
	several.k.Addresses[0].Flags, several.k.Addresses[2].Flags = 0x200, 0x200
	if a := diagnose.WouldAnswer(several.node(), "eth0", vip, diagnose.Sender{}); a.Would != diagnose.AnswerYes {
		t.Errorf("to an ordinary neighbour: %s (%s), want yes", a.Would, a.Reason)
	}
}

// The reason of an unknown names what was not read and matters, and nothing else.
func TestUnknownNamesWhatItDependsOn(t *testing.T) {
	a := diagnose.WouldAnswer(held().set("eth0.arp_ignore= eth0.rp_filter= eth0.accept_local= all.proxy_arp=").node(), "eth0", vip, diagnose.Sender{})
	if want := "it depends on arp_ignore of eth0, which is not known"; a.Reason != want {
		t.Errorf("reason %q, want %q", a.Reason, want)
	}
}

// An ordinary neighbour is one whom the kernel routes back by this NIC, whatever else is there.
func TestOrdinaryNeighbourIsNobodyHere(t *testing.T) {
	strict := held().route("local", "192.0.2.0/28", "lo", 255).set("all.rp_filter=1 all.arp_ignore=0 all.arp_filter=1")
	if a := diagnose.WouldAnswer(strict.node(), "eth0", vip, diagnose.Sender{}); a.Would != diagnose.AnswerYes {
		t.Errorf("to a neighbour beside a local block: %s (%s), want yes", a.Would, a.Reason)
	}
}
