// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// listLinks lists every link, once. programs are the XDP programs on them, by
// link name.
func (l *Linux) listLinks() (links []Link, programs map[string]uint32, err error) {
	raw, err := l.linkList()
	if err != nil {
		return nil, nil, interruption(err) // raw may be half a list
	}
	bridges := map[int]bool{}
	for _, r := range raw {
		if r.Type() == "bridge" {
			bridges[r.Attrs().Index] = true
		}
	}
	programs = map[string]uint32{}
	links = make([]Link, 0, len(raw))
	for _, r := range raw {
		a := r.Attrs()
		links = append(links, fromNetlink(r, bridges[a.MasterIndex]))
		if a.Xdp != nil && a.Xdp.Attached {
			programs[a.Name] = a.Xdp.ProgId
		}
	}
	return links, programs, nil
}

func fromNetlink(l netlink.Link, bridgePort bool) Link {
	a := l.Attrs()
	kind := l.Type()
	if kind == "device" { // the library's word for a link without IFLA_INFO_KIND
		kind = ""
	}
	parent := a.ParentIndex
	if a.NetNsID >= 0 { // IFLA_LINK_NETNSID: an index of another namespace
		parent = 0
	}
	return Link{
		Name: a.Name, Index: a.Index, Kind: kind,
		MasterIndex: a.MasterIndex, ParentIndex: parent,
		MAC: hardwareAddress(a.HardwareAddr), PermanentMAC: hardwareAddress(a.PermHWAddr),
		Flags: a.RawFlags, Up: a.RawFlags&unix.IFF_UP != 0, Carrier: a.RawFlags&unix.IFF_LOWER_UP != 0,
		Type: a.EncapType, MTU: a.MTU, BridgePort: bridgePort,
	}
}

// hardwareAddress is "" for none and for lo's all zeros.
func hardwareAddress(mac interface{ String() string }) string {
	s := mac.String()
	for _, c := range s {
		if c != '0' && c != ':' {
			return s
		}
	}
	return ""
}

// listRules lists one family's policy routing rules, once.
func listRules(family int, name string) ([]Rule, error) {
	raw, err := netlink.RuleList(family)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, nil // a kernel without policy routing has no rules
	}
	if err != nil {
		return nil, interruption(err)
	}
	var list []Rule
	for _, r := range raw {
		if r.Family != family {
			continue // a family that the kernel lacks dumps all others
		}
		list = append(list, Rule{
			Priority: r.Priority, Table: r.Table, Family: name,
			From: prefixOf(r.Src), To: prefixOf(r.Dst), InLink: r.IifName, OutLink: r.OifName,
			Mark: r.Mark, Not: r.Invert,
		})
	}
	return list, nil
}

// prefixOf leaves net.IP behind.
func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	ip, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), bits)
}

// interruption translates the library's word for an interrupted dump.
func interruption(err error) error {
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return ErrInterrupted
	}
	return err
}
