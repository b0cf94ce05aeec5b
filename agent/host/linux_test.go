// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

// The kernel dropped notifications: the subscription must not go on as if
// nothing had happened.
func TestChangesEndWhenNotificationsAreLost(t *testing.T) {
	w := newNamespaceWorld(t, Options{})
	index := w.addDummy("kube-ipvs0")
	err := w.Changes(t.Context(), func(h Hint) {
		if h.Kind != Subscribed {
			return
		}
		for range 12 { // slow, while thousands of things change
			if err := errors.Join(addMany(index, 1, 250), delMany(index, 1, 250)); err != nil {
				t.Error(err)
			}
		}
	})
	if !errors.Is(err, ErrOverflow) {
		t.Errorf("ended with %v, want lost", err)
	}
}

func TestStateTellsBridgePortsGatewaysAndNeighbours(t *testing.T) {
	w := newNamespaceWorld(t, Options{})
	story(w)
	gateway := netip.MustParseAddr("192.0.2.1")
	eth0 := w.link("eth0").Attrs().Index
	w.must(w.ns.AddBridge("br0"))
	w.do(func() error {
		port := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "port", MasterIndex: linkIndex("br0")}, PeerName: "peer"}
		add := func(p string, table int, gw netip.Addr) error {
			r := &netlink.Route{Dst: ipNet(netip.MustParsePrefix(p)), LinkIndex: eth0, Table: table, Gw: gw.AsSlice()}
			if !gw.IsValid() {
				r.Gw, r.Scope = nil, netlink.SCOPE_LINK
			}
			return netlink.RouteAdd(r)
		}
		rule := netlink.NewRule()
		rule.Priority, rule.Table, rule.Src = 100, 2004, ipNet(netip.MustParsePrefix("198.51.100.0/24"))
		return errors.Join(
			netlink.LinkAdd(port),
			add("0.0.0.0/0", 254, gateway),
			add("198.51.100.0/24", 254, gateway),
			add("192.0.2.50/32", 2004, netip.Addr{}), // what proxy ARP needs
			add("203.0.113.0/24", 254, netip.Addr{}), // neither gateway nor source nor VIP
			netlink.RuleAdd(rule),
			netlink.NeighAdd(&netlink.Neigh{LinkIndex: eth0, IP: vip.AsSlice(), State: netlink.NUD_PERMANENT, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 0x13}}),
			netlink.NeighAdd(&netlink.Neigh{LinkIndex: eth0, IP: gateway.AsSlice(), State: netlink.NUD_PERMANENT, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 0x14}}),
		)
	})

	st, err := w.State(t.Context(), []netip.Addr{vip})
	if err != nil || len(st.Incomplete) > 0 {
		t.Fatalf("reading: %v, incomplete %q", err, st.Incomplete)
	}

	kinds := map[string]string{}
	for _, l := range st.Links {
		kinds[l.Name] = fmt.Sprintf("%s port=%v", l.Kind, l.BridgePort)
		if l.Name == "eth0" && l.ParentIndex != 0 {
			t.Errorf("eth0's parent is link %d, which is in another namespace", l.ParentIndex)
		}
		if l.Name == "port" && l.ParentIndex != indexOf(st, "peer") {
			t.Errorf("port's parent is link %d, want its peer", l.ParentIndex)
		}
	}
	delete(kinds, "kube-ipvs0") // dummy or ifb
	if diff := cmp.Diff(map[string]string{"lo": " port=false", "eth0": "veth port=false", "br0": "bridge port=false", "port": "veth port=true", "peer": "veth port=false"}, kinds); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	var routes []string
	for _, r := range st.Routes {
		if r.Prefix.Addr().Is4() {
			routes = append(routes, fmt.Sprintf("%s %s table %d dev %s via %v", r.Type, r.Prefix, r.Table, r.Link, r.Gateways))
		}
	}
	slices.Sort(routes)
	if diff := cmp.Diff([]string{
		"local 192.0.2.50/32 table 255 dev kube-ipvs0 via []",
		"unicast 0.0.0.0/0 table 254 dev eth0 via [192.0.2.1]",
		"unicast 192.0.2.0/24 table 254 dev eth0 via []",
		"unicast 192.0.2.50/32 table 2004 dev eth0 via []",
		"unicast 198.51.100.0/24 table 254 dev eth0 via [192.0.2.1]",
	}, routes); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	if want := []Neighbour{{IP: vip, MAC: "02:00:00:00:00:13", Link: "eth0", State: "permanent"}}; !slices.Equal(st.Neighbours, want) {
		t.Errorf("neighbours %+v, want %+v", st.Neighbours, want)
	}
	if !slices.ContainsFunc(st.Rules, func(r Rule) bool {
		return r.Priority == 100 && r.Table == 2004 && r.From == netip.MustParsePrefix("198.51.100.0/24") && r.Family == "ipv4"
	}) {
		t.Errorf("rules %+v lack the one that was added", st.Rules)
	}
}

// linkIndex is 0 when there is none.
func linkIndex(name string) int {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return 0
	}
	return l.Attrs().Index
}

func indexOf(st State, name string) int {
	for _, l := range st.Links {
		if l.Name == name {
			return l.Index
		}
	}
	return -1
}

