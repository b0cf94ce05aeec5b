// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// whole is a snapshot in which nothing contradicts anything.
func whole() *vipmovev1.Snapshot {
	s := good()
	k := s.Nodes[0].Kernel
	k.Links = []*vipmovev1.Link{
		{Name: "lo", Index: 1, Type: "loopback", Up: true, Carrier: true, Flags: 0x10049},
		{Name: "eth0", Index: 2, Type: "ether", Mac: "02:00:00:00:00:01", Up: true},
		{Name: "kube-ipvs0", Index: 3, Type: "ether", Kind: "dummy", Flags: 130},
		{Name: "gretap0", Index: 4, Type: "ether", Kind: "gretap", Flags: 0x1002},
	}
	k.Addresses = append(k.Addresses, &vipmovev1.Address{Link: "kube-ipvs0", LinkIndex: 3, Prefix: "192.0.2.50/32"},
		&vipmovev1.Address{Link: "gone0", LinkIndex: 77, Prefix: "10.0.0.1/32"}) // went between two dumps
	s.Nodes = append(s.Nodes, &vipmovev1.Node{Name: "client", Role: vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS})
	s.Rounds[0].Kind, s.Rounds[0].TargetMac, s.Rounds[0].Interface, s.Rounds[0].Sent = vipmovev1.ProbeKind_PROBE_KIND_BROADCAST, "", "eth0", true
	s.Rounds = append(s.Rounds,
		&vipmovev1.Round{Observer: "n1", Interface: "eth0", Vip: "192.0.2.50", Kind: vipmovev1.ProbeKind_PROBE_KIND_ZERO_SENDER, SenderIp: "0.0.0.0"},
		&vipmovev1.Round{Observer: "n1", Interface: "eth0", Vip: "192.0.2.50", Kind: vipmovev1.ProbeKind_PROBE_KIND_ANNOUNCER_QUESTION, SenderIp: "127.0.0.1", TargetMac: "02:00:00:00:00:02"},
		&vipmovev1.Round{Observer: "n1", Interface: "eth0", Vip: "192.0.2.50", Kind: vipmovev1.ProbeKind_PROBE_KIND_UNICAST, TargetMac: "02:00:00:00:00:02"},
		&vipmovev1.Round{Observer: "n1", Interface: "eth0", Vip: "192.0.2.50", Kind: 77}) // a newer version's
	s.Outgoing[0].Captured = true
	s.Requests[0].Sent, s.Requests[0].Succeeded, s.Requests[0].Failed = 10, 8, 1 // one is on its way
	return s
}

func readMessage(t *testing.T, s *vipmovev1.Snapshot) error {
	t.Helper()
	b, err := protojson.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	_, err = snapshot.Read(bytes.NewReader(b))
	return err
}

