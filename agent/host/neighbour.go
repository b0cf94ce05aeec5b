// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// neighbours lists the entries of the wanted addresses.
func (s *socket) neighbours(ctx context.Context, want map[netip.Addr]bool, name func(int) string) ([]Neighbour, error) {
	list := []Neighbour{}
	err := s.dump(ctx, unix.RTM_GETNEIGH, unix.RTM_NEWNEIGH, make([]byte, unix.SizeofNdMsg), func(b []byte) error {
		n, index, err := parseNeighbour(b)
		if err != nil {
			return err
		}
		if want[n.IP] {
			n.Link = name(index)
			list = append(list, n)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// parseNeighbour takes a struct ndmsg and its attributes apart. A bridge's
// forwarding entry comes out without an IP.
func parseNeighbour(b []byte) (n Neighbour, index int, err error) {
	if len(b) < unix.SizeofNdMsg {
		return Neighbour{}, 0, errShort
	}
	if b[0] != unix.AF_INET && b[0] != unix.AF_INET6 {
		return Neighbour{}, 0, nil
	}
	index = int(int32(binary.NativeEndian.Uint32(b[4:])))
	n.State = neighbourState(binary.NativeEndian.Uint16(b[8:]))
	at := attributes{rest: b[unix.SizeofNdMsg:]}
	for at.next() {
		switch at.typ {
		case unix.NDA_DST:
			n.IP = at.addr()
		case unix.NDA_LLADDR:
			n.MAC = net.HardwareAddr(at.value).String()
		}
	}
	if at.err != nil {
		return Neighbour{}, 0, at.err
	}
	return n, index, nil
}

// neighbourState names NUD_* (include/uapi/linux/neighbour.h).
func neighbourState(s uint16) string {
	switch s {
	case unix.NUD_NONE:
		return "none"
	case unix.NUD_INCOMPLETE:
		return "incomplete"
	case unix.NUD_REACHABLE:
		return "reachable"
	case unix.NUD_STALE:
		return "stale"
	case unix.NUD_DELAY:
		return "delay"
	case unix.NUD_PROBE:
		return "probe"
	case unix.NUD_FAILED:
		return "failed"
	case unix.NUD_NOARP:
		return "noarp"
	case unix.NUD_PERMANENT:
		return "permanent"
	}
	return fmt.Sprintf("state %#x", s)
}
