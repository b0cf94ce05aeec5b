// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

var plain = cmp.Options{
	cmpopts.EquateEmpty(),
	cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}, netip.AddrPort{}),
}

// What diagnose judges is the same after a snapshot was saved as JSON and read again.
func TestSnapshotSurvivesItsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawn(t)
		b, err := protojson.Marshal(snapshot.ToProto(s))
		if err != nil {
			t.Fatal(err)
		}
		var p vipmovev1.Snapshot
		if err := protojson.Unmarshal(b, &p); err != nil {
			t.Fatal(err)
		}
		got, err := snapshot.FromProto(&p)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, got, plain); diff != "" {
			t.Fatalf("after JSON (-want +got):\n%s", diff)
		}
	})
}

func TestAddressSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := address(t)
		got, err := snapshot.AddressFromProto(snapshot.AddressToProto(a))
		if diff := cmp.Diff(a, got, plain); err != nil || diff != "" {
			t.Fatalf("error %v, address (-want +got):\n%s", err, diff)
		}
	})
}

func TestNewerSchemaIsRefused(t *testing.T) {
	for version, ok := range map[int32]bool{0: true, 1: true, snapshot.SchemaVersion + 1: false, -1: false} {
		_, err := snapshot.FromProto(&vipmovev1.Snapshot{SchemaVersion: version, Vip: "192.0.2.50"})
		if (err == nil) != ok {
			t.Errorf("schema version %d: error %v, want one: %v", version, err, !ok)
		}
		if err != nil && !strings.Contains(err.Error(), "schema version") {
			t.Errorf("schema version %d: %v", version, err)
		}
	}
	if v := snapshot.ToProto(diagnose.Snapshot{}).GetSchemaVersion(); v != snapshot.SchemaVersion {
		t.Errorf("written schema version %d, want %d", v, snapshot.SchemaVersion)
	}
}

// good is a snapshot with one of everything, each part well-formed.
func good() *vipmovev1.Snapshot {
	return &vipmovev1.Snapshot{
		SchemaVersion: 1, Vip: "192.0.2.50",
		Nodes: []*vipmovev1.Node{{Name: "n1", Role: vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT, Kernel: &vipmovev1.KernelState{
			Links:      []*vipmovev1.Link{{Name: "eth0", Index: 2, Mac: "02:00:00:00:00:01"}},
			Addresses:  []*vipmovev1.Address{{Link: "eth0", LinkIndex: 2, Prefix: "192.0.2.11/24"}},
			Routes:     []*vipmovev1.Route{{Prefix: "0.0.0.0/0", Gateway: "192.0.2.1"}},
			Neighbours: []*vipmovev1.Neighbour{{Ip: "192.0.2.50", Mac: "02:00:00:00:00:02"}},
			Ipvs:       &vipmovev1.Ipvs{State: vipmovev1.Ipvs_STATE_PRESENT, Services: []*vipmovev1.IpvsService{{Address: "192.0.2.50", Port: 443}}},
		}, PendingUndo: &vipmovev1.PendingUndo{Address: &vipmovev1.Address{Prefix: "192.0.2.50/32"}}}},
		Rounds: []*vipmovev1.Round{{Observer: "n1", Vip: "192.0.2.50", SenderIp: "192.0.2.11", TargetMac: "02:00:00:00:00:02",
			Replies: []*vipmovev1.Reply{{SenderMac: "02:00:00:00:00:02", EthSource: "02:00:00:00:00:02", SenderIp: "192.0.2.50"}}, Heard: []string{"02:00:00:00:00:02"}}},
		Outgoing: []*vipmovev1.Outgoing{{Node: "n1", Replies: []*vipmovev1.Reply{{SenderMac: "02:00:00:00:00:01", TargetMac: "02:00:00:00:00:02", TargetIp: "192.0.2.12"}}}},
		Requests: []*vipmovev1.Requests{{Witness: "client", NeighbourMac: "02:00:00:00:00:02"}},
	}
}

