// SPDX-License-Identifier: Apache-2.0

//go:build linux

package prober

import (
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
)

var (
	vip    = netip.MustParseAddr("192.0.2.50")
	client = netip.MustParseAddr("192.0.2.1")
	mac    = net.HardwareAddr{2, 0, 0, 0, 1, 1}
	node   = net.HardwareAddr{2, 0, 0, 0, 0, 1}
)

// reply builds the frame a node sends, changed by edit.
func reply(t testing.TB, edit func(*ethernet.Frame, *arp.Packet)) []byte {
	t.Helper()
	body, err := arp.NewPacket(arp.OperationReply, node, vip, mac, client)
	if err != nil {
		t.Fatal(err)
	}
	frame := &ethernet.Frame{Destination: mac, Source: node, EtherType: ethernet.EtherTypeARP}
	edit(frame, body)
	if frame.Payload, err = body.MarshalBinary(); err != nil {
		t.Fatal(err)
	}
	raw, err := frame.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestOnlyAnswersToOurOwnRequestCount(t *testing.T) {
	other := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	cases := []struct {
		name string
		edit func(*ethernet.Frame, *arp.Packet)
		want bool
	}{
		{"the answer", func(*ethernet.Frame, *arp.Packet) {}, true},
		{"from another Ethernet source", func(f *ethernet.Frame, _ *arp.Packet) { f.Source = other }, true},
		{"a request", func(_ *ethernet.Frame, p *arp.Packet) { p.Operation = arp.OperationRequest }, false},
		{"for another address", func(_ *ethernet.Frame, p *arp.Packet) { p.SenderIP = netip.MustParseAddr("192.0.2.51") }, false},
		{"to another asker", func(_ *ethernet.Frame, p *arp.Packet) { p.TargetIP = netip.MustParseAddr("192.0.2.2") }, false},
		{"to another MAC in the body", func(_ *ethernet.Frame, p *arp.Packet) { p.TargetHardwareAddr = other }, false},
		{"to another MAC in the header", func(f *ethernet.Frame, _ *arp.Packet) { f.Destination = other }, false},
		{"a gratuitous reply", func(f *ethernet.Frame, p *arp.Packet) {
			f.Destination, p.TargetHardwareAddr, p.TargetIP = ethernet.Broadcast, ethernet.Broadcast, vip
		}, false},
		{"of another hardware type", func(_ *ethernet.Frame, p *arp.Packet) { p.HardwareType = 32 }, false},
		{"of another protocol", func(_ *ethernet.Frame, p *arp.Packet) { p.ProtocolType = 0x86dd }, false},
		{"of another EtherType", func(f *ethernet.Frame, _ *arp.Packet) { f.EtherType = ethernet.EtherTypeIPv4 }, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, ok := parse(reply(t, c.edit), vip, mac, client)
			if ok != c.want {
				t.Fatalf("taken for an answer: %v, want %v", ok, c.want)
			}
			if ok && got.MAC.String() != node.String() {
				t.Errorf("MAC is %s, want the ARP sender %s", got.MAC, node)
			}
		})
	}
}

func TestRequestIsOursAndNothingElse(t *testing.T) {
	cases := []struct {
		name    string
		request Request
		sender  netip.Addr
		want    string
	}{
		{
			"broadcast", Request{Target: vip}, client,
			"ffffffffffff 020000000101 0806 0001 0800 06 04 0001 020000000101 c0000201 000000000000 c0000232",
		},
		{
			"the announcer question", Request{Target: vip, Destination: node}, netip.MustParseAddr("127.0.0.1"),
			"020000000001 020000000101 0806 0001 0800 06 04 0001 020000000101 7f000001 000000000000 c0000232",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			frame, err := c.request.encode(mac, c.sender)
			if err != nil {
				t.Fatal(err)
			}
			want := append(unhex(t, c.want), make([]byte, 18)...) // padded to Ethernet's minimum of 60
			if diff := cmp.Diff(want, frame); diff != "" {
				t.Errorf("frame (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnIPv6TargetIsRefused(t *testing.T) {
	if _, err := (Request{Target: netip.MustParseAddr("2001:db8::50")}).encode(mac, client); err == nil {
		t.Error("ARP request for an IPv6 address was built")
	}
}

func FuzzParseTakesOnlyWellFormedAnswers(f *testing.F) {
	f.Add(reply(f, func(*ethernet.Frame, *arp.Packet) {}))
	f.Add(reply(f, func(_ *ethernet.Frame, p *arp.Packet) { p.HardwareAddrLength = 0 }))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, ok := parse(raw, vip, mac, client)
		if !ok {
			return
		}
		if got.SenderIP != vip || len(got.MAC) != 6 || len(got.Source) != 6 || got.Count != 1 {
			t.Errorf("answer taken from %x: %+v", raw, got)
		}
	})
}
