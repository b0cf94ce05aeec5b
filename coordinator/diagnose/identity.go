// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"slices"
	"strings"
)

// place is where a MAC address lives: a link of an observer.
type place struct {
	node *Node
	link string
}

// identities maps MAC addresses to places, from the observers' own link inventories and nothing
// else. Two nodes with one MAC make it nobody's.
type identities map[string]identity

type identity struct {
	place
	shared []string // more than one node lists it, sorted
}

// identify lists every link's MAC and permanent MAC. Where several links of a node share one (a
// bond and its slaves, a VLAN), the segment's NIC stands for it, else the lowest link that is no
// port. A CNI may give one MAC to a link of every node; only those that are a segment's NIC count then.
func identify(nodes []*Node, seg Segment) identities {
	places := map[string][]place{}
	for _, n := range nodes {
		if n.Kernel == nil {
			continue
		}
		own := map[string]Link{}
		for _, l := range n.Kernel.Links {
			for _, mac := range []string{l.MAC, l.PermanentMAC} {
				if mac = strings.ToLower(mac); mac == "" || mac == "00:00:00:00:00:00" || isLoopback(l) {
					continue
				}
				if before, ok := own[mac]; !ok || standsFor(l, before, seg.Interfaces[n.Name]) {
					own[mac] = l
				}
			}
		}
		for mac, l := range own {
			places[mac] = append(places[mac], place{node: n, link: l.Name})
		}
	}
	ids := identities{}
	for mac, at := range places {
		ids[mac] = oneOf(at, seg)
	}
	return ids
}

func oneOf(at []place, seg Segment) identity {
	var here []place
	for _, p := range at {
		if seg.Interfaces[p.node.Name] == p.link {
			here = append(here, p)
		}
	}
	if len(here) > 0 {
		at = here
	}
	if len(at) == 1 {
		return identity{place: at[0]}
	}
	var id identity
	for _, p := range at {
		id.shared = append(id.shared, p.node.Name)
	}
	slices.Sort(id.shared)
	return id
}

func standsFor(l, before Link, nic string) bool {
	if (l.Name == nic) != (before.Name == nic) {
		return l.Name == nic
	}
	if (l.MasterIndex == 0) != (before.MasterIndex == 0) {
		return l.MasterIndex == 0
	}
	return cmp.Or(cmp.Compare(l.Index, before.Index), cmp.Compare(l.Name, before.Name)) < 0
}