// I6: a gateway that is not told could be the very address to be removed.
func TestAGatewayInANexthopObjectIsUnknown(t *testing.T) {
	spelt := Route{Prefix: netip.MustParsePrefix("0.0.0.0/0"), NextHop: 7, Links: []int{2}, Gateways: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	plain := Route{Prefix: node.Masked(), Source: node.Addr()}
	hidden := Route{Prefix: netip.MustParsePrefix("198.51.100.0/24"), NextHop: 9}
	if got := unreadGateways([]Route{spelt, plain}); len(got) != 0 {
		t.Errorf("got %q, want nothing unread", got)
	}
	want := []string{"routes: gateway of 198.51.100.0/24 is in nexthop object 9, which is not read"}
	if got := unreadGateways([]Route{spelt, hidden, plain}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSysctlsOfTheReceivingLinkAreReadOnTheThreadThatAsks(t *testing.T) {
	w := newNamespaceWorld(t, Options{})
	w.must(w.ns.SetSysctl("net/ipv4/conf/all/arp_ignore", "1"))
	w.must(w.ns.SetSysctl("net/ipv4/conf/eth0/arp_ignore", "3"))
	w.must(w.ns.SetSysctl("net/ipv4/ip_forward", "1"))
	st, err := w.State(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if *st.AllSysctls.ArpIgnore != 1 || *st.LinkSysctls["eth0"].ArpIgnore != 3 || *st.LinkSysctls["lo"].ArpIgnore != 0 || *st.IPForward != 1 {
		t.Errorf("all %d, eth0 %d, lo %d, forward %d, want 1, 3, 0, 1", *st.AllSysctls.ArpIgnore, *st.LinkSysctls["eth0"].ArpIgnore, *st.LinkSysctls["lo"].ArpIgnore, *st.IPForward)
	}
}

// files writes a tree of fixture files and returns its root.
func files(t *testing.T, content map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range content {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestSysctlsThatCannotBeReadAreUnknown(t *testing.T) {
	root := files(t, map[string]string{
		"net/ipv4/ip_forward":                  "1\n",
		"net/ipv4/conf/all/arp_ignore":         "0\n",
		"net/ipv4/conf/default/arp_ignore":     "not a number\n",
		"net/ipv4/conf/eth0.217/arp_ignore":    "8\n",
		"net/ipv4/conf/eth0.217/forwarding":    "",
		"net/ipv4/conf/eth0/217/arp_ignore":    "9\n", // what sysctl(8) would make of the dot
		"net/ipv4/conf/eth0.217/rp_filter/dir": "",
	})
	l, err := New(Options{SysctlRoot: root})
	if err != nil {
		t.Fatal(err)
	}
	st := State{Links: []Link{{Name: "eth0.217"}, {Name: "eth1"}}}
	l.sysctls(&st)
	v := st.LinkSysctls["eth0.217"]
	if v.ArpIgnore == nil || *v.ArpIgnore != 8 {
		t.Errorf("arp_ignore of eth0.217 is %v, want 8", v.ArpIgnore)
	}
	if v.Forwarding != nil || v.RpFilter != nil || v.ArpFilter != nil || st.DefaultSysctls.ArpIgnore != nil || st.LinkSysctls["eth1"] != (Sysctls{}) {
		t.Errorf("what cannot be read is not unknown: %+v, %+v, %+v", v, st.DefaultSysctls, st.LinkSysctls["eth1"])
	}
	if *st.IPForward != 1 || *st.AllSysctls.ArpIgnore != 0 {
		t.Errorf("forward %v, all %v", *st.IPForward, *st.AllSysctls.ArpIgnore)
	}
}

func TestBootIDThatCannotBeReadIsUnknown(t *testing.T) {
	w := newNamespaceWorld(t, Options{ProcRoot: files(t, map[string]string{"sys/kernel/random/boot_id": "\n", "thread-self/net/netlink": ""})})
	if id, err := w.BootID(); err == nil || id != "" {
		t.Errorf("an empty file gives %q, %v, want an error", id, err)
	}
	st, err := w.State(t.Context(), nil)
	if err != nil || st.BootID != "" || !slices.ContainsFunc(st.Incomplete, func(s string) bool { return strings.HasPrefix(s, "boot id: ") }) {
		t.Errorf("boot id %q, incomplete %q, %v", st.BootID, st.Incomplete, err)
	}
}

func TestBootTimeGoesOn(t *testing.T) {
	l, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	first := l.BootTime()
	if second := l.BootTime(); first <= 0 || second < first {
		t.Errorf("boot time %v, then %v", first, second)
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	for _, u := range []string{"://", "https://127.0.0.1:10249/", "http://127.0.0.1/proxyMode", "127.0.0.1:10249"} {
		if _, err := New(Options{KubeProxyURL: u}); err == nil || !strings.Contains(err.Error(), "kube-proxy URL") {
			t.Errorf("%q: got %v, want an error that names it", u, err)
		}
		if _, err := New(Options{KubeProxyHealthURL: u}); err == nil || !strings.Contains(err.Error(), "kube-proxy health URL") {
			t.Errorf("%q: got %v, want an error that names it", u, err)
		}
	}
}

// Nothing of the machine is touched: each call opens its own sockets and
// leaves none behind.
func TestNoCallLeavesASocketBehind(t *testing.T) {
	w := newNamespaceWorld(t, Options{})
	tuple := story(w)
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	use := func() {
		removed(t, w, tuple)
		restored(t, w, tuple)
		ctx, cancel := context.WithCancel(t.Context())
		if err := w.Changes(ctx, func(Hint) { cancel() }); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if _, err := w.State(t.Context(), watchVIP); err != nil {
			t.Fatal(err)
		}
	}
	use()
	before := count()
	for range 10 {
		use()
	}
	if after := count(); after > before {
		t.Errorf("%d open files, then %d", before, after)
	}
}