// Whatever cannot be read is an error that says where it stands; nothing malformed is skipped.
func TestMalformedValuesAreNamed(t *testing.T) {
	if _, err := snapshot.FromProto(good()); err != nil {
		t.Fatalf("the good one: %v", err)
	}
	kernel := func(s *vipmovev1.Snapshot) *vipmovev1.KernelState { return s.Nodes[0].Kernel }
	for want, spoil := range map[string]func(*vipmovev1.Snapshot){
		`vip: "192.0.2" is not an IP address`:                                   func(s *vipmovev1.Snapshot) { s.Vip = "192.0.2" },
		`vip: "fe80::1%eth0" has a zone`:                                        func(s *vipmovev1.Snapshot) { s.Vip = "fe80::1%eth0" },
		`node 1: name: it has none`:                                             func(s *vipmovev1.Snapshot) { s.Nodes[0].Name = "" },
		`node n1: role: OBSERVER_ROLE_UNSPECIFIED is neither agent nor witness`: func(s *vipmovev1.Snapshot) { s.Nodes[0].Role = 0 },
		`node n1: pending undo: "x" is not an address with a prefix length`:     func(s *vipmovev1.Snapshot) { s.Nodes[0].PendingUndo.Address.Prefix = "x" },
		`node n1: link eth0: mac: "zz" is not a MAC address`:                    func(s *vipmovev1.Snapshot) { kernel(s).Links[0].Mac = "zz" },
		`node n1: link eth0: permanent mac: "1" is not a MAC address`:           func(s *vipmovev1.Snapshot) { kernel(s).Links[0].PermanentMac = "1" },
		`node n1: address 1: prefix: "192.0.2.11" is not an address with a`:     func(s *vipmovev1.Snapshot) { kernel(s).Addresses[0].Prefix = "192.0.2.11" },
		`node n1: address 1: prefix: it has none`:                               func(s *vipmovev1.Snapshot) { kernel(s).Addresses[0].Prefix = "" },
		`node n1: address 1: scope: 256 is above 255`:                           func(s *vipmovev1.Snapshot) { kernel(s).Addresses[0].Scope = 256 },
		`node n1: address 1: peer: "x/y" is not an address with`:                func(s *vipmovev1.Snapshot) { kernel(s).Addresses[0].Peer = "x/y" },
		`node n1: address 1: broadcast: "x" is not an IP address`:               func(s *vipmovev1.Snapshot) { kernel(s).Addresses[0].Broadcast = "x" },
		`node n1: route 1: prefix: it has none`:                                 func(s *vipmovev1.Snapshot) { kernel(s).Routes[0].Prefix = "" },
		`node n1: route 1: gateway: "x" is not an IP address`:                   func(s *vipmovev1.Snapshot) { kernel(s).Routes[0].Gateway = "x" },
		`node n1: route 1: source: "x" is not an IP address`:                    func(s *vipmovev1.Snapshot) { kernel(s).Routes[0].Source = "x" },
		`node n1: route 1: protocol: 300 is above 255`:                          func(s *vipmovev1.Snapshot) { kernel(s).Routes[0].Protocol = 300 },
		`node n1: neighbour 1: ip: "x" is not an IP address`:                    func(s *vipmovev1.Snapshot) { kernel(s).Neighbours[0].Ip = "x" },
		`node n1: neighbour 1: mac: "x" is not a MAC address`:                   func(s *vipmovev1.Snapshot) { kernel(s).Neighbours[0].Mac = "x" },
		`node n1: ipvs service 1: "x" is not an IP address`:                     func(s *vipmovev1.Snapshot) { kernel(s).Ipvs.Services[0].Address = "x" },
		`node n1: ipvs service 1: port 70000`:                                   func(s *vipmovev1.Snapshot) { kernel(s).Ipvs.Services[0].Port = 70000 },
		`node n1: ipvs service 1: neither address nor firewall mark`:            func(s *vipmovev1.Snapshot) { kernel(s).Ipvs.Services[0].Address = "" },
		`round 1 of n1: vip: "x" is not an IP address`:                          func(s *vipmovev1.Snapshot) { s.Rounds[0].Vip = "x" },
		`round 1 of n1: sender ip: "x" is not an IP address`:                    func(s *vipmovev1.Snapshot) { s.Rounds[0].SenderIp = "x" },
		`round 1 of n1: target mac: "x" is not a MAC address`:                   func(s *vipmovev1.Snapshot) { s.Rounds[0].TargetMac = "x" },
		`round 1 of n1: reply 1: sender mac: "x" is not a MAC address`:          func(s *vipmovev1.Snapshot) { s.Rounds[0].Replies[0].SenderMac = "x" },
		`round 1 of n1: reply 1: eth source: "x" is not a MAC address`:          func(s *vipmovev1.Snapshot) { s.Rounds[0].Replies[0].EthSource = "x" },
		`round 1 of n1: reply 1: sender ip: "x" is not an IP address`:           func(s *vipmovev1.Snapshot) { s.Rounds[0].Replies[0].SenderIp = "x" },
		`round 1 of n1: reply 1: vlan: 4095 is above 4094`:                      func(s *vipmovev1.Snapshot) { s.Rounds[0].Replies[0].Vlan = 4095 },
		`round 1 of n1: unsolicited 1: sender mac: "x" is not a MAC address`: func(s *vipmovev1.Snapshot) {
			s.Rounds[0].Unsolicited = []*vipmovev1.Reply{{SenderMac: "x"}}
		},
		`round 1 of n1: heard 1: "x" is not a MAC address`:              func(s *vipmovev1.Snapshot) { s.Rounds[0].Heard[0] = "x" },
		`outgoing of n1: vip: "x" is not an IP address`:                 func(s *vipmovev1.Snapshot) { s.Outgoing[0].Vip = "x" },
		`outgoing of n1: reply 1: target mac: "x" is not a MAC address`: func(s *vipmovev1.Snapshot) { s.Outgoing[0].Replies[0].TargetMac = "x" },
		`outgoing of n1: reply 1: target ip: "x" is not an IP address`:  func(s *vipmovev1.Snapshot) { s.Outgoing[0].Replies[0].TargetIp = "x" },
		`requests of client: neighbour mac: "x" is not a MAC address`:   func(s *vipmovev1.Snapshot) { s.Requests[0].NeighbourMac = "x" },
	} {
		s := good()
		spoil(s)
		if _, err := snapshot.FromProto(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to say %q", err, want)
		}
	}
}

