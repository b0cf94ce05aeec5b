// SPDX-License-Identifier: Apache-2.0

package diagnose_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

func named(name string, b *kernel) diagnose.Node {
	n := b.node()
	n.Name = name
	return n
}

// bare is a node with links and no address yet.
func bare(links ...diagnose.Link) *kernel {
	b := &kernel{k: diagnose.Kernel{All: zero()}}
	for i, l := range links {
		if l.Index == 0 {
			l.Index = i + 1
		}
		if l.Type == "" {
			l.Type = "ether"
		}
		l.Up = true
		b.link(l)
	}
	return b
}

func nic(name string) diagnose.Link { return diagnose.Link{Name: name} }

func TestSegmentOf(t *testing.T) {
	for _, tt := range []struct {
		name       string
		nic        string
		nodes      []diagnose.Node
		prefix     string
		interfaces map[string]string
		codes      map[diagnose.Code]diagnose.Severity
	}{
		{name: "each node's NIC whose subnet holds the VIP", prefix: "192.0.2.0/24",
			nodes: []diagnose.Node{
				named("n1", bare(nic("eno1"), nic("eth1")).at("eno1", "192.0.2.11/24", 0).at("eth1", "198.51.100.11/24", 0)),
				named("n2", bare(nic("enp3s0")).at("enp3s0", "192.0.2.12/24", 0)),
				named("n3", bare(nic("eth0")).at("eth0", "198.51.100.13/24", 0)),
			},
			interfaces: map[string]string{"n1": "eno1", "n2": "enp3s0"}},
		{name: "the nearest subnet, not the widest", prefix: "192.0.2.32/27",
			nodes:      []diagnose.Node{named("n1", bare(nic("eth0"), nic("eth1")).at("eth0", "192.0.2.11/24", 0).at("eth1", "192.0.2.40/27", 0))},
			interfaces: map[string]string{"n1": "eth1"}},
		{name: "two NICs on one subnet: the lower index", prefix: "192.0.2.0/24",
			nodes: []diagnose.Node{named("n1", bare(diagnose.Link{Name: "a", Index: 7}, diagnose.Link{Name: "b", Index: 2}).
				at("a", "192.0.2.11/24", 0).at("b", "192.0.2.111/24", 0))},
			interfaces: map[string]string{"n1": "b"}},
		{name: "never a dummy, a managed link, a port, a slave, a tunnel or a host prefix",
			nodes: []diagnose.Node{named("n1", bare(
				diagnose.Link{Name: "kube-ipvs0"}, diagnose.Link{Name: "lan0", Kind: "dummy"}, diagnose.Link{Name: "ifb0", Kind: "ifb"},
				diagnose.Link{Name: "cilium_host", Kind: "veth"}, diagnose.Link{Name: "port", BridgePort: true}, diagnose.Link{Name: "slave", MasterIndex: 99},
				diagnose.Link{Name: "wg0", Type: "none"}, nic("cloud")).
				at("kube-ipvs0", "192.0.2.1/24", 0).at("lan0", "192.0.2.2/24", 0).at("ifb0", "192.0.2.3/24", 0).at("cilium_host", "192.0.2.4/24", 0).
				at("port", "192.0.2.5/24", 0).at("slave", "192.0.2.6/24", 0).at("wg0", "192.0.2.7/24", 0).at("cloud", "192.0.2.8/32", 0))},
			codes: map[diagnose.Code]diagnose.Severity{diagnose.NoSegment: diagnose.Refuse}},
		{name: "a bridge and a VLAN face a network like any NIC", prefix: "192.0.2.0/24",
			nodes: []diagnose.Node{
				named("n1", bare(diagnose.Link{Name: "br0", Kind: "bridge"}, diagnose.Link{Name: "eth0", BridgePort: true}).at("br0", "192.0.2.11/24", 0)),
				named("n2", bare(diagnose.Link{Name: "eth0.7", Kind: "vlan"}).at("eth0.7", "192.0.2.12/24", 0)),
			},
			interfaces: map[string]string{"n1": "br0", "n2": "eth0.7"}},
		{name: "a node that has the VIP as its own is on the segment, and refused", prefix: "192.0.2.0/24",
			nodes:      []diagnose.Node{named("n1", bare(nic("eth0")).at("eth0", "192.0.2.50/24", 0))},
			interfaces: map[string]string{"n1": "eth0"},
			codes:      map[diagnose.Code]diagnose.Severity{diagnose.VIPIsNodeAddress: diagnose.Refuse}},
		{name: "the NIC that the operator named, before any subnet", nic: "eth1", prefix: "198.51.100.0/24",
			nodes: []diagnose.Node{
				named("n1", bare(nic("eth0"), nic("eth1")).at("eth0", "192.0.2.11/24", 0).at("eth1", "198.51.100.11/24", 0)),
				named("n2", bare(nic("enp3s0")).at("enp3s0", "198.51.100.12/24", 0)),
				named("n3", bare(nic("eth0")).at("eth0", "192.0.2.13/24", 0)),
			},
			interfaces: map[string]string{"n1": "eth1", "n2": "enp3s0"},
			codes:      map[diagnose.Code]diagnose.Severity{diagnose.OutsideSubnet: diagnose.Warn}},
		{name: "a named NIC that is a bridge's port on one node", nic: "eth0", prefix: "192.0.2.0/24",
			nodes: []diagnose.Node{
				named("n1", bare(nic("eth0")).at("eth0", "192.0.2.11/24", 0)),
				named("n2", bare(diagnose.Link{Name: "eth0", BridgePort: true}, diagnose.Link{Name: "br0", Kind: "bridge"}).at("br0", "192.0.2.12/24", 0)),
			},
			interfaces: map[string]string{"n1": "eth0", "n2": "br0"}},
		{name: "a named NIC without an address", nic: "eth1",
			nodes:      []diagnose.Node{named("n1", bare(nic("eth1")))},
			interfaces: map[string]string{"n1": "eth1"},
			codes:      map[diagnose.Code]diagnose.Severity{diagnose.OutsideSubnet: diagnose.Warn}},
		{name: "a NIC that nobody has", nic: "eth7",
			nodes: []diagnose.Node{named("n1", bare(nic("eth0")).at("eth0", "192.0.2.11/24", 0)), {Name: "n2", Role: diagnose.RoleAgent}},
			codes: map[diagnose.Code]diagnose.Severity{diagnose.NoSegment: diagnose.Refuse}},
		{name: "the prefix that most nodes have", prefix: "192.0.2.0/25",
			nodes: []diagnose.Node{
				named("n1", bare(nic("eth0")).at("eth0", "192.0.2.11/24", 0)),
				named("n2", bare(nic("eth0")).at("eth0", "192.0.2.12/25", 0)),
				named("n3", bare(nic("eth0")).at("eth0", "192.0.2.13/25", 0)),
			},
			interfaces: map[string]string{"n1": "eth0", "n2": "eth0", "n3": "eth0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seg, findings := diagnose.SegmentOf(diagnose.Snapshot{VIP: vip, Interface: tt.nic, Nodes: tt.nodes})
			if tt.prefix != "" && seg.Prefix.String() != tt.prefix || tt.prefix == "" && seg.Prefix.IsValid() {
				t.Errorf("prefix %s, want %q", seg.Prefix, tt.prefix)
			}
			if tt.interfaces == nil {
				tt.interfaces = map[string]string{}
			}
			if diff := cmp.Diff(tt.interfaces, seg.Interfaces); diff != "" {
				t.Errorf("interfaces (-want +got):\n%s", diff)
			}
			codes := map[diagnose.Code]diagnose.Severity{}
			for _, f := range findings {
				codes[f.Code] = f.Severity
			}
			if tt.codes == nil {
				tt.codes = map[diagnose.Code]diagnose.Severity{}
			}
			if diff := cmp.Diff(tt.codes, codes); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// C12: a node's own address is no VIP. What a VIP manager puts on a NIC beside it is none of this code's business.
func TestVIPThatIsANodesOwnAddress(t *testing.T) {
	source := func(k *diagnose.Kernel) {
		k.Routes = append(k.Routes, diagnose.Route{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Type: "unicast", Table: 254, Link: "eth0", Source: vip})
	}
	for _, tt := range []struct {
		name   string
		kernel *kernel
		own    bool
	}{
		{"with a subnet on a NIC", bare(nic("eth0")).at("eth0", "192.0.2.50/24", 0).at("eth0", "192.0.2.11/24", 0), true},
		{"a cloud's /32, the only address of the node", bare(nic("eth0")).at("eth0", "192.0.2.50/32", 0).at("kube-ipvs0", "10.96.0.1/32", 0), true},
		{"a /32 that routes leave from", plain().at("eth0", "192.0.2.50/32", 0).change(source), true},
		{"a /32 on a NIC beside its own (C46)", plain().at("eth0", "192.0.2.50/32", 0), false},
		{"a /32 on loopback", plain().at("lo", "192.0.2.50/32", 0), false},
		{"a leftover with a subnet", plain().at("kube-ipvs0", "192.0.2.50/24", 0), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, findings := diagnose.SegmentOf(diagnose.Snapshot{VIP: vip, Interface: "eth0", Nodes: []diagnose.Node{tt.kernel.node()}})
			got := false
			for _, f := range findings {
				got = got || f.Code == diagnose.VIPIsNodeAddress && f.Severity == diagnose.Refuse
			}
			if got != tt.own {
				t.Errorf("node's own address: %v, want %v", got, tt.own)
			}
		})
	}
}
