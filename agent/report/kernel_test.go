// SPDX-License-Identifier: Apache-2.0

package report

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/vipmove/vipmove/agent/host"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func pre(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func sysctlValue(v int) *int { return &v }

// fullState is a state with every field set, each to another value.
func fullState() host.State {
	sysctls := func(base int) host.Sysctls {
		v := func(i int) *int { return sysctlValue(base + i) }
		return host.Sysctls{
			ArpIgnore: v(1), ArpAnnounce: v(2), ArpFilter: v(3), ProxyArp: v(4), RpFilter: v(5),
			PromoteSecondaries: v(6), RouteLocalnet: v(7), AcceptLocal: v(8), Forwarding: v(9),
		}
	}
	return host.State{
		BootID: "boot", BootTime: 7 * time.Second,
		Links: []host.Link{{
			Name: "eth0", Index: 2, Kind: "veth", MasterIndex: 9, ParentIndex: 8, MAC: "02:00:00:00:00:0b",
			PermanentMAC: "02:00:00:00:00:0c", Flags: 0x1003, Up: true, Carrier: true, Type: "ether", MTU: 1400, BridgePort: true,
		}, {Name: "eth1", Index: 3, Type: "infiniband"}},
		Addresses: []host.Address{{
			LinkIndex: 2, Link: "eth0", Prefix: pre("192.0.2.11/24"), Peer: pre("192.0.2.12/24"), Broadcast: addr("192.0.2.255"),
			Scope: 253, Label: "eth0:1", Flags: 0x80, ValidLifetime: 100, PreferredLifetime: 50, Metric: 5, Protocol: 3,
		}},
		Routes: []host.Route{{
			Prefix: pre("192.0.2.50/32"), Type: "local", Table: 255, Link: "eth0", LinkIndex: 2, Links: []int{2},
			Source: addr("192.0.2.11"), Gateways: []netip.Addr{addr("192.0.2.1")}, Scope: 254, Protocol: 2,
		}},
		Neighbours: []host.Neighbour{{IP: addr("192.0.2.50"), MAC: "02:00:00:00:00:0d", Link: "eth0", State: "reachable"}},
		AllSysctls: sysctls(10), LinkSysctls: map[string]host.Sysctls{"eth0": sysctls(20)}, IPForward: sysctlValue(1),
		IPVS: host.IPVS{State: host.IPVSPresent, Reason: "r", Source: "proc", Services: []host.IPVSService{
			{Address: addr("10.96.0.1"), Port: 443, Protocol: "tcp"}, {FWMark: 9},
		}},
		KubeProxy:  host.KubeProxy{State: host.KubeProxyRunning, Mode: "ipvs", Detail: "d"},
		ARPPath:    host.ARPPath{Unknown: true, Reasons: []string{"nftables: x"}},
		Incomplete: []string{"rules: denied"}, DumpRetries: 4,
	}
}

const fullStateJSON = `{
  "bootId": "boot", "boottime": "7s", "ipForward": 1, "incomplete": ["rules: denied"], "dumpRetries": 4,
  "links": [
    {"name": "eth0", "index": 2, "kind": "veth", "masterIndex": 9, "parentIndex": 8, "mac": "02:00:00:00:00:0b",
     "permanentMac": "02:00:00:00:00:0c", "flags": 4099, "up": true, "carrier": true, "type": "ether", "mtu": 1400, "bridgePort": true,
     "sysctls": {"arpIgnore": 21, "arpAnnounce": 22, "arpFilter": 23, "proxyArp": 24, "rpFilter": 25,
       "promoteSecondaries": 26, "routeLocalnet": 27, "acceptLocal": 28, "forwarding": 29}},
    {"name": "eth1", "index": 3, "type": "infiniband"}],
  "addresses": [{"link": "eth0", "linkIndex": 2, "prefix": "192.0.2.11/24", "peer": "192.0.2.12/24", "broadcast": "192.0.2.255",
    "scope": 253, "label": "eth0:1", "flags": 128, "validLifetime": 100, "preferredLifetime": 50}],
  "routes": [{"prefix": "192.0.2.50/32", "type": "local", "table": 255, "link": "eth0", "linkIndex": 2,
    "source": "192.0.2.11", "gateway": "192.0.2.1", "scope": 254, "protocol": 2}],
  "sysctlsAll": {"arpIgnore": 11, "arpAnnounce": 12, "arpFilter": 13, "proxyArp": 14, "rpFilter": 15,
    "promoteSecondaries": 16, "routeLocalnet": 17, "acceptLocal": 18, "forwarding": 19},
  "ipvs": {"state": "STATE_PRESENT", "reason": "r", "source": "proc",
    "services": [{"address": "10.96.0.1", "port": 443, "protocol": "tcp"}, {"fwmark": 9}]},
  "kubeProxy": {"state": "STATE_RUNNING", "mode": "ipvs", "detail": "d"},
  "neighbours": [{"ip": "192.0.2.50", "mac": "02:00:00:00:00:0d", "link": "eth0", "state": "reachable"}],
  "arpPath": {"unknown": true, "reasons": ["nftables: x"]}
}`

