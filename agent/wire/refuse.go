// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net/netip"
)

// hostAddress reports whether ip can be one station's address.
func hostAddress(ip netip.Addr) bool {
	return ip.Is4() && !ip.IsUnspecified() && !ip.IsLoopback() && !ip.IsMulticast() &&
		ip != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// check refuses what must not be sent. vips are all those of the round: none
// of them is ever a sender, since a request teaches every hearer that its
// sender address is at its sender MAC.
func (r Request) check(own MAC, vips map[netip.Addr]bool) error {
	refuse := func(format string, args ...any) error {
		return &RequestError{Request: r, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case r.Kind < Broadcast || r.Kind > Unicast:
		return refuse("no such kind of request")
	case !hostAddress(r.VIP):
		return refuse("not the IPv4 address of one host")
	case r.Window < 0 || r.Window > maxWindow:
		return refuse("window of %v is not between 0 and %v", r.Window, maxWindow)
	case r.toEveryone() && !r.TargetMAC.IsZero():
		return refuse("a broadcast request has no target MAC, not %s", r.TargetMAC)
	case !r.toEveryone() && (r.TargetMAC.IsZero() || r.TargetMAC.IsGroup()):
		return refuse("target MAC %s is not one station's", r.TargetMAC)
	case r.TargetMAC == own:
		return refuse("target MAC %s is this NIC's own: a node never hears its own answer", r.TargetMAC)
	}
	if r.Kind == ZeroSender || r.Kind == AnnouncerQuestion {
		if r.Sender.IsValid() {
			return refuse("this kind has a sender of its own, not %v", r.Sender)
		}
		return nil
	}
	switch {
	case !r.Sender.IsValid():
		return &RequestError{Request: r, Err: ErrNoAddress}
	case !hostAddress(r.Sender):
		return refuse("sender %v is not the IPv4 address of one host", r.Sender)
	case vips[r.Sender]:
		return refuse("sender %v is an address that is asked for: a probe would teach it to the whole segment", r.Sender)
	}
	return nil
}
