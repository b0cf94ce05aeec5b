// SPDX-License-Identifier: Apache-2.0

package diagnose_test

import (
	"fmt"
	"net/netip"
	"time"

	"pgregory.net/rapid"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

// world draws a snapshot that could be: agents and perhaps a witness on one subnet, with all kinds of
// trouble. Its frames are drawn too, so that they need not fit what the kernels would do.
func world(t *rapid.T) diagnose.Snapshot {
	s := diagnose.Snapshot{VIP: vip}
	if rapid.IntRange(0, 5).Draw(t, "named") == 0 {
		s.Interface = "eth0"
	}
	agents := rapid.IntRange(1, 4).Draw(t, "agents")
	for i := range agents {
		s.Nodes = append(s.Nodes, agent(t, i+1))
	}
	if rapid.Bool().Draw(t, "witness") {
		s.Nodes = append(s.Nodes, diagnose.Node{Name: "client", Role: diagnose.RoleWitness, Connected: true, Kernel: &diagnose.Kernel{
			Links:     []diagnose.Link{{Name: "eth0", Index: 2, Type: "ether", Up: true, MAC: mac(0xc1)}},
			Addresses: []diagnose.Address{{Link: "eth0", LinkIndex: 2, Prefix: netip.MustParsePrefix("192.0.2.1/24")}},
		}})
	}
	var macs []string
	if rapid.IntRange(0, 4).Draw(t, "stranger") == 0 {
		macs = append(macs, rapid.SampledFrom([]string{"00:1b:a9:11:22:33", mac(0xc1)}).Draw(t, "who"))
	}
	for i := range agents {
		macs = append(macs, mac(i+1), mac(0x40+i+1))
	}
	// Half of the worlds are calm: one choice of who answers and who announces, heard by all alike.
	answers, announces := draws(t, macs, 3, "answers"), draws(t, macs, 2, "announces")
	calm := rapid.Bool().Draw(t, "calm")
	for _, n := range s.Nodes {
		if calm || rapid.IntRange(0, 4).Draw(t, "asks") > 0 {
			s.Rounds = append(s.Rounds, rounds(t, n, s.Nodes, macs, answers, announces, calm)...)
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "captures") {
		s.Outgoing = append(s.Outgoing, outgoing(t, s.Nodes))
	}
	return s
}

func mac(n int) string { return fmt.Sprintf("02:00:00:00:00:%02x", n) }

func draws(t *rapid.T, from []string, most int, name string) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(from), 0, min(most, len(from)), rapid.ID[string]).Draw(t, name)
}

func maybe(t *rapid.T, name string, values ...int) *int {
	if rapid.IntRange(0, 9).Draw(t, name+" unread") == 0 {
		return nil
	}
	return number(rapid.SampledFrom(values).Draw(t, name))
}

func sysctls(t *rapid.T) diagnose.Sysctls {
	return diagnose.Sysctls{
		ArpIgnore: maybe(t, "arp_ignore", 0, 0, 0, 0, 1, 2, 3, 8, 9), ArpFilter: maybe(t, "arp_filter", 0, 0, 0, 1),
		RpFilter: maybe(t, "rp_filter", 0, 0, 1, 2), RouteLocalnet: maybe(t, "route_localnet", 0, 0, 0, 1),
		AcceptLocal: maybe(t, "accept_local", 0, 0, 0, 1), ProxyArp: maybe(t, "proxy_arp", 0, 0, 0, 1),
		Forwarding: maybe(t, "forwarding", 0, 1), PromoteSecondaries: maybe(t, "promote_secondaries", 0, 1),
	}
}

