// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
)

// Encode writes the frame's Ethernet and ARP fields, with an inline 802.1Q tag
// where VLAN is set, padded with zeros to Ethernet's minimum of 60 bytes (64
// with a tag) without the frame check sequence. Both addresses have to be IPv4.
func Encode(f Frame) ([]byte, error) {
	p, err := arp.NewPacket(arp.Operation(f.Op),
		net.HardwareAddr(f.SenderMAC[:]), f.SenderIP,
		net.HardwareAddr(f.TargetMAC[:]), f.TargetIP)
	if err != nil {
		return nil, fmt.Errorf("encoding ARP packet from %s to %s: %w", f.SenderIP, f.TargetIP, err)
	}
	payload, err := p.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("encoding ARP packet: %w", err)
	}
	eth := ethernet.Frame{
		Destination: net.HardwareAddr(f.EthDst[:]),
		Source:      net.HardwareAddr(f.EthSrc[:]),
		EtherType:   ethernet.EtherTypeARP,
		Payload:     payload,
	}
	if f.VLAN != 0 {
		eth.VLAN = &ethernet.VLAN{ID: f.VLAN}
	}
	b, err := eth.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("encoding Ethernet frame for VLAN %d: %w", f.VLAN, err)
	}
	return b, nil
}
