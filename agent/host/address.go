// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// ifaProto is IFA_PROTO (include/uapi/linux/if_addr.h), which x/sys lacks.
const ifaProto = 11

// addresses lists the addresses of one link, or of all links for index 0.
// Address.Link is left empty.
func (s *socket) addresses(ctx context.Context, index int) ([]Address, error) {
	body := make([]byte, unix.SizeofIfAddrmsg) // AF_UNSPEC: both families
	binary.NativeEndian.PutUint32(body[4:], uint32(index))
	var list addressList
	var label string
	err := s.dump(ctx, unix.RTM_GETADDR, unix.RTM_NEWADDR, body, func(b []byte) error {
		a := list.next()
		if err := a.parse(b, &label); err != nil {
			return err
		}
		if !a.Prefix.IsValid() || index != 0 && a.LinkIndex != index {
			list.drop()
		}
		return nil
	})
	if errors.Is(err, unix.ENODEV) {
		return nil, ErrNoLink
	}
	if err != nil {
		return nil, err
	}
	return list.all(), nil
}

// addressList grows in pieces: a slice that grows by itself would be copied,
// and its old half collected, over and over for ten thousand addresses.
type addressList struct {
	full [][]Address
	last []Address
}

// next is a new element, zero, to be filled in.
func (l *addressList) next() *Address {
	if len(l.last) == cap(l.last) {
		if len(l.last) > 0 {
			l.full = append(l.full, l.last)
		}
		l.last = make([]Address, 0, min(max(64, 2*cap(l.last)), 4096))
	}
	l.last = append(l.last, Address{})
	return &l.last[len(l.last)-1]
}

// drop takes the newest element back.
func (l *addressList) drop() { l.last = l.last[:len(l.last)-1] }

// all is never nil.
func (l *addressList) all() []Address {
	if l.last == nil {
		return []Address{}
	}
	if l.full == nil {
		return l.last
	}
	return slices.Concat(append(l.full, l.last)...)
}

// parse takes a struct ifaddrmsg and its attributes apart into a. A zero
// Prefix means a family that is neither IPv4 nor IPv6. label is the last one
// seen: a link's addresses share theirs, so that it is allocated once.
func (a *Address) parse(b []byte, label *string) error {
	if len(b) < unix.SizeofIfAddrmsg {
		return errShort
	}
	family, bits := b[0], int(b[1])
	if family != unix.AF_INET && family != unix.AF_INET6 {
		return nil
	}
	*a = Address{
		LinkIndex: int(binary.NativeEndian.Uint32(b[4:])),
		Scope:     b[3], Flags: uint32(b[2]),
		ValidLifetime: Forever, PreferredLifetime: Forever,
	}
	var local, address netip.Addr
	at := attributes{rest: b[unix.SizeofIfAddrmsg:]}
	for at.next() {
		switch at.typ {
		case unix.IFA_LOCAL:
			local = at.addr()
		case unix.IFA_ADDRESS:
			address = at.addr()
		case unix.IFA_BROADCAST:
			a.Broadcast = at.addr()
		case unix.IFA_LABEL:
			if v := cstring(at.value); string(v) != *label {
				*label = string(v)
			}
			a.Label = *label
		case unix.IFA_FLAGS:
			a.Flags = at.uint32()
		case unix.IFA_CACHEINFO:
			if len(at.value) < 8 {
				return errShort
			}
			a.PreferredLifetime = binary.NativeEndian.Uint32(at.value)
			a.ValidLifetime = binary.NativeEndian.Uint32(at.value[4:])
		case unix.IFA_RT_PRIORITY:
			a.Metric = at.uint32()
		case ifaProto:
			if len(at.value) > 0 {
				a.Protocol = at.value[0]
			}
		}
	}
	if at.err != nil {
		return at.err
	}
	// IPv4 always names both and they differ for a peer; IPv6 names the local
	// one only where there is a peer (inet_fill_ifaddr, inet6_fill_ifaddr).
	if !local.IsValid() {
		local = address
	} else if address.IsValid() && address != local {
		a.Peer = netip.PrefixFrom(address, bits)
	}
	a.Prefix = netip.PrefixFrom(local, bits)
	if !a.Prefix.IsValid() || local.Is4() != (family == unix.AF_INET) {
		return fmt.Errorf("address of family %d with prefix length %d is not valid", family, bits)
	}
	return nil
}

// settableFlags are those that the kernel takes from a request and keeps
// (rtm_to_ifaddr in net/ipv4/devinet.c, inet6_rtm_newaddr in
// net/ipv6/addrconf.c). Permanent, secondary, deprecated and tentative are
// the kernel's own conclusions.
const settableFlags = unix.IFA_F_NODAD | unix.IFA_F_HOMEADDRESS | unix.IFA_F_MANAGETEMPADDR |
	unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_MCAUTOJOIN

// identity is the request that names exactly t: RTM_DELADDR compares local
// address, prefix length and network, and the label.
func (t Tuple) identity() []byte {
	family := byte(unix.AF_INET)
	if t.Prefix.Addr().Is6() {
		family = unix.AF_INET6
	}
	b := []byte{family, byte(t.Prefix.Bits()), 0, t.Scope, 0, 0, 0, 0}
	binary.NativeEndian.PutUint32(b[4:], uint32(t.LinkIndex))
	address := t.Prefix.Addr()
	if t.Peer.IsValid() {
		address = t.Peer.Addr()
	}
	b = attribute(b, unix.IFA_LOCAL, t.Prefix.Addr().AsSlice())
	b = attribute(b, unix.IFA_ADDRESS, address.AsSlice())
	if t.Label != "" {
		b = attribute(b, unix.IFA_LABEL, append([]byte(t.Label), 0))
	}
	return b
}

// whole is the request that makes t again.
func (t Tuple) whole() []byte {
	b := t.identity()
	if t.Broadcast.IsValid() {
		b = attribute(b, unix.IFA_BROADCAST, t.Broadcast.AsSlice())
	}
	if f := t.Flags & settableFlags; f != 0 {
		b = attribute32(b, unix.IFA_FLAGS, f)
	}
	if t.ValidLifetime != 0 {
		life := make([]byte, 16) // struct ifa_cacheinfo; the two time stamps are ignored
		binary.NativeEndian.PutUint32(life, t.PreferredLifetime)
		binary.NativeEndian.PutUint32(life[4:], t.ValidLifetime)
		b = attribute(b, unix.IFA_CACHEINFO, life)
	}
	if t.Metric != 0 {
		b = attribute32(b, unix.IFA_RT_PRIORITY, t.Metric)
	}
	if t.Protocol != 0 {
		b = attribute(b, ifaProto, []byte{t.Protocol})
	}
	return b
}
