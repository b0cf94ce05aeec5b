// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/netip"
	"time"
)

// Direction says whether a frame came from the wire or from this host.
type Direction int

const (
	// Incoming frames were received by the NIC.
	Incoming Direction = iota
	// Outgoing frames were sent through the NIC by this host: its kernel or
	// any software on it. They are never an answer to this host's own probe.
	Outgoing
)

// String returns "incoming" or "outgoing".
func (d Direction) String() string {
	if d == Outgoing {
		return "outgoing"
	}
	return "incoming"
}

// Values of sockaddr_ll.sll_pkttype (linux/if_packet.h).
const (
	PacketHost      = 0 // to this NIC's own MAC
	PacketBroadcast = 1 // to everyone
	PacketMulticast = 2 // to a group
	PacketOtherHost = 3 // to another MAC, or tagged for a VLAN nobody here has
	PacketOutgoing  = 4 // sent by this host
)

// ARP operations (RFC 826). No other operation is decoded.
const (
	OpRequest = 1
	OpReply   = 2
)

// Frame is one decoded ARP frame. The Ethernet source and the ARP sender are
// two statements and are kept apart; a claim belongs to SenderIP.
type Frame struct {
	At         time.Time // when the kernel saw it (rounds, Capture), else when it was read (Listener)
	Interface  string    // the NIC it was read on
	Direction  Direction
	PacketType uint8 // sll_pkttype, PacketHost and so on

	EthSrc MAC
	EthDst MAC
	VLAN   uint16 // 802.1Q VLAN ID, 1 to 4094; 0: untagged, or priority tag only

	Op        uint16 // OpRequest or OpReply
	SenderMAC MAC    // sha
	SenderIP  netip.Addr
	TargetMAC MAC // tha
	TargetIP  netip.Addr

	Padded     bool // bytes after the ARP packet, whatever they hold
	Mismatched bool // EthSrc is not SenderMAC
}

// Announcement reports whether the frame is a gratuitous ARP: SenderMAC
// declares itself for SenderIP, unasked. Three shapes are in use, and some
// receivers honour only one of the first two: a broadcast request for its own
// address with the target MAC zero (RFC 5227, section 3), a broadcast reply
// that is its own target (RFC 5944, section 4.6), and a broadcast reply with
// target ff:ff:ff:ff:ff:ff and 0.0.0.0. The last, and the first two with other
// target fields or sent to one station, are nonstandard. None of them proves
// that anyone answers, or that anyone's cache changed.
func (f Frame) Announcement() (is, nonstandard bool) {
	if f.SenderIP.IsUnspecified() {
		return false, false
	}
	broadcast := f.EthDst == BroadcastMAC
	if f.SenderIP == f.TargetIP {
		usual := f.Op == OpRequest && f.TargetMAC.IsZero() ||
			f.Op == OpReply && f.TargetMAC == f.SenderMAC
		return true, !usual || !broadcast
	}
	// A broadcast answer to an address probe has target 0.0.0.0 too, but names
	// the station that asked.
	nobody := f.TargetIP.IsUnspecified() && (f.TargetMAC == BroadcastMAC || f.TargetMAC.IsZero())
	is = f.Op == OpReply && broadcast && nobody
	return is, is
}

// about reports whether the frame's sender or target address is ip.
func (f Frame) about(ip netip.Addr) bool { return f.SenderIP == ip || f.TargetIP == ip }
