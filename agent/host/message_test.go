// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// netipEqual compares netip values, whose fields go-cmp must not look into.
var netipEqual = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func parseAddress(b []byte, label *string) (a Address, err error) {
	err = a.parse(b, label)
	return a, err
}

// addressMessage is what inet_fill_ifaddr (net/ipv4/devinet.c) and
// inet6_fill_ifaddr (net/ipv6/addrconf.c) would make of a.
func addressMessage(a Address) []byte {
	b := a.Tuple().identity()
	if a.Prefix.Addr().Is6() && !a.Peer.IsValid() {
		b = attribute(b[:unix.SizeofIfAddrmsg], unix.IFA_ADDRESS, a.Prefix.Addr().AsSlice())
	}
	b[2] = byte(a.Flags)
	if a.Broadcast.IsValid() {
		b = attribute(b, unix.IFA_BROADCAST, a.Broadcast.AsSlice())
	}
	b = attribute32(b, unix.IFA_FLAGS, a.Flags)
	b = attribute32(b, unix.IFA_RT_PRIORITY, a.Metric)
	b = attribute(b, ifaProto, []byte{a.Protocol})
	life := binary.NativeEndian.AppendUint32(nil, a.PreferredLifetime)
	life = binary.NativeEndian.AppendUint32(life, a.ValidLifetime)
	return attribute(b, unix.IFA_CACHEINFO, append(life, make([]byte, 8)...))
}

func genAddr(v6 bool) *rapid.Generator[netip.Addr] {
	return rapid.Custom(func(t *rapid.T) netip.Addr {
		n := 4
		if v6 {
			n = 16
		}
		ip, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "ip"))
		return ip
	})
}

func genAddress() *rapid.Generator[Address] {
	return rapid.Custom(func(t *rapid.T) Address {
		v6 := rapid.Bool().Draw(t, "v6")
		ip := genAddr(v6).Draw(t, "address")
		a := Address{
			LinkIndex: rapid.IntRange(1, 1<<31-1).Draw(t, "index"),
			Prefix:    netip.PrefixFrom(ip, rapid.IntRange(0, ip.BitLen()).Draw(t, "bits")),
			Scope:     rapid.Byte().Draw(t, "scope"), Flags: rapid.Uint32().Draw(t, "flags"),
			ValidLifetime: rapid.Uint32().Draw(t, "valid"), PreferredLifetime: rapid.Uint32().Draw(t, "preferred"),
			Metric: rapid.Uint32().Draw(t, "metric"), Protocol: rapid.Byte().Draw(t, "protocol"),
		}
		if rapid.Bool().Draw(t, "has peer") {
			if peer := genAddr(v6).Draw(t, "peer"); peer != ip {
				a.Peer = netip.PrefixFrom(peer, a.Prefix.Bits())
			}
		}
		if !v6 {
			a.Label = rapid.StringMatching(`[a-z0-9:.-]{0,15}`).Draw(t, "label")
			if rapid.Bool().Draw(t, "has broadcast") {
				a.Broadcast = genAddr(false).Draw(t, "broadcast")
			}
		}
		return a
	})
}

func TestEveryAddressTheKernelCanTellIsReadExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := genAddress().Draw(t, "address")
		var label string
		got, err := parseAddress(addressMessage(want), &label)
		if err != nil {
			t.Fatalf("reading %+v: %v", want, err)
		}
		if diff := cmp.Diff(want, got, netipEqual); diff != "" {
			t.Fatalf("read differently (-kernel +read):\n%s", diff)
		}
	})
}

// The undo record is JSON on disk: I9 holds only if it loses nothing.
func TestTupleSurvivesItsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := genAddress().Draw(t, "address")
		a.Link = rapid.StringMatching(`[a-z0-9.@-]{1,15}`).Draw(t, "link")
		want := a.Tuple()
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Tuple
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("reading %s: %v", b, err)
		}
		if diff := cmp.Diff(want, got, netipEqual); diff != "" {
			t.Fatalf("differs after JSON %s:\n%s", b, diff)
		}
		if !got.is(a) || a.Tuple() != got {
			t.Fatalf("%+v no longer names %+v", got, a)
		}
	})
}

