// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/netip"
	"sync/atomic"
)

// Stats counts what a socket met since it was opened. All of it is bounded by
// nothing but the width of the counters; no frame is kept for it.
type Stats struct {
	Frames    uint64 // handed on
	Refused   uint64 // passed the kernel filter and not Decode: two tags, one of them in the metadata
	Elsewhere uint64 // received for another link: a VLAN or a bond on top of this NIC
	Unwatched uint64 // about other addresses: just unwatched, or a coarse kernel filter
	Dropped   uint64 // lost by the kernel because the queue was full: silence proves nothing then
}

// intake turns what one socket delivers into frames about watched addresses.
type intake struct {
	nic     NIC
	watched atomic.Pointer[[]span]

	frames, refused, elsewhere, unwatched atomic.Uint64
}

// accept decodes one frame and says whether it is to be handed on.
func (in *intake) accept(b []byte, m Metadata) (Frame, bool) {
	f, err := Decode(b, m)
	switch {
	case err != nil:
		in.refused.Add(1)
	case in.forAnotherLink(f, m):
		in.elsewhere.Add(1)
	case !in.watches(f.SenderIP) && !in.watches(f.TargetIP):
		in.unwatched.Add(1)
	default:
		in.frames.Add(1)
		return f, true
	}
	return Frame{}, false
}

// forAnotherLink recognizes frames of VLANs on top of the NIC. A socket bound
// to ETH_P_ARP on the parent gets them with the tag gone: with the child's
// index where there is a child, and else as "for another host" though they are
// to everyone or to us (net/core/dev.c, __netif_receive_skb_core).
func (in *intake) forAnotherLink(f Frame, m Metadata) bool {
	if m.Index != in.nic.Index {
		return true
	}
	return m.PacketType == PacketOtherHost && f.VLAN == 0 && (f.EthDst == BroadcastMAC || f.EthDst == in.nic.MAC)
}

// watches reports whether frames about ip are wanted.
func (in *intake) watches(ip netip.Addr) bool {
	spans := in.watched.Load()
	return spans != nil && contains(*spans, ip)
}

func (in *intake) stats() Stats {
	return Stats{
		Frames: in.frames.Load(), Refused: in.refused.Load(),
		Elsewhere: in.elsewhere.Load(), Unwatched: in.unwatched.Load(),
	}
}
