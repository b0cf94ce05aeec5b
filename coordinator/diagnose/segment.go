// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// SegmentOf finds the local network of the VIP: the NIC that the operator named, else the NICs
// whose own subnet contains it. Nodes without such a NIC are not in the segment. The findings are
// NO_SEGMENT (refuse), OUTSIDE_SUBNET (warn) and VIP_IS_NODE_ADDRESS (refuse).
func SegmentOf(s Snapshot) (Segment, []Finding) {
	c := newCollector(s.VIP)
	seg := segmentOf(s, byName(s.Nodes), c)
	return seg, c.sorted()
}

func segmentOf(s Snapshot, nodes []*Node, c *collector) Segment {
	switch {
	case !s.VIP.IsValid():
		c.add(NoSegment, Refuse, "", "no address was asked for")
		return Segment{Interfaces: map[string]string{}}
	case !s.VIP.Is4():
		c.add(NoSegment, Refuse, "", fmt.Sprintf("%s is IPv6, and this version asks by ARP only: unknown, not fine", s.VIP))
		return Segment{Interfaces: map[string]string{}}
	}
	for _, n := range nodes {
		if n.Kernel != nil {
			n.ownAddress(s.VIP, c)
		}
	}
	if s.Interface != "" {
		return named(s, nodes, c)
	}
	return bySubnet(s, nodes, c)
}

// named takes the operator's NIC, and on nodes where no such NIC faces a network the one in its subnet.
func named(s Snapshot, nodes []*Node, c *collector) Segment {
	seg := Segment{Interfaces: map[string]string{}, Reason: "named by the operator: " + s.Interface}
	var subnets []netip.Prefix
	var unfit []string
	for _, n := range nodes {
		if n.Kernel == nil {
			continue
		}
		l := n.Kernel.link(s.Interface)
		switch {
		case l == nil:
		case !n.Kernel.faces(*l):
			unfit = append(unfit, n.Name)
		default:
			seg.Interfaces[n.Name] = l.Name
			if p := n.Kernel.ownSubnet(l.Name, s.VIP); p.IsValid() {
				subnets = append(subnets, p)
			}
		}
	}
	seg.Prefix = commonest(subnets)
	if len(seg.Interfaces) == 0 {
		c.add(NoSegment, Refuse, "", noSuchNIC(s.Interface, unfit))
		return seg
	}
	if !seg.Prefix.IsValid() || !seg.Prefix.Contains(s.VIP) {
		c.add(OutsideSubnet, Warn, "", fmt.Sprintf("%s is in no subnet of %s (%s)", s.VIP, s.Interface, subnetText(seg.Prefix)))
	}
	for _, n := range nodes {
		if n.Kernel != nil && seg.Interfaces[n.Name] == "" && seg.Prefix.IsValid() {
			if nic := n.Kernel.nicIn(seg.Prefix.Addr().Next()); nic != "" {
				seg.Interfaces[n.Name] = nic
			}
		}
	}
	return seg
}

func noSuchNIC(nic string, unfit []string) string {
	if len(unfit) == 0 {
		return fmt.Sprintf("no connected node has a NIC %s; name another with --interface", nic)
	}
	return fmt.Sprintf("%s faces no local network on %s: it is not Ethernet, a port of something else, or a link that only software fills", nic, and(unfit))
}

func subnetText(p netip.Prefix) string {
	if !p.IsValid() {
		return "it has no address of its own"
	}
	return p.String()
}

// bySubnet takes each node's NIC whose own subnet holds the VIP.
func bySubnet(s Snapshot, nodes []*Node, c *collector) Segment {
	seg := Segment{Interfaces: map[string]string{}}
	var subnets []netip.Prefix
	for _, n := range nodes {
		if n.Kernel == nil {
			continue
		}
		if nic := n.Kernel.nicIn(s.VIP); nic != "" {
			seg.Interfaces[n.Name] = nic
			subnets = append(subnets, n.Kernel.ownSubnetWith(nic, s.VIP))
		}
	}
	seg.Prefix = commonest(subnets)
	if len(seg.Interfaces) == 0 {
		c.add(NoSegment, Refuse, "", fmt.Sprintf("no NIC of a connected node has a subnet that contains %s; name the NIC with --interface", s.VIP))
		return seg
	}
	seg.Reason = fmt.Sprintf("subnet match: %s contains %s", seg.Prefix, s.VIP)
	return seg
}

// nicIn is the link that faces a local network and has ip in one of its own subnets: the nearest
// subnet, then the lowest index.
func (k *Kernel) nicIn(ip netip.Addr) string {
	var best Link
	var subnet netip.Prefix
	for _, l := range k.Links {
		if !k.faces(l) {
			continue
		}
		p := k.ownSubnetWith(l.Name, ip)
		if !p.IsValid() {
			continue
		}
		if !subnet.IsValid() || p.Bits() > subnet.Bits() ||
			(p.Bits() == subnet.Bits() && cmp.Or(cmp.Compare(l.Index, best.Index), cmp.Compare(l.Name, best.Name)) < 0) {
			best, subnet = l, p
		}
	}
	return best.Name
}

// otherwiseThere names the links that have the VIP in a subnet of theirs and are no NIC that could be
// asked: no Ethernet, or a port or link of something else. Empty where there is none.
func (k *Kernel) otherwiseThere(ip netip.Addr) string {
	var names []string
	for _, l := range k.Links {
		if !k.faces(l) && !isLoopback(l) && !k.onlyCarries(l.Name) && k.ownSubnetWith(l.Name, ip).IsValid() {
			names = append(names, fmt.Sprintf("%s (%s)", l.Name, orElse(l.Type, "of a type that was not told")))
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return "; its address there is on " + and(names) + ", which cannot be asked by ARP over Ethernet or is filled by software"
}

// ownSubnetWith is the longest subnet of the NIC's own addresses that contains ip.
func (k *Kernel) ownSubnetWith(nic string, ip netip.Addr) netip.Prefix {
	var best netip.Prefix
	for _, a := range k.Addresses {
		if a.Prefix.IsValid() && !a.Prefix.IsSingleIP() && a.subnet().Contains(ip) &&
			k.linkName(a.Link, a.LinkIndex) == nic && a.Prefix.Bits() > best.Bits() {
			best = a.subnet()
		}
	}
	return best
}

// commonest is the prefix that most have; then the longest, then the lowest.
func commonest(prefixes []netip.Prefix) netip.Prefix {
	count := map[netip.Prefix]int{}
	for _, p := range prefixes {
		count[p]++
	}
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(b.Bits(), a.Bits()), a.Addr().Compare(b.Addr()))
	})
	if len(prefixes) == 0 {
		return netip.Prefix{}
	}
	return prefixes[0]
}