func TestAddressesThatAreNotValidAreErrors(t *testing.T) {
	good := addressMessage(Address{LinkIndex: 3, Prefix: vip32, Label: "kube-ipvs0", ValidLifetime: Forever, PreferredLifetime: Forever})
	for name, b := range map[string][]byte{
		"no header":           good[:7],
		"cut in an attribute": good[:len(good)-1],
		"prefix length 33":    slices.Concat([]byte{unix.AF_INET, 33}, good[2:]),
		"no address at all":   good[:unix.SizeofIfAddrmsg],
		"IPv4 in IPv6":        slices.Concat([]byte{unix.AF_INET6}, good[1:]),
		"address of 3 bytes":  attribute(slices.Clone(good[:unix.SizeofIfAddrmsg]), unix.IFA_LOCAL, []byte{1, 2, 3}),
		"short lifetimes":     attribute(slices.Clone(good), unix.IFA_CACHEINFO, []byte{1, 2, 3, 4}),
		"short flags":         attribute(slices.Clone(good), unix.IFA_FLAGS, []byte{1}),
		"attribute length 0":  slices.Concat(good, []byte{0, 0, 1, 0}),
	} {
		var label string
		if a, err := parseAddress(b, &label); err == nil {
			t.Errorf("%s: read as %+v, want an error", name, a)
		}
	}
	var label string
	mpls := slices.Concat([]byte{unix.AF_MPLS}, good[1:])
	if a, err := parseAddress(mpls, &label); err != nil || a.Prefix.IsValid() {
		t.Errorf("another family: got %+v, %v, want it passed over", a, err)
	}
}

func routeMessage(family, bits, table, protocol, scope, typ byte) []byte {
	return []byte{family, bits, 0, 0, table, protocol, scope, typ, 0, 0, 0, 0}
}

