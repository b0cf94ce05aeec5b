// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vipmove/vipmove/lab/namespace"
	"github.com/vipmove/vipmove/lab/prober"
)

// What the kernel does, as numbered in CASES.md section 0. The judgement of the
// product rests on these; where a kernel disagrees, the judgement is wrong.

func TestFact1AnAddressOnADownNOARPLinkIsAnsweredOnEth0(t *testing.T) {
	l, n := holder(t)
	do(t, n, Dummy, func(link netlink.Link) error {
		if flags := link.Attrs().RawFlags; flags&unix.IFF_UP != 0 || flags&unix.IFF_NOARP == 0 {
			t.Errorf("flags of %s are %#x, want DOWN and NOARP", Dummy, flags)
		}
		return nil
	})
	broadcast(t, l, n.MAC)
	do(t, n, Dummy, netlink.LinkSetUp)
	broadcast(t, l, n.MAC)
	do(t, n, Dummy, netlink.LinkSetDown)
	broadcast(t, l, n.MAC)
}

func TestFact2SysctlsOfTheHoldingLinkAndDefaultProtectNothing(t *testing.T) {
	for _, values := range []map[string]int{
		{"conf/kube-ipvs0/arp_ignore": 1},
		{"conf/kube-ipvs0/arp_ignore": 8},
		{"conf/default/arp_ignore": 1},
		{"conf/all/arp_filter": 1, "conf/eth0/arp_filter": 1},
	} {
		t.Run(fmt.Sprint(values), func(t *testing.T) {
			l, n := holder(t)
			set(t, n, values)
			broadcast(t, l, n.MAC)
		})
	}
}

func TestFact3TheMaximumOfAllAndTheReceivingLinkDecides(t *testing.T) {
	cases := []struct {
		all, eth0 int
		scope     netlink.Scope
		answers   bool
	}{
		{0, 0, netlink.SCOPE_UNIVERSE, true},
		{1, 0, netlink.SCOPE_UNIVERSE, false},
		{0, 1, netlink.SCOPE_UNIVERSE, false},
		{2, 0, netlink.SCOPE_UNIVERSE, false},
		{0, 2, netlink.SCOPE_UNIVERSE, false},
		{1, 3, netlink.SCOPE_UNIVERSE, true}, // 3 hides addresses of scope host only
		{3, 1, netlink.SCOPE_UNIVERSE, true},
		{3, 0, netlink.SCOPE_HOST, false},
		{0, 3, netlink.SCOPE_HOST, false},
		{0, 0, netlink.SCOPE_HOST, true},
		{4, 0, netlink.SCOPE_UNIVERSE, true}, // reserved: as 0
		{7, 0, netlink.SCOPE_UNIVERSE, true},
		{1, 7, netlink.SCOPE_UNIVERSE, true},
		{8, 0, netlink.SCOPE_UNIVERSE, false},
		{1, 8, netlink.SCOPE_UNIVERSE, false},
		{9, 0, netlink.SCOPE_UNIVERSE, true}, // unknown: as 0
		{8, 9, netlink.SCOPE_UNIVERSE, true},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("all=%d eth0=%d scope=%s", c.all, c.eth0, c.scope), func(t *testing.T) {
			l, n := holder(t)
			if c.scope != netlink.SCOPE_UNIVERSE {
				if err := n.RemoveAddress(Dummy, l.HostVIP()); err != nil {
					t.Fatal(err)
				}
				do(t, n, Dummy, func(link netlink.Link) error {
					return netlink.AddrAdd(link, &netlink.Addr{IPNet: ipnet(l.HostVIP()), Scope: int(c.scope)})
				})
			}
			set(t, n, map[string]int{"conf/all/arp_ignore": c.all, "conf/eth0/arp_ignore": c.eth0})
			if c.answers {
				broadcast(t, l, n.MAC)
			} else {
				broadcast(t, l)
			}
		})
	}
}