func agent(t *rapid.T, i int) diagnose.Node {
	k := &diagnose.Kernel{BootID: "boot", All: sysctls(t)}
	n := diagnose.Node{Name: fmt.Sprintf("n%d", i), Role: diagnose.RoleAgent, Connected: true, CanAct: true, Kernel: k}
	k.Links = []diagnose.Link{
		{Name: "lo", Index: 1, Type: "loopback", Up: true, Sysctls: sysctls(t)},
		{Name: "eth0", Index: 2, Type: "ether", Up: true, MAC: mac(i), Sysctls: sysctls(t)},
		{Name: "kube-ipvs0", Index: 3, Type: "ether", Kind: "dummy", Up: rapid.Bool().Draw(t, "dummy up"), Sysctls: sysctls(t)},
		{Name: "eth1", Index: 4, Type: "ether", Up: true, MAC: mac(0x40 + i), Sysctls: sysctls(t)},
		{Name: "kube-dummy-if", Index: 5, Type: "ether", Kind: "dummy", Sysctls: sysctls(t)},
	}
	at := func(index int, prefix string) {
		k.Addresses = append(k.Addresses, diagnose.Address{Link: k.Links[index-1].Name, LinkIndex: index,
			Prefix: netip.MustParsePrefix(prefix), Scope: rapid.SampledFrom([]uint8{0, 0, 253, 254}).Draw(t, "scope")})
	}
	at(1, "127.0.0.1/8")
	at(2, fmt.Sprintf("192.0.2.%d/24", 10+i))
	at(4, fmt.Sprintf("198.51.100.%d/24", 10+i))
	for _, prefix := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"192.0.2.50/32", "10.96.0.1/32", "10.96.0.10/32"}), 0, 2, rapid.ID[string]).Draw(t, "held") {
		at(rapid.SampledFrom([]int{3, 3, 3, 3, 5, 2, 1}).Draw(t, "on"), prefix)
	}
	if rapid.IntRange(0, 7).Draw(t, "twin") == 0 {
		at(rapid.SampledFrom([]int{4, 5}).Draw(t, "twin on"), "192.0.2.50/32")
	}
	if rapid.IntRange(0, 7).Draw(t, "subnet on the dummy") == 0 {
		at(3, "192.0.2.50/28")
	}
	if rapid.IntRange(0, 5).Draw(t, "route") == 0 {
		index := rapid.SampledFrom([]int{1, 3, 4}).Draw(t, "route by")
		k.Routes = append(k.Routes, diagnose.Route{Type: rapid.SampledFrom([]string{"local", "unicast", "broadcast"}).Draw(t, "route type"),
			Prefix: netip.MustParsePrefix(rapid.SampledFrom([]string{"192.0.2.50/32", "192.0.2.48/28"}).Draw(t, "route to")),
			Table:  rapid.SampledFrom([]uint32{254, 255}).Draw(t, "table"), Link: k.Links[index-1].Name, LinkIndex: index, Protocol: 3})
	}
	k.IPVS.State = rapid.SampledFrom([]diagnose.IPVSState{diagnose.IPVSAbsent, diagnose.IPVSNone, diagnose.IPVSNone, diagnose.IPVSPresent, diagnose.IPVSUnreadable}).Draw(t, "ipvs")
	if k.IPVS.State == diagnose.IPVSPresent {
		k.IPVS.Services = append(k.IPVS.Services, netip.MustParseAddrPort(rapid.SampledFrom([]string{"192.0.2.50:443", "10.96.0.1:443"}).Draw(t, "service")))
	}
	k.KubeProxy.State = rapid.SampledFrom([]diagnose.KubeProxyState{diagnose.KubeProxyAbsent, diagnose.KubeProxyAbsent, diagnose.KubeProxyAbsent,
		diagnose.KubeProxyRunning, diagnose.KubeProxyUnknownManager, diagnose.KubeProxyUnknown}).Draw(t, "kube-proxy")
	k.ARPPath.Unknown = rapid.IntRange(0, 7).Draw(t, "arp path") == 0
	switch rapid.IntRange(0, 19).Draw(t, "trouble") {
	case 0:
		n.CanAct = false
	case 1:
		n.PendingUndo = &diagnose.PendingUndo{RunID: "r1", Step: n.Name, Prefix: netip.MustParsePrefix("192.0.2.50/32")}
	case 2:
		k.Incomplete = []string{"neighbours: interrupted"}
	}
	return n
}

func rounds(t *rapid.T, n diagnose.Node, all []diagnose.Node, macs, answers, announces []string, calm bool) []diagnose.Round {
	own := n.Kernel.Links[0].MAC
	for _, l := range n.Kernel.Links {
		if l.Name == "eth0" {
			own = l.MAC
		}
	}
	var heard []string
	for _, o := range all {
		for _, l := range o.Kernel.Links {
			if l.Name == "eth0" && l.MAC != own {
				heard = append(heard, l.MAC)
			}
		}
	}
	base := diagnose.Round{Observer: n.Name, Interface: "eth0", VIP: vip, Sent: true, Number: 1, HearingExpected: true, Heard: heard,
		SenderIP: n.Kernel.Addresses[len(n.Kernel.Addresses)-1].Prefix.Addr()}
	for _, a := range n.Kernel.Addresses {
		if a.Link == "eth0" && a.Prefix.Bits() == 24 {
			base.SenderIP = a.Prefix.Addr()
		}
	}
	var out []diagnose.Round
	for _, kind := range []diagnose.ProbeKind{diagnose.Broadcast, diagnose.ZeroSender} {
		r := base
		r.Kind = kind
		who := answers
		if !calm {
			who = draws(t, macs, 3, "heard")
			r.Truncated = rapid.IntRange(0, 9).Draw(t, "truncated") == 0
			r.Heard = rapid.SampledFrom([][]string{heard, nil}).Draw(t, "others")
		}
		for _, m := range who {
			for range rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "times") {
				if m != own {
					r.Replies = append(r.Replies, diagnose.Reply{SenderMAC: m, EthSource: m, SenderIP: vip,
						After: time.Duration(rapid.IntRange(1, 900).Draw(t, "after")) * time.Millisecond})
				}
			}
		}
		out = append(out, r)
	}
	for _, m := range macs {
		if m == own || (!calm && rapid.IntRange(0, 3).Draw(t, "not asked") == 0) {
			continue
		}
		r := base
		r.Kind, r.TargetMAC, r.SenderIP = diagnose.AnnouncerQuestion, m, diagnose.Martian().Addr
		for _, a := range announces {
			if a == m {
				r.Replies = []diagnose.Reply{{SenderMAC: m, EthSource: m, SenderIP: vip, After: time.Millisecond}}
			}
		}
		out = append(out, r)
	}
	return out
}

func outgoing(t *rapid.T, nodes []diagnose.Node) diagnose.Outgoing {
	n := rapid.SampledFrom(nodes).Draw(t, "captured")
	g := diagnose.Outgoing{Node: n.Name, Interface: "eth0", Captured: rapid.Bool().Draw(t, "open")}
	for range rapid.IntRange(0, 4).Draw(t, "left") {
		to := rapid.SampledFrom(nodes).Draw(t, "to")
		for _, l := range to.Kernel.Links {
			if l.Name == "eth0" {
				g.Replies = append(g.Replies, diagnose.OutgoingReply{SenderMAC: mac(1), TargetMAC: l.MAC, TargetIP: netip.MustParseAddr("192.0.2.1")})
			}
		}
	}
	return g
}
