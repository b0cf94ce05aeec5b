// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"net/netip"
	"slices"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// agrees holds what one kernel is said to list against itself.
func (r *reader) agrees(k *vipmovev1.KernelState) {
	links := r.links(k)
	if whole := len(k.GetIncomplete()) == 0; whole && len(k.GetLinks()) == 0 {
		r.bad("links", fmt.Errorf("there are none, and every kernel lists some; what could not be read belongs in incomplete"))
	} else if whole && len(k.GetAddresses()) == 0 {
		r.bad("addresses", fmt.Errorf("there are none, and every kernel lists some; what could not be read belongs in incomplete"))
	}
	type tuple struct {
		link         string
		index        int32
		prefix, peer string
	}
	tuples := map[tuple]bool{}
	for i, a := range k.GetAddresses() {
		r.in(fmt.Sprintf("address %d (%s)", i+1, a.GetPrefix()), func() {
			if a.GetLink() == "" && a.GetLinkIndex() == 0 {
				r.bad("link", fmt.Errorf("it is on none"))
			}
			links.holds(r, a.GetLink(), a.GetLinkIndex())
			t := tuple{a.GetLink(), a.GetLinkIndex(), a.GetPrefix(), a.GetPeer()}
			if tuples[t] {
				r.bad("prefix", fmt.Errorf("%s has it twice", a.GetLink()))
			}
			tuples[t] = true
		})
	}
	for i, e := range k.GetRoutes() {
		r.in(fmt.Sprintf("route %d (%s)", i+1, e.GetPrefix()), func() { links.holds(r, e.GetLink(), e.GetLinkIndex()) })
	}
	switch s := k.GetIpvs().GetState(); s {
	case vipmovev1.Ipvs_STATE_ABSENT, vipmovev1.Ipvs_STATE_NONE:
		if n := len(k.GetIpvs().GetServices()); n > 0 {
			r.bad("ipvs", fmt.Errorf("%s, and there are services", s))
		}
	}
	if k.GetKubeProxy().GetState() == vipmovev1.KubeProxy_STATE_ABSENT && k.GetKubeProxy().GetMode() != "" {
		r.bad("kube proxy", fmt.Errorf("STATE_ABSENT, and it runs in mode %s", k.GetKubeProxy().GetMode()))
	}
}

// listed are the names of a kernel's links by their indexes.
type listed map[int32]string

// links: names and indexes are each there once, and what the flags say is what up and carrier say.
func (r *reader) links(k *vipmovev1.KernelState) listed {
	names, by := map[string]bool{}, listed{}
	for i, l := range k.GetLinks() {
		r.in("link "+nameOr(l.GetName(), i), func() {
			switch other, twice := by[l.GetIndex()]; {
			case l.GetName() == "":
				r.bad("name", fmt.Errorf("it has none"))
			case l.GetIndex() <= 0:
				r.bad("index", fmt.Errorf("%d; the kernel counts from 1", l.GetIndex()))
			case twice:
				r.bad("index", fmt.Errorf("%d is also %s's", l.GetIndex(), other))
			case l.GetType() == "":
				r.bad("type", fmt.Errorf("it has none: ether, loopback, …"))
			case l.GetMac() == "" && l.GetType() == "ether" && l.GetUp() && l.GetKind() != "dummy" && l.GetKind() != "ifb" && inSubnet(k, l):
				r.bad("mac", fmt.Errorf("it has none, and it is up with an address of a subnet"))
			case l.GetMasterIndex() == l.GetIndex():
				r.bad("master index", fmt.Errorf("it is its own master"))
			}
			r.once(names, l.GetName(), "name", "another link has it too")
			by[l.GetIndex()] = l.GetName()
			const up, lowerUp = 0x1, 0x10000 // IFF_UP, IFF_LOWER_UP (include/uapi/linux/if.h)
			if f := l.GetFlags(); f != 0 && (f&up != 0) != l.GetUp() {
				r.bad("up", fmt.Errorf("%v, and the flags %#x say otherwise", l.GetUp(), f))
			} else if f != 0 && (f&lowerUp != 0) != l.GetCarrier() {
				r.bad("carrier", fmt.Errorf("%v, and the flags %#x say otherwise", l.GetCarrier(), f))
			}
		})
	}
	return by
}

// inSubnet: the link has an address with a subnet, so it can be a node's NIC on a segment.
func inSubnet(k *vipmovev1.KernelState, l *vipmovev1.Link) bool {
	return slices.ContainsFunc(k.GetAddresses(), func(a *vipmovev1.Address) bool {
		p, err := netip.ParsePrefix(a.GetPrefix())
		return err == nil && p.Addr().Is4() && !p.IsSingleIP() && (a.GetLinkIndex() == l.GetIndex() || a.GetLinkIndex() == 0 && a.GetLink() == l.GetName())
	})
}

// holds: a link that is named by both its name and its index is one link. One that is not listed may
// have gone between two dumps.
func (l listed) holds(r *reader, name string, index int32) {
	if is, there := l[index]; there && name != "" && is != name {
		r.bad("link index", fmt.Errorf("%d is %s, and the link named is %s", index, is, name))
	}
}