func TestEveryFieldOfAReadingComesThrough(t *testing.T) {
	want := &vipmovev1.KernelState{}
	if err := protojson.Unmarshal([]byte(fullStateJSON), want); err != nil {
		t.Fatal(err)
	}
	got := KernelState(fullState())
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("kernel state (-want +got):\n%s", diff)
	}
	// The sample would not notice a field that it leaves out.
	fields := got.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.Name() != "read_at" && !got.ProtoReflect().Has(f) {
			t.Errorf("the sample does not set %s", f.Name())
		}
	}
	link := got.GetLinks()[0].ProtoReflect()
	eachUnset(link, func(f protoreflect.FieldDescriptor) { t.Errorf("the sample does not set link %s", f.Name()) })
	eachUnset(got.GetAddresses()[0].ProtoReflect(), func(f protoreflect.FieldDescriptor) { t.Errorf("the sample does not set address %s", f.Name()) })
	eachUnset(got.GetRoutes()[0].ProtoReflect(), func(f protoreflect.FieldDescriptor) { t.Errorf("the sample does not set route %s", f.Name()) })
}

func eachUnset(m protoreflect.Message, fn func(protoreflect.FieldDescriptor)) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if !m.Has(fields.Get(i)) {
			fn(fields.Get(i))
		}
	}
}

func TestWhatCouldNotBeReadIsAbsentNotZero(t *testing.T) {
	k := KernelState(host.State{
		Links: []host.Link{{Name: "eth0"}, {Name: "eth1"}}, LinkSysctls: map[string]host.Sysctls{"eth0": {}},
		KubeProxy: host.KubeProxy{State: host.KubeProxyUnknown}, IPVS: host.IPVS{State: host.IPVSUnreadable},
	})
	if k.IpForward != nil || k.GetSysctlsAll().ArpIgnore != nil || k.GetLinks()[0].GetSysctls().ArpIgnore != nil {
		t.Errorf("an unread sysctl has a value: %v", k)
	}
	if k.GetLinks()[1].GetSysctls() != nil {
		t.Errorf("a link without sysctls has some: %v", k.GetLinks()[1])
	}
	if k.GetKubeProxy().GetState() != vipmovev1.KubeProxy_STATE_UNSPECIFIED || k.GetIpvs().GetState() != vipmovev1.Ipvs_STATE_UNREADABLE {
		t.Errorf("unknown became something else: %v %v", k.GetKubeProxy(), k.GetIpvs())
	}
}