// I6: what a message does not say is unknown, and what this version does not know counts for nothing.
func TestAbsentIsUnknown(t *testing.T) {
	s := good()
	s.Nodes[0].Kernel = &vipmovev1.KernelState{KubeProxy: &vipmovev1.KubeProxy{State: 77}, Ipvs: &vipmovev1.Ipvs{State: 77}}
	s.Rounds[0].Kind = 77
	got, err := snapshot.FromProto(s)
	if err != nil {
		t.Fatal(err)
	}
	k := got.Nodes[0].Kernel
	if k.KubeProxy.State != diagnose.KubeProxyUnknown || k.IPVS.State != diagnose.IPVSUnknown || k.All.ArpIgnore != nil || k.IPForward != nil {
		t.Errorf("kernel %+v, want everything unknown", k)
	}
	if got.Rounds[0].Kind != "" {
		t.Errorf("kind %q of a round that this version does not know", got.Rounds[0].Kind)
	}
	s.Nodes[0].Kernel = nil
	if got, err = snapshot.FromProto(s); err != nil || got.Nodes[0].Kernel != nil {
		t.Errorf("error %v, kernel %+v, want none", err, got.Nodes[0].Kernel)
	}
}

// A service by firewall mark has no address, and must not be lost.
func TestFirewallMarksAreCounted(t *testing.T) {
	s := good()
	s.Nodes[0].Kernel.Ipvs.Services = append(s.Nodes[0].Kernel.Ipvs.Services, &vipmovev1.IpvsService{Fwmark: 7}, &vipmovev1.IpvsService{Fwmark: 8})
	got, err := snapshot.FromProto(s)
	if i := got.Nodes[0].Kernel.IPVS; err != nil || i.Marks != 2 || len(i.Services) != 1 {
		t.Errorf("error %v, ipvs %+v", err, i)
	}
}

