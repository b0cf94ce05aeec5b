// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// errShort: a netlink message ends before its own length says.
var errShort = errors.New("netlink message is cut short")

// attributeTypeMask is NLA_TYPE_MASK (include/uapi/linux/netlink.h).
const attributeTypeMask = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)

// align rounds a length up to the four bytes of netlink(7).
func align(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

// header is a struct nlmsghdr for a body of the given length, with room for it.
func header(typ, flags uint16, seq uint32, body int) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+body)
	binary.NativeEndian.PutUint32(b[0:], uint32(unix.NLMSG_HDRLEN+body))
	binary.NativeEndian.PutUint16(b[4:], typ)
	binary.NativeEndian.PutUint16(b[6:], flags)
	binary.NativeEndian.PutUint32(b[8:], seq)
	return b
}

// attribute appends a struct rtattr with its value, padded.
func attribute(b []byte, typ uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, value...)
	for len(b)%unix.NLMSG_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}

func attribute32(b []byte, typ uint16, value uint32) []byte {
	return attribute(b, typ, binary.NativeEndian.AppendUint32(nil, value))
}

// attributes walks over the attributes of a message.
type attributes struct {
	rest  []byte
	typ   uint16 // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
	value []byte
	err   error
}

// next moves to the next attribute. After it has said false, err says whether
// that was the end.
func (a *attributes) next() bool {
	if len(a.rest) < unix.SizeofRtAttr {
		if len(a.rest) != 0 {
			a.err = errShort
		}
		return false
	}
	n := int(binary.NativeEndian.Uint16(a.rest))
	if n < unix.SizeofRtAttr || n > len(a.rest) {
		a.err = errShort
		return false
	}
	a.typ = binary.NativeEndian.Uint16(a.rest[2:]) & attributeTypeMask
	a.value = a.rest[unix.SizeofRtAttr:n]
	a.rest = a.rest[min(align(n), len(a.rest)):]
	return true
}

// uint32 is the value of a four-byte attribute.
func (a *attributes) uint32() uint32 {
	if len(a.value) < 4 {
		a.err = errShort
		return 0
	}
	return binary.NativeEndian.Uint32(a.value)
}

// addr is the value of an attribute that holds an IP address.
func (a *attributes) addr() netip.Addr {
	ip, ok := netip.AddrFromSlice(a.value)
	if !ok {
		a.err = errShort
	}
	return ip
}

// cstring is b up to its first NUL.
func cstring(b []byte) []byte {
	for i, c := range b {
		if c == 0 {
			return b[:i]
		}
	}
	return b
}
