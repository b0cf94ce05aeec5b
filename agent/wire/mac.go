// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net"
)

// MAC is an Ethernet (EUI-48) address. It is comparable, so it can key a map.
type MAC [6]byte

// BroadcastMAC is the address of every station on the segment.
var BroadcastMAC = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// ParseMAC reads a 6-byte address in any of the forms of net.ParseMAC.
func ParseMAC(s string) (MAC, error) {
	hw, err := net.ParseMAC(s)
	if err != nil {
		return MAC{}, fmt.Errorf("parsing MAC %q: %w", s, err)
	}
	return MACFrom(hw)
}

// MACFrom copies a hardware address. Anything but 6 bytes (InfiniBand has 20)
// is an error.
func MACFrom(hw net.HardwareAddr) (MAC, error) {
	if len(hw) != len(MAC{}) {
		return MAC{}, fmt.Errorf("reading hardware address %s: %d bytes, an Ethernet MAC has 6", hw, len(hw))
	}
	return MAC(hw), nil
}

// String returns the address as six lower-case hex pairs with colons.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// IsZero reports whether m is 00:00:00:00:00:00, which is no station.
func (m MAC) IsZero() bool { return m == MAC{} }

// IsGroup reports whether m is a multicast address, broadcast included.
func (m MAC) IsGroup() bool { return m[0]&1 != 0 }

// MarshalText writes the form of String.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the forms of ParseMAC.
func (m *MAC) UnmarshalText(b []byte) error {
	v, err := ParseMAC(string(b))
	if err != nil {
		return err
	}
	*m = v
	return nil
}