func TestNoGatewayOfAMultipathRouteIsForgotten(t *testing.T) {
	names := map[int]string{2: "eth0", 3: "eth1"}
	for name, tt := range map[string]struct {
		route host.Route
		want  []string
	}{
		"every hop has one": {
			host.Route{Links: []int{2, 3}, Gateways: []netip.Addr{addr("192.0.2.1"), addr("198.51.100.1")}},
			[]string{"eth0 192.0.2.1", "eth1 198.51.100.1"},
		},
		"one hop has none": {
			host.Route{Links: []int{2, 3}, Gateways: []netip.Addr{addr("192.0.2.1")}},
			[]string{"eth0 ", "eth1 ", " 192.0.2.1"},
		},
		"one hop":  {host.Route{Link: "eth0", Links: []int{2}, Gateways: []netip.Addr{addr("192.0.2.1")}}, []string{"eth0 192.0.2.1"}},
		"no hop":   {host.Route{Type: "blackhole"}, []string{" "}},
		"no links": {host.Route{Gateways: []netip.Addr{addr("192.0.2.1"), addr("192.0.2.2")}}, []string{" 192.0.2.1", " 192.0.2.2"}},
	} {
		var got []string
		for _, r := range routes(tt.route, names) {
			got = append(got, r.GetLink()+" "+r.GetGateway())
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestATupleComesBackAsItWasButForWhatTheWireHasNot(t *testing.T) {
	want := fullState().Addresses[0].Tuple()
	got, err := TupleFromProto(AddressToProto(want))
	if err != nil {
		t.Fatal(err)
	}
	want.Metric, want.Protocol = 0, 0
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("tuple (-want +got):\n%s", diff)
	}
	bare := host.Tuple{Link: "kube-ipvs0", LinkIndex: 3, Prefix: pre("192.0.2.50/32")}
	if got, err := TupleFromProto(AddressToProto(bare)); err != nil || !reflect.DeepEqual(got, bare) {
		t.Errorf("bare tuple: %+v, %v", got, err)
	}
}

func TestATupleThatNoKernelCouldListIsRefused(t *testing.T) {
	good := func() *vipmovev1.Address {
		return &vipmovev1.Address{Link: "kube-ipvs0", LinkIndex: 3, Prefix: "192.0.2.50/32"}
	}
	for name, spoil := range map[string]func(*vipmovev1.Address){
		"no link":       func(a *vipmovev1.Address) { a.Link = "" },
		"no index":      func(a *vipmovev1.Address) { a.LinkIndex = 0 },
		"no prefix":     func(a *vipmovev1.Address) { a.Prefix = "" },
		"bare address":  func(a *vipmovev1.Address) { a.Prefix = "192.0.2.50" },
		"long prefix":   func(a *vipmovev1.Address) { a.Prefix = "192.0.2.50/33" },
		"large scope":   func(a *vipmovev1.Address) { a.Scope = 256 },
		"bad peer":      func(a *vipmovev1.Address) { a.Peer = "x" },
		"bad broadcast": func(a *vipmovev1.Address) { a.Broadcast = "x" },
	} {
		a := good()
		spoil(a)
		if got, err := TupleFromProto(a); err == nil {
			t.Errorf("%s: accepted as %v", name, got)
		}
	}
	if _, err := TupleFromProto(nil); err == nil {
		t.Error("none at all: accepted")
	}
	if _, err := TupleFromProto(good()); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

// FuzzTupleFromProto: whatever a coordinator sends, it is a host tuple or an error.
func FuzzTupleFromProto(f *testing.F) {
	f.Add("kube-ipvs0", int32(3), "192.0.2.50/32", uint32(0), "", "")
	f.Add("", int32(-1), "::/0", uint32(1<<31), "x", "y")
	f.Fuzz(func(t *testing.T, link string, index int32, prefix string, scope uint32, peer, broadcast string) {
		tuple, err := TupleFromProto(&vipmovev1.Address{
			Link: link, LinkIndex: index, Prefix: prefix, Scope: scope, Peer: peer, Broadcast: broadcast,
		})
		if err != nil {
			return
		}
		if tuple.Link == "" || tuple.LinkIndex <= 0 || !tuple.Prefix.IsValid() {
			t.Errorf("accepted %+v", tuple)
		}
		again, err := TupleFromProto(AddressToProto(tuple))
		if err != nil || !reflect.DeepEqual(again, tuple) {
			t.Errorf("%+v came back as %+v, %v", tuple, again, err)
		}
	})
}