func TestFact4AnAddressOfTheReceivingLinkIsAnsweredAtArpIgnore1(t *testing.T) {
	l, n := holder(t)
	set(t, n, map[string]int{"conf/all/arp_ignore": 1})
	broadcast(t, l)
	if err := n.AddAddress(Uplink, l.HostVIP()); err != nil {
		t.Fatal(err)
	}
	broadcast(t, l, n.MAC)
}

func TestFact5ALocalRouteAnswersWithoutAnyAddress(t *testing.T) {
	for route, dev := range map[string]string{"192.0.2.50/32": Dummy, "192.0.2.48/28": "lo"} {
		t.Run(route+" dev "+dev, func(t *testing.T) {
			l, n := holder(t)
			if err := n.RemoveAddress(Dummy, l.HostVIP()); err != nil {
				t.Fatal(err)
			}
			broadcast(t, l) // silent without
			do(t, n, dev, func(link netlink.Link) error {
				return netlink.RouteAdd(&netlink.Route{
					LinkIndex: link.Attrs().Index, Dst: ipnet(netip.MustParsePrefix(route)),
					Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
				})
			})
			broadcast(t, l, n.MAC)
			set(t, n, map[string]int{"conf/all/arp_ignore": 1})
			broadcast(t, l)
		})
	}
}

func TestFact6OnlyTheExactTupleIsRemoved(t *testing.T) {
	l, n := holder(t)
	vip := l.HostVIP()
	remove := func(link string, a *netlink.Addr) error {
		return try(n, link, func(l netlink.Link) error { return netlink.AddrDel(l, a) })
	}
	for name, err := range map[string]error{
		"another prefix length": remove(Dummy, &netlink.Addr{IPNet: ipnet(netip.PrefixFrom(vip.Addr(), 24))}),
		"the wrong link":        remove(Uplink, &netlink.Addr{IPNet: ipnet(vip)}),
		"the wrong label":       remove(Dummy, &netlink.Addr{IPNet: ipnet(vip), Label: Dummy + ":x"}),
	} {
		if err != unix.EADDRNOTAVAIL {
			t.Errorf("%s: %v, want EADDRNOTAVAIL", name, err)
		}
	}
	broadcast(t, l, n.MAC)

	// The same address on a second link: removing one leaves the other.
	if err := n.AddAddress("lo", vip); err != nil {
		t.Fatal(err)
	}
	// Scope is not compared.
	if err := remove(Dummy, &netlink.Addr{IPNet: ipnet(vip), Scope: int(netlink.SCOPE_HOST)}); err != nil {
		t.Errorf("another scope: %v", err)
	}
	broadcast(t, l, n.MAC)
	if err := remove(Dummy, &netlink.Addr{IPNet: ipnet(vip)}); err != unix.EADDRNOTAVAIL {
		t.Errorf("removing twice: %v, want EADDRNOTAVAIL", err)
	}
	if err := remove("lo", &netlink.Addr{IPNet: ipnet(vip)}); err != nil {
		t.Fatal(err)
	}
	broadcast(t, l)
}

func TestFact8BothNICsOfANodeOnOneSegmentAnswer(t *testing.T) {
	l, n := holder(t)
	second := net.HardwareAddr{2, 0, 0, 0, 2, 1}
	if err := namespace.Connect(n.Namespace, "eth1", second, l.bridge, bridgeName, "to-n1-again"); err != nil {
		t.Fatal(err)
	}
	broadcast(t, l, n.MAC, second)
	answers(t, l, prober.Request{Target: n.Address.Addr()}, silence, n.MAC, second) // even for its own address
	set(t, n, map[string]int{"conf/all/arp_ignore": 1})
	answers(t, l, prober.Request{Target: n.Address.Addr()}, silence, n.MAC)
}

