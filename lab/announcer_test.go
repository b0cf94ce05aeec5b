// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
)

var (
	testVIP    = netip.MustParseAddr("192.0.2.50")
	clientMAC  = net.HardwareAddr{2, 0, 0, 0, 1, 1}
	speakerMAC = net.HardwareAddr{2, 0, 0, 0, 0, 4}
)

// request builds a client's request for the VIP, changed by edit.
func request(t testing.TB, edit func(*ethernet.Frame, *arp.Packet)) []byte {
	t.Helper()
	body, err := arp.NewPacket(arp.OperationRequest, clientMAC, clientAddress, make(net.HardwareAddr, 6), testVIP)
	if err != nil {
		t.Fatal(err)
	}
	frame := &ethernet.Frame{Destination: ethernet.Broadcast, Source: clientMAC, EtherType: ethernet.EtherTypeARP}
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

func TestTheAnnouncerAnswersAsMetalLBDoes(t *testing.T) {
	cases := []struct {
		name   string
		edit   func(*ethernet.Frame, *arp.Packet)
		answer bool
		sender string // whose address the reply is for
	}{
		{"broadcast", func(*ethernet.Frame, *arp.Packet) {}, true, "192.0.2.1"},
		{"unicast to its own MAC", func(f *ethernet.Frame, _ *arp.Packet) { f.Destination = speakerMAC }, true, "192.0.2.1"},
		{"the announcer question", func(f *ethernet.Frame, p *arp.Packet) {
			f.Destination, p.SenderIP = speakerMAC, netip.MustParseAddr("127.0.0.1")
		}, true, "127.0.0.1"},
		{"an RFC 5227 probe", func(_ *ethernet.Frame, p *arp.Packet) { p.SenderIP = netip.IPv4Unspecified() }, true, "0.0.0.0"},
		{"unicast to another MAC", func(f *ethernet.Frame, _ *arp.Packet) { f.Destination = clientMAC }, false, ""},
		{"another address", func(_ *ethernet.Frame, p *arp.Packet) { p.TargetIP = netip.MustParseAddr("192.0.2.51") }, false, ""},
		{"a reply", func(_ *ethernet.Frame, p *arp.Packet) { p.Operation = arp.OperationReply }, false, ""},
		{"not ARP", func(f *ethernet.Frame, _ *arp.Packet) { f.EtherType = ethernet.EtherTypeIPv4 }, false, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			reply, to, ok := answer(request(t, c.edit), testVIP, speakerMAC)
			if ok != c.answer {
				t.Fatalf("answered: %v, want %v", ok, c.answer)
			}
			if !ok {
				return
			}
			if to.String() != clientMAC.String() {
				t.Errorf("answer goes to %s, want %s", to, clientMAC)
			}
			var frame ethernet.Frame
			var body arp.Packet
			if err := frame.UnmarshalBinary(reply); err != nil {
				t.Fatal(err)
			}
			if err := body.UnmarshalBinary(frame.Payload); err != nil {
				t.Fatal(err)
			}
			got := []string{
				frame.Source.String(), frame.Destination.String(), body.Operation.String(),
				body.SenderHardwareAddr.String(), body.SenderIP.String(), body.TargetHardwareAddr.String(), body.TargetIP.String(),
			}
			want := []string{
				speakerMAC.String(), clientMAC.String(), "OperationReply",
				speakerMAC.String(), "192.0.2.50", clientMAC.String(), c.sender,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("reply (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzTheAnnouncerSurvivesAnyFrame(f *testing.F) {
	f.Add(request(f, func(*ethernet.Frame, *arp.Packet) {}))
	f.Add(request(f, func(_ *ethernet.Frame, p *arp.Packet) { p.HardwareAddrLength = 0 }))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, frame []byte) {
		reply, to, ok := answer(frame, testVIP, speakerMAC)
		if ok && (len(reply) < 42 || len(to) != 6) {
			t.Errorf("answer to %x is %x to %s", frame, reply, to)
		}
	})
}