// A capture about another address is no evidence, and one that lost frames says so.
func TestCapturesOfOtherAddressesAreLeftOut(t *testing.T) {
	s := good()
	s.Outgoing[0].Truncated = true
	s.Outgoing = append(s.Outgoing, &vipmovev1.Outgoing{Node: "n1", Vip: "192.0.2.51"}, &vipmovev1.Outgoing{Node: "n2", Vip: "192.0.2.50"})
	got, err := snapshot.FromProto(s)
	if err != nil || len(got.Outgoing) != 2 || got.Outgoing[0].Error == "" || got.Outgoing[1].Node != "n2" {
		t.Errorf("error %v, outgoing %+v", err, got.Outgoing)
	}
}

func TestReportToProtoSaysAllThatTheReportSays(t *testing.T) {
	at := time.Date(2026, 11, 30, 14, 3, 7, 0, time.UTC)
	a := diagnose.Address{Link: "kube-ipvs0", LinkIndex: 3, Prefix: netip.MustParsePrefix("192.0.2.50/32"), Label: "kube-ipvs0", ValidLifetime: 0xffffffff}
	p := snapshot.ReportToProto(diagnose.Report{
		VIP: netip.MustParseAddr("192.0.2.50"), Verdict: diagnose.VerdictContested, Owner: "n7", OwnerReason: "asked",
		Segment: diagnose.Segment{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Interfaces: map[string]string{"n1": "eth0"}, Reason: "subnet match"},
		Responders: []diagnose.Responder{{Node: "n1", Interface: "eth0", MAC: "02:00:00:00:00:01", Announcer: diagnose.AnnouncerBoth, Reason: "why", SeenBy: []string{"n2"},
			RepliesPerRequest: 2, AnswersQuestion: true, Mismatched: true, Fastest: 300 * time.Microsecond}},
		Holders: []diagnose.Holder{
			{Node: "n1", Address: a, State: diagnose.HolderStale, Reason: "nothing behind it"},
			{Node: "n2", Route: &diagnose.Route{Prefix: netip.MustParsePrefix("192.0.2.48/28"), Type: "local", Link: "lo", LinkIndex: 1}, State: diagnose.HolderLatent},
		},
		Observers: []diagnose.ObserverView{{Observer: "n2", Role: diagnose.RoleWitness, Interface: "eth0", State: diagnose.ObserverHears, Detail: "d",
			Replies: map[string]int{"02:00:00:00:00:01": 3}, Rounds: 4}},
		Findings: []diagnose.Finding{{Code: diagnose.StaleAddress, Severity: diagnose.Warn, Nodes: []string{"n1"}, Subject: "192.0.2.50", Message: "m",
			Evidence: []string{"e"}, NextStep: "s"}},
	}, at)
	var want vipmovev1.Judgement
	if err := protojson.Unmarshal([]byte(`{"vip": "192.0.2.50", "verdict": "contested", "owner": "n7", "ownerReason": "asked", "at": "2026-11-30T14:03:07Z",
		"segment": {"prefix": "192.0.2.0/24", "interfaces": {"n1": "eth0"}, "reason": "subnet match"},
		"responders": [{"node": "n1", "interface": "eth0", "mac": "02:00:00:00:00:01", "announcer": "kernel+user-space", "reason": "why", "seenBy": ["n2"],
			"repliesPerRequest": 2, "answersQuestion": true, "mismatched": true, "fastest": "0.000300s"}],
		"holders": [{"node": "n1", "address": {"link": "kube-ipvs0", "linkIndex": 3, "prefix": "192.0.2.50/32", "label": "kube-ipvs0", "validLifetime": 4294967295},
			"state": "stale", "reason": "nothing behind it"}, {"node": "n2", "address": {"link": "lo", "linkIndex": 1, "prefix": "192.0.2.48/28"}, "state": "latent"}],
		"observers": [{"observer": "n2", "role": "OBSERVER_ROLE_WITNESS", "interface": "eth0", "state": "hears", "detail": "d", "replies": {"02:00:00:00:00:01": 3}, "rounds": 4}],
		"findings": [{"code": "STALE_ADDRESS", "severity": "warn", "nodes": ["n1"], "subject": "192.0.2.50", "message": "m", "evidence": ["e"], "nextStep": "s"}]}`), &want); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(&want, p) {
		t.Errorf("judgement %s", protojson.Format(p))
	}
	if snapshot.ReportToProto(diagnose.Report{}, time.Time{}).At != nil {
		t.Error("the zero time is written")
	}
}
