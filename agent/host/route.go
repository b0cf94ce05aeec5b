// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// routeTypes names RTN_* (include/uapi/linux/rtnetlink.h).
var routeTypes = [...]string{"unspec", "unicast", "local", "broadcast", "anycast", "multicast",
	"blackhole", "unreachable", "prohibit", "throw", "nat", "xresolve"}

// rtaNHID is RTA_NH_ID (include/uapi/linux/rtnetlink.h), which x/sys lacks.
const rtaNHID = 30

func routeType(t byte) string {
	if int(t) < len(routeTypes) {
		return routeTypes[t]
	}
	return fmt.Sprintf("type %d", t)
}

// routes lists one family's routes that keep wants, of one table, or of all
// for table 0. Route.Link is left empty.
func (s *socket) routes(ctx context.Context, family, table byte, keep func(Route) bool) ([]Route, error) {
	body := make([]byte, unix.SizeofRtMsg)
	body[0], body[4] = family, table
	list := []Route{}
	err := s.dump(ctx, unix.RTM_GETROUTE, unix.RTM_NEWROUTE, body, func(b []byte) error {
		if len(b) > 0 && b[0] != family {
			return nil // a family that the kernel lacks dumps all others
		}
		r, err := parseRoute(b)
		if err != nil {
			return err
		}
		if (table == 0 || r.Table == uint32(table)) && keep(r) {
			list = append(list, r)
		}
		return nil
	})
	if errors.Is(err, unix.ENOENT) && table != 0 {
		return list, nil // no such table yet: nothing in it
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

// parseRoute takes a struct rtmsg and its attributes apart.
func parseRoute(b []byte) (Route, error) {
	if len(b) < unix.SizeofRtMsg {
		return Route{}, errShort
	}
	r := Route{Table: uint32(b[4]), Protocol: b[5], Scope: b[6], Type: routeType(b[7])}
	flags := binary.NativeEndian.Uint32(b[8:])
	dst := netip.IPv4Unspecified()
	if b[0] == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	}
	bits := int(b[1])
	at := attributes{rest: b[unix.SizeofRtMsg:]}
	var hop nextHop
	for at.next() {
		switch at.typ {
		case unix.RTA_DST:
			dst = at.addr()
		case unix.RTA_TABLE:
			r.Table = at.uint32()
		case unix.RTA_PRIORITY:
			r.Metric = at.uint32()
		case unix.RTA_PREFSRC:
			r.Source = at.addr()
		case rtaNHID:
			r.NextHop = at.uint32()
		case unix.RTA_MULTIPATH:
			if err := r.multipath(at.value); err != nil {
				return Route{}, err
			}
		default:
			hop.take(&at)
		}
	}
	if at.err != nil {
		return Route{}, at.err
	}
	if flags&unix.RTM_F_CLONED != 0 {
		r.Type = "cached"
	}
	r.hop(hop)
	if len(r.Links) == 1 {
		r.LinkIndex = r.Links[0]
	}
	r.Prefix = netip.PrefixFrom(dst, bits).Masked()
	if !r.Prefix.IsValid() {
		return Route{}, fmt.Errorf("route to %s with prefix length %d is not valid", dst, bits)
	}
	return r, nil
}

// nextHop is where a route leads.
type nextHop struct {
	link    int
	gateway netip.Addr
}

// take reads an attribute that says where the route leads.
func (h *nextHop) take(at *attributes) {
	switch at.typ {
	case unix.RTA_OIF:
		h.link = int(at.uint32())
	case unix.RTA_GATEWAY:
		h.gateway = at.addr()
	case unix.RTA_VIA: // a gateway of another family: family, then address
		if len(at.value) > 2 {
			h.gateway, _ = netip.AddrFromSlice(at.value[2:])
		}
	}
}

func (r *Route) hop(h nextHop) {
	if h.link != 0 {
		r.Links = append(r.Links, h.link)
	}
	if h.gateway.IsValid() {
		r.Gateways = append(r.Gateways, h.gateway)
	}
}

// multipath reads the struct rtnexthops of RTA_MULTIPATH.
func (r *Route) multipath(b []byte) error {
	for len(b) >= unix.SizeofRtNexthop {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofRtNexthop || n > len(b) {
			return errShort
		}
		h := nextHop{link: int(int32(binary.NativeEndian.Uint32(b[4:])))}
		at := attributes{rest: b[unix.SizeofRtNexthop:n]}
		for at.next() {
			h.take(&at)
		}
		if at.err != nil {
			return at.err
		}
		r.hop(h)
		b = b[min(align(n), len(b)):]
	}
	return nil
}
