// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net/netip"

	"github.com/mdlayher/ethernet"
	"golang.org/x/net/bpf"
)

// MaxWatched is how many addresses one filter can hold. Scattered, they make a
// program of about 3,100 instructions; the kernel's limit is 4,096
// (BPF_MAXINSNS, linux/filter.h).
const MaxWatched = 1000

// snapLength is how many bytes of a matching frame the kernel hands over: more
// than any ARP frame needs, less than a jumbo frame of padding costs.
const snapLength = 256

// Filter makes the classic BPF program that lets through what Decode accepts
// and whose sender or target address is watched: nothing else wakes the
// process. It works on sockets bound to ETH_P_ARP or to ETH_P_ALL (there the
// type is looked at first, one load and two compares for other traffic), and
// whether an 802.1Q tag is inline or in the kernel's metadata. No address
// watched means that nothing passes. Addresses are searched as a tree, so the
// cost hardly grows with their number. More than MaxWatched addresses, or one
// that is not IPv4, is an error.
func Filter(watched []netip.Addr) ([]bpf.RawInstruction, error) {
	spans, err := spansOf(watched)
	if err != nil {
		return nil, err
	}
	return program(spans)
}

// Offsets inside the ARP packet (RFC 826).
const (
	arpFormat    = 0 // hardware type, protocol type
	arpLengths   = 4 // hardware length, protocol length, operation
	arpSenderIP  = 14
	arpTargetIP  = 24
	lengthsAndOp = 6<<24 | 4<<16
)

// program builds the filter for the spans. X holds how far an inline tag moves
// the ARP packet.
func program(spans []span) ([]bpf.RawInstruction, error) {
	if len(spans) == 0 {
		return bpf.Assemble([]bpf.Instruction{bpf.RetConstant{Val: 0}})
	}
	arp := func(off uint32, size int) bpf.Instruction {
		return bpf.LoadIndirect{Off: ethernetHeader + off, Size: size}
	}
	prog := []bpf.Instruction{
		bpf.LoadConstant{Dst: bpf.RegX, Val: 0},
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(ethernet.EtherTypeARP), SkipTrue: 8},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(ethernet.EtherTypeVLAN), SkipTrue: 1},
		bpf.RetConstant{Val: 0}, // all other traffic ends here
		bpf.LoadAbsolute{Off: 14, Size: 2},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: vidMask},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: vidReserved, SkipTrue: 10},
		bpf.LoadConstant{Dst: bpf.RegX, Val: tagLength},
		bpf.LoadAbsolute{Off: 16, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(ethernet.EtherTypeARP), SkipTrue: 7},
		arp(arpFormat, 4),
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: arpTypes, SkipTrue: 5},
		arp(arpLengths, 4),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: lengthsAndOp | OpRequest, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: lengthsAndOp | OpReply, SkipTrue: 2},
		arp(arpTargetIP, 4), // the farther one first: a load beyond the end refuses
		bpf.Jump{Skip: 1},
		bpf.RetConstant{Val: 0},
	}
	prog = append(prog, search(spans)...)
	prog = append(prog, arp(arpSenderIP, 4))
	prog = append(prog, search(spans)...)
	prog = append(prog, bpf.RetConstant{Val: 0})
	raw, err := bpf.Assemble(prog)
	if err != nil {
		return nil, fmt.Errorf("assembling the ARP filter for %d spans of addresses: %w", len(spans), err)
	}
	return raw, nil
}

// leafSpans is how many spans are compared one after the other.
const leafSpans = 8

// search accepts the frame when A is in one of the spans, else runs off its
// end. A branch reaches 255 instructions only, so halves that can be longer
// are skipped with an unconditional jump, which has 32 bits.
func search(spans []span) []bpf.Instruction {
	if len(spans) <= leafSpans {
		return leaf(spans)
	}
	mid := len(spans) / 2
	left, right := search(spans[:mid]), search(spans[mid:])
	left = append(left, bpf.Jump{Skip: uint32(len(right))})
	code := []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: spans[mid].lo, SkipFalse: 1},
		bpf.Jump{Skip: uint32(len(left))},
	}
	return append(append(code, left...), right...)
}

// leaf is one or two compares a span, then a jump over its accept.
func leaf(spans []span) []bpf.Instruction {
	var code []bpf.Instruction
	size := 0
	for _, s := range spans {
		size += compares(s)
	}
	for _, s := range spans {
		if s.lo == s.hi {
			code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: s.lo, SkipTrue: uint8(size - len(code))})
			continue
		}
		code = append(code, bpf.JumpIf{Cond: bpf.JumpLessThan, Val: s.lo, SkipTrue: 1})
		code = append(code, bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: s.hi, SkipTrue: uint8(size - len(code))})
	}
	return append(code, bpf.Jump{Skip: 1}, bpf.RetConstant{Val: snapLength})
}

func compares(s span) int {
	if s.lo == s.hi {
		return 1
	}
	return 2
}
