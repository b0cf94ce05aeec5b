// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net/netip"
	"time"
)

// Kind is a way to ask who answers for an address.
type Kind int

const (
	// Broadcast asks everyone, with the NIC's MAC and its own address.
	Broadcast Kind = iota
	// ZeroSender asks everyone with sender address 0.0.0.0 (an address probe,
	// RFC 5227): answered too where the sender's address is not on-link for
	// the node asked; never by proxy ARP.
	ZeroSender
	// AnnouncerQuestion asks one MAC with sender address 127.0.0.1. The
	// kernel's route lookup takes that sender for martian and the kernel keeps
	// silent, whatever it holds; announcers do not look. An answer proves an
	// announcer, silence proves nothing.
	AnnouncerQuestion
	// Unicast asks one MAC, with the NIC's MAC and its own address.
	Unicast
)

// String returns the name of the kind.
func (k Kind) String() string {
	switch k {
	case Broadcast:
		return "broadcast"
	case ZeroSender:
		return "zero-sender"
	case AnnouncerQuestion:
		return "announcer-question"
	case Unicast:
		return "unicast"
	}
	return fmt.Sprintf("kind %d", int(k))
}

// DefaultWindow is how long answers are collected: proxy ARP delays its own by
// up to 0.8 s (net/ipv4/neighbour.c, proxy_delay).
const DefaultWindow = 1200 * time.Millisecond

const maxWindow = 30 * time.Second

// Request is one ARP request for VIP.
type Request struct {
	Kind      Kind
	VIP       netip.Addr    // IPv4, a host address
	TargetMAC MAC           // whom to ask; for AnnouncerQuestion and Unicast, else zero
	Sender    netip.Addr    // the NIC's own address on the segment; for Broadcast and Unicast, else zero
	Window    time.Duration // how long answers are collected from the sending on; 0: DefaultWindow; at most 30 s
}

// RequestError is a request that is refused before anything is sent.
type RequestError struct {
	Request Request
	Err     error
}

func (e *RequestError) Error() string {
	return fmt.Sprintf("asking (%s) for %v: %v", e.Request.Kind, e.Request.VIP, e.Err)
}

func (e *RequestError) Unwrap() error { return e.Err }

// toEveryone reports whether the request is broadcast.
func (r Request) toEveryone() bool { return r.Kind == Broadcast || r.Kind == ZeroSender }

// sender is the ARP sender address of the request, and so the target address
// of an answer to it.
func (r Request) sender() netip.Addr {
	switch r.Kind {
	case ZeroSender:
		return netip.IPv4Unspecified()
	case AnnouncerQuestion:
		return martian
	}
	return r.Sender
}

// martian is the sender address that a kernel does not answer.
var martian = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// destination is whom the frame is sent to.
func (r Request) destination() MAC {
	if r.toEveryone() {
		return BroadcastMAC
	}
	return r.TargetMAC
}

// frame is the request as it is sent. The target MAC is what is asked for, so
// it is zero (RFC 5227, section 2.1.1), in unicast requests too, as the kernel's are.
func (r Request) frame(own MAC) Frame {
	return Frame{
		EthSrc: own, EthDst: r.destination(), Op: OpRequest,
		SenderMAC: own, SenderIP: r.sender(), TargetIP: r.VIP,
	}
}