func TestRoutesAreReadWithEveryNextHop(t *testing.T) {
	gateway, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.3")
	hop := func(index uint32, attrs ...byte) []byte {
		b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtNexthop+len(attrs)))
		b = append(b, 0, 0)
		return append(binary.NativeEndian.AppendUint32(b, index), attrs...)
	}
	plain := attribute32(attribute(routeMessage(unix.AF_INET, 0, 254, 3, 0, unix.RTN_UNICAST), unix.RTA_GATEWAY, gateway.AsSlice()), unix.RTA_OIF, 2)
	local := attribute32(attribute(routeMessage(unix.AF_INET, 32, 255, 2, 254, unix.RTN_LOCAL), unix.RTA_DST, vip.AsSlice()), unix.RTA_OIF, 3)
	local = attribute(local, unix.RTA_PREFSRC, vip.AsSlice())
	multi := attribute(routeMessage(unix.AF_INET, 0, 254, 3, 0, unix.RTN_UNICAST), unix.RTA_MULTIPATH, slices.Concat(
		hop(2, attribute(nil, unix.RTA_GATEWAY, gateway.AsSlice())...), hop(4, attribute(nil, unix.RTA_GATEWAY, other.AsSlice())...)))
	via := attribute(routeMessage(unix.AF_INET, 0, 254, 3, 0, unix.RTN_UNICAST), unix.RTA_VIA, slices.Concat([]byte{unix.AF_INET6, 0}, vipSix.AsSlice()))
	object := attribute32(attribute32(routeMessage(unix.AF_INET6, 0, 0, 3, 0, unix.RTN_BLACKHOLE), rtaNHID, 9), unix.RTA_TABLE, 1000)
	masked := attribute(routeMessage(unix.AF_INET, 24, 254, 2, 253, 99), unix.RTA_DST, vip.AsSlice())
	anywhere := netip.MustParsePrefix("0.0.0.0/0")
	for _, c := range []struct {
		name string
		b    []byte
		want Route
	}{
		{"a default route", plain, Route{Prefix: anywhere, Type: "unicast", Table: 254, LinkIndex: 2, Links: []int{2}, Gateways: []netip.Addr{gateway}, Protocol: 3}},
		{"a local address", local, Route{Prefix: vip32, Type: "local", Table: LocalTable, LinkIndex: 3, Links: []int{3}, Source: vip, Scope: 254, Protocol: 2}},
		{"two next hops", multi, Route{Prefix: anywhere, Type: "unicast", Table: 254, Links: []int{2, 4}, Gateways: []netip.Addr{gateway, other}, Protocol: 3}},
		{"a gateway of another family", via, Route{Prefix: anywhere, Type: "unicast", Table: 254, Gateways: []netip.Addr{vipSix}, Protocol: 3}},
		{"a nexthop object, a table above 255", object, Route{Prefix: netip.MustParsePrefix("::/0"), Type: "blackhole", Table: 1000, NextHop: 9, Protocol: 3}},
		{"a type nobody knows", masked, Route{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Type: "type 99", Table: 254, Scope: 253, Protocol: 2}},
	} {
		got, err := parseRoute(c.b)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(c.want, got, netipEqual); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestRoutesThatAreNotValidAreErrors(t *testing.T) {
	for name, b := range map[string][]byte{
		"no header":         make([]byte, 11),
		"prefix length 33":  attribute(routeMessage(unix.AF_INET, 33, 254, 2, 0, 1), unix.RTA_DST, vip.AsSlice()),
		"short next hops":   attribute(routeMessage(unix.AF_INET, 0, 254, 2, 0, 1), unix.RTA_MULTIPATH, []byte{200, 0, 0, 0, 1, 0, 0, 0}),
		"short output link": attribute(routeMessage(unix.AF_INET, 0, 254, 2, 0, 1), unix.RTA_OIF, []byte{1}),
		"gateway, 5 bytes":  attribute(routeMessage(unix.AF_INET, 0, 254, 2, 0, 1), unix.RTA_GATEWAY, []byte{1, 2, 3, 4, 5}),
	} {
		if r, err := parseRoute(b); err == nil {
			t.Errorf("%s: read as %+v, want an error", name, r)
		}
	}
}

func TestNeighboursAreRead(t *testing.T) {
	entry := func(family byte, state uint16) []byte {
		b := make([]byte, unix.SizeofNdMsg)
		b[0] = family
		binary.NativeEndian.PutUint32(b[4:], 2)
		binary.NativeEndian.PutUint16(b[8:], state)
		return b
	}
	known := attribute(attribute(entry(unix.AF_INET, unix.NUD_STALE), unix.NDA_DST, vip.AsSlice()), unix.NDA_LLADDR, []byte{2, 0, 0, 0, 0, 0x11})
	got, index, err := parseNeighbour(known)
	if want := (Neighbour{IP: vip, MAC: eth0MAC, State: "stale"}); err != nil || got != want || index != 2 {
		t.Errorf("got %+v on %d, %v, want %+v on 2", got, index, err, want)
	}
	unresolved := attribute(entry(unix.AF_INET, unix.NUD_INCOMPLETE), unix.NDA_DST, vip.AsSlice())
	if got, _, err := parseNeighbour(unresolved); err != nil || got.MAC != "" || got.State != "incomplete" {
		t.Errorf("unresolved: got %+v, %v", got, err)
	}
	if got, _, err := parseNeighbour(entry(unix.AF_BRIDGE, unix.NUD_REACHABLE)); err != nil || got.IP.IsValid() {
		t.Errorf("a bridge's entry: got %+v, %v, want no IP", got, err)
	}
	if _, _, err := parseNeighbour(known[:5]); err == nil {
		t.Error("a cut entry was read")
	}
	if _, _, err := parseNeighbour(known[:len(known)-4]); err == nil {
		t.Error("an entry cut in an attribute was read")
	}
	seen := map[string]uint16{}
	for _, s := range []uint16{0, 1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0x81} {
		name := neighbourState(s)
		if other, ok := seen[name]; ok || name == "" {
			t.Errorf("states %#x and %#x are both %q", s, other, name)
		}
		seen[name] = s
	}
}

func TestHintsNameWhatChanged(t *testing.T) {
	address := addressMessage(Address{LinkIndex: 3, Prefix: vip32, ValidLifetime: Forever, PreferredLifetime: Forever})
	route := attribute32(attribute(routeMessage(unix.AF_INET, 32, 255, 2, 254, unix.RTN_LOCAL), unix.RTA_DST, vip.AsSlice()), unix.RTA_OIF, 3)
	link := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(link[4:], 5)
	var got []Hint
	err := hints(batch(
		message(unix.RTM_NEWADDR, 0, 0, 0, address...), message(unix.RTM_DELADDR, 0, 0, 0, address...),
		message(unix.RTM_NEWROUTE, 0, 0, 0, route...), message(unix.RTM_DELROUTE, 0, 0, 0, route...),
		message(unix.RTM_NEWLINK, 0, 0, 0, link...), message(unix.RTM_DELLINK, 0, 0, 0, link...),
		message(unix.RTM_NEWRULE, 0, 0, 0, 1, 2, 3),
	), func(h Hint) { got = append(got, h) })
	if err != nil {
		t.Fatal(err)
	}
	want := []Hint{
		{AddressChanged, 3, vip, false}, {AddressChanged, 3, vip, true},
		{RouteChanged, 3, vip, false}, {RouteChanged, 3, vip, true},
		{LinkChanged, 5, netip.Addr{}, false}, {LinkChanged, 5, netip.Addr{}, true},
	}
	if diff := cmp.Diff(want, got, netipEqual); diff != "" {
		t.Errorf("hints (-want +got):\n%s", diff)
	}
	if err := hints(message(unix.RTM_NEWLINK, 0, 0, 0, 1), func(Hint) {}); err == nil {
		t.Error("a cut link message gave no error")
	}
	if err := hints(message(unix.RTM_NEWADDR, 0, 0, 0, 1)[:17], func(Hint) {}); err == nil {
		t.Error("a cut batch gave no error")
	}
}

// FuzzMessages: whatever bytes come, no reader panics, and what it reads is
// either an error or valid.
func FuzzMessages(f *testing.F) {
	f.Add(addressMessage(Address{LinkIndex: 3, Prefix: vip24, Label: "kube-ipvs0", Broadcast: vip}))
	f.Add(addressMessage(Address{LinkIndex: 3, Prefix: vip128}))
	f.Add(attribute32(attribute(routeMessage(unix.AF_INET, 32, 255, 2, 254, unix.RTN_LOCAL), unix.RTA_DST, vip.AsSlice()), unix.RTA_OIF, 3))
	f.Add(attribute(routeMessage(unix.AF_INET6, 0, 254, 2, 0, 1), unix.RTA_MULTIPATH, []byte{8, 0, 0, 0, 1, 0, 0, 0}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var label string
		if a, err := parseAddress(b, &label); err == nil && a != (Address{}) && !a.Prefix.IsValid() {
			t.Errorf("address without a prefix: %+v", a)
		}
		if strings.IndexByte(label, 0) >= 0 {
			t.Errorf("label with a NUL: %q", label)
		}
		if r, err := parseRoute(b); err == nil && (!r.Prefix.IsValid() || r.Prefix != r.Prefix.Masked()) {
			t.Errorf("route with prefix %v", r.Prefix)
		}
		_, _, _ = parseNeighbour(b)
		_ = hints(b, func(h Hint) {
			if h.Kind == "" {
				t.Error("a hint about nothing")
			}
		})
	})
}
