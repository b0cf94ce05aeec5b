// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
)

// Why a frame was refused by Decode.
var (
	ErrTruncated = errors.New("frame ends inside the ARP packet")
	ErrNotARP    = errors.New("not an ARP frame")
	ErrVLAN      = errors.New("more than one VLAN tag, or an invalid one")
	ErrFormat    = errors.New("not ARP for IPv4 over Ethernet (hardware type 1, protocol 0x0800, lengths 6 and 4)")
	ErrOperation = errors.New("neither an ARP request nor a reply")
)

// Metadata is what the kernel says about a frame beside its bytes.
type Metadata struct {
	At         time.Time // kernel's time stamp, else when it was read
	Interface  string
	PacketType uint8 // sockaddr_ll.sll_pkttype
	Index      int   // sockaddr_ll.sll_ifindex: the link that received it in the end

	// The VLAN tag the kernel or the NIC took out of the frame
	// (struct tpacket_auxdata); Tagged is TP_STATUS_VLAN_VALID.
	Tagged bool
	TCI    uint16
	TPID   uint16 // 0: the kernel did not say, which means 802.1Q
}

const (
	ethernetHeader = 14 // destination, source, type
	tagLength      = 4  // TPID and TCI
	arpLength      = 28 // for hardware length 6 and protocol length 4
	vidMask        = 0x0fff
	vidReserved    = 0x0fff // IEEE 802.1Q, table 9-2
)

// Decode reads one Ethernet frame that carries an ARP request or reply for
// IPv4 over Ethernet, with no VLAN tag, one inline 802.1Q tag, or one in the
// metadata. Everything else is an error, one of those above. What follows the
// 28 bytes of ARP is padding and is not looked at. Decode never panics,
// whatever the bytes.
func Decode(b []byte, m Metadata) (Frame, error) {
	inline, err := check(b)
	if err != nil {
		return Frame{}, err
	}
	vlan, err := vlanID(b, inline, m)
	if err != nil {
		return Frame{}, err
	}
	var eth ethernet.Frame
	if err := eth.UnmarshalBinary(b[:arpEnd(inline)]); err != nil {
		return Frame{}, fmt.Errorf("decoding Ethernet header: %w", err)
	}
	var p arp.Packet
	if err := p.UnmarshalBinary(eth.Payload); err != nil {
		return Frame{}, fmt.Errorf("decoding ARP packet: %w", err)
	}
	f := Frame{
		At: m.At, Interface: m.Interface, PacketType: m.PacketType,
		EthSrc: MAC(eth.Source), EthDst: MAC(eth.Destination), VLAN: vlan,
		Op:        uint16(p.Operation),
		SenderMAC: MAC(p.SenderHardwareAddr), SenderIP: p.SenderIP,
		TargetMAC: MAC(p.TargetHardwareAddr), TargetIP: p.TargetIP,
		Padded: len(b) > arpEnd(inline),
	}
	f.Mismatched = f.EthSrc != f.SenderMAC
	if m.PacketType >= PacketOutgoing { // loop-backs are this host's too
		f.Direction = Outgoing
	}
	return f, nil
}

// arpEnd is where the ARP packet ends.
func arpEnd(inline bool) int {
	if inline {
		return ethernetHeader + tagLength + arpLength
	}
	return ethernetHeader + arpLength
}

// check looks at everything that has one right value, before any byte is
// copied. The kernel filter of Filter accepts what check accepts; a fuzz
// target holds the two together.
func check(b []byte) (inline bool, err error) {
	if len(b) < ethernetHeader {
		return false, ErrTruncated
	}
	typ := ethernet.EtherType(binary.BigEndian.Uint16(b[12:]))
	if inline = typ == ethernet.EtherTypeVLAN; inline {
		if len(b) < ethernetHeader+tagLength {
			return inline, ErrTruncated
		}
		typ = ethernet.EtherType(binary.BigEndian.Uint16(b[16:]))
	}
	switch typ {
	case ethernet.EtherTypeARP:
	case ethernet.EtherTypeVLAN, ethernet.EtherTypeServiceVLAN:
		return inline, ErrVLAN
	default:
		return inline, ErrNotARP
	}
	if len(b) < arpEnd(inline) {
		return inline, ErrTruncated
	}
	h := b[arpEnd(inline)-arpLength:]
	if binary.BigEndian.Uint32(h) != arpTypes || h[4] != 6 || h[5] != 4 {
		return inline, ErrFormat
	}
	if op := binary.BigEndian.Uint16(h[6:]); op != OpRequest && op != OpReply {
		return inline, ErrOperation
	}
	return inline, nil
}

// arpTypes are hardware type 1 (Ethernet) and protocol type 0x0800 (IPv4).
const arpTypes = 1<<16 | uint32(ethernet.EtherTypeIPv4)

// vlanID joins the two places a tag can be in. Two tags, or one of another
// kind than 802.1Q, belong to no segment that a NIC of ours is on.
func vlanID(b []byte, inline bool, m Metadata) (uint16, error) {
	var tci uint16
	switch {
	case inline && m.Tagged:
		return 0, ErrVLAN
	case inline:
		tci = binary.BigEndian.Uint16(b[14:])
	case m.Tagged:
		if m.TPID != 0 && m.TPID != uint16(ethernet.EtherTypeVLAN) {
			return 0, ErrVLAN
		}
		tci = m.TCI
	}
	if tci&vidMask == vidReserved {
		return 0, ErrVLAN
	}
	return tci & vidMask, nil
}