// proxy makes a node answer for the VIP by proxy ARP, holding it nowhere.
func proxy(t *testing.T) (*Lab, *Host) {
	t.Helper()
	l, n := holder(t)
	if err := n.RemoveAddress(Dummy, l.HostVIP()); err != nil {
		t.Fatal(err)
	}
	set(t, n, map[string]int{"ip_forward": 1, "conf/eth0/proxy_arp": 1})
	do(t, n, Dummy, netlink.LinkSetUp)
	do(t, n, Dummy, func(link netlink.Link) error {
		return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipnet(l.HostVIP()), Scope: netlink.SCOPE_LINK})
	})
	return l, n
}

func TestFact9ProxyARPAnswersLateAndNeverToAProbeWithoutSender(t *testing.T) {
	t.Run("an ordinary request", func(t *testing.T) {
		l, n := proxy(t)
		broadcast(t, l, n.MAC)
	})
	t.Run("an RFC 5227 probe", func(t *testing.T) {
		l, _ := proxy(t)
		answers(t, l, prober.Request{Target: l.VIP(), Sender: netip.IPv4Unspecified()}, proxySilence)
	})
	t.Run("a probe, of an address that is held", func(t *testing.T) {
		l, n := holder(t)
		probe := prober.Request{Target: l.VIP(), Sender: netip.IPv4Unspecified()}
		answers(t, l, probe, silence, n.MAC)
		set(t, n, map[string]int{"conf/all/arp_ignore": 1})
		answers(t, l, probe, silence)
	})
}

// question is the announcer question to a node.
func question(l *Lab, n *Host) prober.Request {
	return prober.Request{Target: l.VIP(), Sender: netip.MustParseAddr("127.0.0.1"), Destination: n.MAC}
}

func TestFact17TheKernelKeepsSilentToTheAnnouncerQuestion(t *testing.T) {
	cases := []struct {
		name    string
		values  map[string]int
		answers bool
	}{
		{"as it is", nil, false},
		{"rp_filter 1", map[string]int{"conf/all/rp_filter": 1}, false},
		{"rp_filter 2", map[string]int{"conf/all/rp_filter": 2}, false},
		{"route_localnet alone", map[string]int{"conf/eth0/route_localnet": 1}, false},
		{"accept_local alone", map[string]int{"conf/eth0/accept_local": 1}, false},
		{"both: unusable there", map[string]int{"conf/eth0/route_localnet": 1, "conf/eth0/accept_local": 1}, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l, n := holder(t)
			set(t, n, c.values)
			if c.answers {
				answers(t, l, question(l, n), silence, n.MAC)
			} else {
				answers(t, l, question(l, n), silence)
			}
			answers(t, l, prober.Request{Target: l.VIP(), Destination: n.MAC}, silence, n.MAC) // it does hold it
		})
	}
	t.Run("proxy ARP", func(t *testing.T) {
		l, n := proxy(t)
		answers(t, l, question(l, n), proxySilence)
	})
}

func TestFact17AnAnnouncerAnswersTheQuestionAndOnlyTheAnnouncer(t *testing.T) {
	l := wired(t, Config{Nodes: 3, ClusterIPs: -1})
	speaker := l.Nodes()[1]
	if _, err := l.StartAnnouncer(t.Context(), speaker.Name); err == nil {
		t.Fatal("an announcer without an executable started")
	}
	announce(t, l, speaker)
	for _, n := range l.Nodes() {
		neighboursBefore := neighbours(t, n)
		if n == speaker {
			answers(t, l, question(l, n), silence, n.MAC)
		} else {
			answers(t, l, question(l, n), silence)
		}
		if diff := cmp.Diff(neighboursBefore, neighbours(t, n)); diff != "" {
			t.Errorf("the question changed the neighbours of %s (-before +after):\n%s", n.Name, diff)
		}
	}
	var replies []prober.Reply
	err := l.fromClient(func() (err error) {
		replies, err = prober.Ask(t.Context(), prober.Request{Interface: Uplink, Target: l.VIP(), Destination: speaker.MAC}, time.Second)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"n2": 2}, counts(l, replies)); diff != "" {
		t.Errorf("replies to an ordinary request to the announcer's node (-want +got):\n%s", diff)
	}
}
