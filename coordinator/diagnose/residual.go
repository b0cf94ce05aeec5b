// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"net/netip"
	"slices"
)

// residual tells whether a local route covers the VIP without an address that makes it: the kernel
// answers for it all the same, and removing an address leaves it there.
func (k *Kernel) residual(r Route, vip netip.Addr) bool {
	if r.Type != local || !r.Prefix.IsValid() || !r.Prefix.Contains(vip) || (r.Table != 0 && r.Table < tableDefault) || r.Table > tableLocal {
		return false
	}
	link := k.linkName(r.Link, r.LinkIndex)
	return !slices.ContainsFunc(k.Addresses, func(a Address) bool {
		if k.linkName(a.Link, a.LinkIndex) != link || !a.Prefix.IsValid() {
			return false
		}
		if r.Prefix.IsSingleIP() {
			return a.Prefix.Addr() == vip
		}
		l := k.link(link)
		return l != nil && isLoopback(*l) && a.subnet() == r.Prefix.Masked() // an address of lo makes its whole subnet local
	})
}

// residualHolder leaves Address empty, so that nobody can take it for an address to remove.
func (j *judgement) residualHolder(n *Node, r Route) Holder {
	h := Holder{Node: n.Name, Route: &r, State: HolderUnknown, Reason: "a local route without an address"}
	if j.seg.Interfaces[n.Name] == "" {
		h.State, h.Reason = HolderLatent, h.Reason+"; no NIC of this node is on the segment"
		return h
	}
	switch a := j.after[n.Name]; a.Would {
	case AnswerYes:
		h.State, h.Reason = HolderStale, "a local route without an address: "+a.Reason
	case AnswerNo:
		h.State, h.Reason = HolderLatent, "a local route without an address; silent now: "+a.Reason
	}
	return h
}

// withoutVIP is the kernel as it would be once every address of the VIP that could be a leftover is
// gone; the routes that those addresses made go with them.
func (k *Kernel) withoutVIP(vip netip.Addr) *Kernel {
	rest := *k
	gone := k.ours
	rest.Addresses = slices.DeleteFunc(slices.Clone(k.Addresses), func(a Address) bool {
		return a.Prefix.Addr() == vip && gone(k.linkName(a.Link, a.LinkIndex))
	})
	rest.Routes = slices.DeleteFunc(slices.Clone(k.Routes), func(r Route) bool {
		return r.Type == local && r.Prefix.IsSingleIP() && r.Prefix.Addr() == vip &&
			gone(k.linkName(r.Link, r.LinkIndex)) && !k.residual(r, vip)
	})
	return &rest
}

// what names a holder as its reason does: "stale /32 on kube-ipvs0".
func (h Holder) what(k *Kernel) string {
	if h.Route != nil {
		return fmt.Sprintf("%s local route %s by %s", h.State.adjective(), h.Route.Prefix, k.linkName(h.Route.Link, h.Route.LinkIndex))
	}
	return fmt.Sprintf("%s /%d on %s", h.State.adjective(), h.Address.Prefix.Bits(), k.linkName(h.Address.Link, h.Address.LinkIndex))
}

func (s HolderState) adjective() string {
	if s == HolderUnknown {
		return "unexplained"
	}
	return string(s)
}
