// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// flow is one TCP connection as its packets name it.
type flow struct {
	source, target netip.AddrPort // IPv4
}

const (
	etherHeader     = 14
	icmpUnreachable = 3

	flagFIN, flagSYN, flagRST, flagACK = 0x01, 0x02, 0x04, 0x10
)

// filter lets through what comes back on a flow, with its Ethernet header: TCP
// from the target, and ICMP unreachable messages to the source from anyone.
// Other ICMP stays out: two stacks must not both answer a ping.
func (f flow) filter() ([]bpf.RawInstruction, error) {
	target, source := f.target.Addr().As4(), f.source.Addr().As4()
	return bpf.Assemble([]bpf.Instruction{
		0:  bpf.LoadAbsolute{Off: 12, Size: 2},
		1:  bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 16},
		2:  bpf.LoadAbsolute{Off: etherHeader + 6, Size: 2},
		3:  bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x3fff, SkipTrue: 14}, // a fragment
		4:  bpf.LoadAbsolute{Off: etherHeader + 16, Size: 4},
		5:  bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(source[:]), SkipTrue: 12},
		6:  bpf.LoadMemShift{Off: etherHeader}, // X: length of the IP header
		7:  bpf.LoadAbsolute{Off: etherHeader + 9, Size: 1},
		8:  bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipTrue: 3},
		9:  bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMP, SkipTrue: 8},
		10: bpf.LoadIndirect{Off: etherHeader, Size: 1},
		11: bpf.JumpIf{Cond: bpf.JumpEqual, Val: icmpUnreachable, SkipTrue: 5, SkipFalse: 6},
		12: bpf.LoadAbsolute{Off: etherHeader + 12, Size: 4},
		13: bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(target[:]), SkipTrue: 4},
		14: bpf.LoadIndirect{Off: etherHeader, Size: 4}, // both ports
		15: bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(f.target.Port())<<16 | uint32(f.source.Port()), SkipTrue: 2},
		16: bpf.Jump{Skip: 0},
		17: bpf.RetConstant{Val: 1 << 18},
		18: bpf.RetConstant{Val: 0},
	})
}

// segment is what a conversation looks at in a TCP segment.
type segment struct {
	flags    byte
	seq, ack uint32
	end      uint32 // sequence number after it, SYN and FIN counted
}

// tcpSegment reads an IPv4 packet of a whole TCP segment.
func tcpSegment(packet []byte) (segment, bool) {
	header, ok := ipHeader(packet)
	if !ok || packet[9] != unix.IPPROTO_TCP {
		return segment{}, false
	}
	total := min(int(binary.BigEndian.Uint16(packet[2:])), len(packet)) // Ethernet pads
	if total < header+20 {
		return segment{}, false
	}
	tcp := packet[header:total]
	offset := int(tcp[12]>>4) * 4
	if offset < 20 || offset > len(tcp) {
		return segment{}, false
	}
	s := segment{flags: tcp[13], seq: binary.BigEndian.Uint32(tcp[4:]), ack: binary.BigEndian.Uint32(tcp[8:])}
	s.end = s.seq + uint32(len(tcp)-offset)
	for _, counted := range []byte{flagSYN, flagFIN} {
		if s.flags&counted != 0 {
			s.end++
		}
	}
	return s, true
}

// unreachable reads an ICMP destination unreachable message (RFC 792) about f
// and returns its code.
func (f flow) unreachable(packet []byte) (code byte, ok bool) {
	header, ok := ipHeader(packet)
	if !ok || packet[9] != unix.IPPROTO_ICMP || len(packet) < header+8 || packet[header] != icmpUnreachable {
		return 0, false
	}
	about := packet[header+8:] // the packet that could not be delivered
	inner, ok := ipHeader(about)
	if !ok || about[9] != unix.IPPROTO_TCP || len(about) < inner+4 {
		return 0, false
	}
	source, _ := netip.AddrFromSlice(about[12:16])
	target, _ := netip.AddrFromSlice(about[16:20])
	got := flow{
		netip.AddrPortFrom(source, binary.BigEndian.Uint16(about[inner:])),
		netip.AddrPortFrom(target, binary.BigEndian.Uint16(about[inner+2:])),
	}
	return packet[header+1], got == f
}

// ipHeader returns the length of the IPv4 header that packet begins with.
func ipHeader(packet []byte) (header int, ok bool) {
	if len(packet) < 20 || packet[0]>>4 != 4 {
		return 0, false
	}
	header = int(packet[0]&0xf) * 4
	return header, header >= 20 && header <= len(packet)
}

// conversation is what was seen to pass on a flow: enough to type a failure
// and to know when both sides are through. Pure.
type conversation struct {
	flow flow

	connected   bool // a SYN-ACK came
	reset       bool // an RST came
	unreachable bool // an ICMP message came: nobody is there
	prohibited  bool // an ICMP message came: the port is closed, or a filter says no

	ourEnd, theirEnd     uint32 // sequence number after the FIN
	ourFIN, theirFIN     bool   // sent, came
	ourFINAcked, allDone bool
}

// ICMP codes of destination unreachable (RFC 792, RFC 1812) that are a machine's
// word about the port or a filter's, as RST is; the others are about the way.
var prohibitions = map[byte]bool{2: true, 3: true, 9: true, 10: true, 13: true}

// came notes a packet from the wire.
func (c *conversation) came(packet []byte) {
	if code, ok := c.flow.unreachable(packet); ok {
		if prohibitions[code] {
			c.prohibited = true
		} else if code != 4 { // 4: fragmentation needed
			c.unreachable = true
		}
		return
	}
	s, ok := tcpSegment(packet)
	if !ok {
		return
	}
	switch {
	case s.flags&flagRST != 0:
		c.reset = true
		return
	case s.flags&(flagSYN|flagACK) == flagSYN|flagACK:
		c.connected = true
	}
	if s.flags&flagFIN != 0 {
		c.theirFIN, c.theirEnd = true, s.end
	}
	if c.ourFIN && s.flags&flagACK != 0 && s.ack == c.ourEnd {
		c.ourFINAcked = true
	}
}

// went notes a packet that was sent.
func (c *conversation) went(packet []byte) {
	s, ok := tcpSegment(packet)
	if !ok {
		return
	}
	if s.flags&flagFIN != 0 {
		c.ourFIN, c.ourEnd = true, s.end
	}
	if c.theirFIN && s.flags&flagACK != 0 && s.ack == c.theirEnd {
		c.allDone = true
	}
}

// over reports whether nothing more will be said: both FINs are acknowledged,
// or the peer has reset.
func (c *conversation) over() bool {
	return c.reset || c.ourFINAcked && c.allDone
}

// failure puts an error of the TCP stack, which says what happened in words
// only, into its type by what was seen. A whole answer's failure stays.
func (c *conversation) failure(err *RequestError) *RequestError {
	var stack *net.OpError
	if !errors.As(err, &stack) && !timedOut(err) {
		return err
	}
	switch {
	case c.reset && c.connected:
		return failed(Reset, err.Err)
	case (c.reset || c.prohibited) && !c.connected:
		return failed(Refused, err.Err)
	case c.unreachable && !c.connected:
		return failed(NoRoute, err.Err)
	}
	return err
}