func TestContradictionsAreNamedWithTheirPlace(t *testing.T) {
	if err := readMessage(t, whole()); err != nil {
		t.Fatalf("the whole one: %v", err)
	}
	kernel := func(s *vipmovev1.Snapshot) *vipmovev1.KernelState { return s.Nodes[0].Kernel }
	for want, spoil := range map[string]func(*vipmovev1.Snapshot){
		`vip: it has none`:                                         func(s *vipmovev1.Snapshot) { s.Vip = "" },
		`node n1: name: another node has it too`:                   func(s *vipmovev1.Snapshot) { s.Nodes[1].Name = "n1" },
		`node n1: links: there are none`:                           func(s *vipmovev1.Snapshot) { kernel(s).Links = nil },
		`node n1: addresses: there are none`:                       func(s *vipmovev1.Snapshot) { kernel(s).Addresses = nil },
		`node n1: link 2: name: it has none`:                       func(s *vipmovev1.Snapshot) { kernel(s).Links[1].Name = "" },
		`node n1: link eth0: index: 0; the kernel counts from 1`:   func(s *vipmovev1.Snapshot) { kernel(s).Links[1].Index = 0 },
		`node n1: link eth0: index: 1 is also lo's`:                func(s *vipmovev1.Snapshot) { kernel(s).Links[1].Index = 1 },
		`node n1: link eth0: name: another link has it too`:        func(s *vipmovev1.Snapshot) { kernel(s).Links[2].Name = "eth0" },
		`node n1: link eth0: type: it has none`:                    func(s *vipmovev1.Snapshot) { kernel(s).Links[1].Type = "" },
		`node n1: link eth0: mac: it has none`:                     func(s *vipmovev1.Snapshot) { kernel(s).Links[1].Mac = "" },
		`node n1: link eth0: master index: it is its own master`:   func(s *vipmovev1.Snapshot) { kernel(s).Links[1].MasterIndex = 2 },
		`node n1: link lo: up: false, and the flags 0x10049 say`:   func(s *vipmovev1.Snapshot) { kernel(s).Links[0].Up = false },
		`node n1: link kube-ipvs0: up: true, and the flags 0x82`:   func(s *vipmovev1.Snapshot) { kernel(s).Links[2].Up = true },
		`node n1: link lo: carrier: false, and the flags 0x10049`:  func(s *vipmovev1.Snapshot) { kernel(s).Links[0].Carrier = false },
		`node n1: address 2 (192.0.2.50/32): link: it is on none`:  func(s *vipmovev1.Snapshot) { a := kernel(s).Addresses[1]; a.Link, a.LinkIndex = "", 0 },
		`address 2 (192.0.2.50/32): link index: 2 is eth0, and th`: func(s *vipmovev1.Snapshot) { kernel(s).Addresses[1].LinkIndex = 2 },
		`address 4 (192.0.2.50/32): prefix: kube-ipvs0 has it twic`: func(s *vipmovev1.Snapshot) {
			kernel(s).Addresses = append(kernel(s).Addresses, kernel(s).Addresses[1])
		},
		`route 1 (0.0.0.0/0): link index: 2 is eth0, and the link`: func(s *vipmovev1.Snapshot) { e := kernel(s).Routes[0]; e.Link, e.LinkIndex = "lo", 2 },
		`node n1: ipvs: STATE_NONE, and there are services`:        func(s *vipmovev1.Snapshot) { kernel(s).Ipvs.State = vipmovev1.Ipvs_STATE_NONE },
		`node n1: ipvs: STATE_ABSENT, and there are services`:      func(s *vipmovev1.Snapshot) { kernel(s).Ipvs.State = vipmovev1.Ipvs_STATE_ABSENT },
		`node n1: kube proxy: STATE_ABSENT, and it runs in mode i`: func(s *vipmovev1.Snapshot) {
			kernel(s).KubeProxy = &vipmovev1.KubeProxy{State: vipmovev1.KubeProxy_STATE_ABSENT, Mode: "ipvs"}
		},
		`round 1 of n9: observer: "n9" is no node of this snapsho`:  func(s *vipmovev1.Snapshot) { s.Rounds[0].Observer = "n9" },
		`round 1 of n1: kind: it has none`:                          func(s *vipmovev1.Snapshot) { s.Rounds[0].Kind = 0 },
		`round 1 of n1: vip: it has none`:                           func(s *vipmovev1.Snapshot) { s.Rounds[0].Vip = "" },
		`round 1 of n1: vip: 192.0.2.51, and the snapshot is about`: func(s *vipmovev1.Snapshot) { s.Rounds[0].Vip = "192.0.2.51" },
		`round 1 of n1: interface: it has none`:                     func(s *vipmovev1.Snapshot) { s.Rounds[0].Interface = "" },
		`round 1 of n1: target mac: 02:00:00:00:00:02, and this k`:  func(s *vipmovev1.Snapshot) { s.Rounds[0].TargetMac = "02:00:00:00:00:02" },
		`round 1 of n1: reply 1: sender mac: it has none`:           func(s *vipmovev1.Snapshot) { s.Rounds[0].Replies[0].SenderMac = "" },
		`round 1 of n1: reply 1: sender ip: it has none`:            func(s *vipmovev1.Snapshot) { s.Rounds[0].Replies[0].SenderIp = "" },
		`round 2 of n1: sender ip: 192.0.2.11, and the kind says `:  func(s *vipmovev1.Snapshot) { s.Rounds[1].SenderIp = "192.0.2.11" },
		`round 3 of n1: sender ip: 192.0.2.11, and the announcer `:  func(s *vipmovev1.Snapshot) { s.Rounds[2].SenderIp = "192.0.2.11" },
		`round 3 of n1: target mac: it has none, and this kind as`:  func(s *vipmovev1.Snapshot) { s.Rounds[2].TargetMac = "" },
		`round 4 of n1: target mac: it has none, and this kind as`:  func(s *vipmovev1.Snapshot) { s.Rounds[3].TargetMac = "" },
		`outgoing of n9: node: "n9" is no node of this snapshot`:    func(s *vipmovev1.Snapshot) { s.Outgoing[0].Node = "n9" },
		`outgoing of n1: captured: it is false, and there are rep`:  func(s *vipmovev1.Snapshot) { s.Outgoing[0].Captured = false },
		`outgoing of n1: reply 1: sender mac: it has none`:          func(s *vipmovev1.Snapshot) { s.Outgoing[0].Replies[0].SenderMac = "" },
		`requests of client: witness: another count is its own to`:  func(s *vipmovev1.Snapshot) { s.Requests = append(s.Requests, s.Requests[0]) },
		`requests of client: sent: 10, and 8 succeeded and 3 fail`:  func(s *vipmovev1.Snapshot) { s.Requests[0].Failed = 3 },
		`requests of client: sent: 7, and 8 succeeded and 1 faile`:  func(s *vipmovev1.Snapshot) { s.Requests[0].Sent = 7 },
	} {
		s := whole()
		spoil(s)
		if err := readMessage(t, s); err == nil || !strings.HasPrefix(err.Error(), "reading snapshot: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to say %q", err, want)
		}
		if _, err := snapshot.FromProto(s); err != nil {
			t.Errorf("%q: a coordinator's own look is not held to it: %v", want, err)
		}
	}
}

// What could not be read and says so contradicts nothing: I6 is the judgement's to hold then.
func TestAnUnreadKernelIsNoContradiction(t *testing.T) {
	s := whole()
	k := s.Nodes[0].Kernel
	k.Incomplete, k.Links, k.Addresses = []string{"links: dump interrupted 5 times, giving up"}, nil, nil
	if err := readMessage(t, s); err != nil {
		t.Error(err)
	}
	s.Nodes[0].Kernel = nil
	if err := readMessage(t, s); err != nil {
		t.Error(err)
	}
}
