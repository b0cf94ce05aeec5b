// SPDX-License-Identifier: Apache-2.0

//go:build linux

package prober

import (
	"bytes"
	"net"
	"net/netip"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
)

// encode builds the frame: target hardware address zero, as RFC 826 and the
// kernel's own requests have it.
func (r Request) encode(mac net.HardwareAddr, sender netip.Addr) ([]byte, error) {
	request, err := arp.NewPacket(arp.OperationRequest, mac, sender, make(net.HardwareAddr, 6), r.Target)
	if err != nil {
		return nil, err
	}
	payload, err := request.MarshalBinary()
	if err != nil {
		return nil, err
	}
	frame := ethernet.Frame{
		Destination: r.destination(),
		Source:      mac,
		EtherType:   ethernet.EtherTypeARP,
		Payload:     payload,
	}
	return frame.MarshalBinary()
}

// parse returns the reply in frame when it is an ARP reply (RFC 826) over
// Ethernet that answers our own request for target: sent to our MAC and to the
// address we asked from. A gratuitous reply, or one to somebody else, is not.
func parse(frame []byte, target netip.Addr, mac net.HardwareAddr, sender netip.Addr) (Reply, bool) {
	var outer ethernet.Frame
	if err := outer.UnmarshalBinary(frame); err != nil || outer.EtherType != ethernet.EtherTypeARP {
		return Reply{}, false
	}
	var body arp.Packet
	if err := body.UnmarshalBinary(outer.Payload); err != nil {
		return Reply{}, false
	}
	answers := body.Operation == arp.OperationReply &&
		body.HardwareType == 1 && body.HardwareAddrLength == 6 &&
		body.ProtocolType == uint16(ethernet.EtherTypeIPv4) && body.IPLength == 4 &&
		body.SenderIP == target && body.TargetIP == sender &&
		bytes.Equal(body.TargetHardwareAddr, mac) && bytes.Equal(outer.Destination, mac)
	if !answers {
		return Reply{}, false
	}
	return Reply{
		MAC:      body.SenderHardwareAddr,
		Source:   outer.Source,
		SenderIP: body.SenderIP,
		Count:    1,
	}, true
}
