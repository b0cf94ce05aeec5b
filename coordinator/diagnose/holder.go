// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// holders lists every address and every local route by which a node's kernel has the VIP.
func (j *judgement) holders() {
	for _, n := range j.nodes {
		if n.Kernel == nil {
			continue
		}
		for _, a := range n.Kernel.Addresses {
			if a.Prefix.Addr() == j.s.VIP {
				j.report.Holders = append(j.report.Holders, j.holder(n, a))
			}
		}
		for i := range n.Kernel.Routes {
			if r := n.Kernel.Routes[i]; n.Kernel.residual(r, j.s.VIP) {
				j.report.Holders = append(j.report.Holders, j.residualHolder(n, r))
			}
		}
	}
	slices.SortStableFunc(j.report.Holders, compareHolders)
}

func compareHolders(a, b Holder) int {
	route := func(h Holder) Route {
		if h.Route == nil {
			return Route{}
		}
		return *h.Route
	}
	ra, rb := route(a), route(b)
	return cmp.Or(cmp.Compare(a.Node, b.Node),
		cmp.Compare(a.Address.LinkIndex, b.Address.LinkIndex), cmp.Compare(a.Address.Link, b.Address.Link),
		cmp.Compare(a.Address.Prefix.String(), b.Address.Prefix.String()), cmp.Compare(a.Address.Label, b.Address.Label), cmp.Compare(a.Address.Scope, b.Address.Scope),
		cmp.Compare(ra.Prefix.String(), rb.Prefix.String()), cmp.Compare(ra.LinkIndex, rb.LinkIndex), cmp.Compare(ra.Link, rb.Link),
		cmp.Compare(ra.Table, rb.Table), cmp.Compare(a.Reason, b.Reason))
}

// holder judges one address. What it says of staleness is about what stands behind the address; that
// its link's manager runs is a finding of its own, since the operator may override that and never this.
func (j *judgement) holder(n *Node, a Address) Holder {
	k := n.Kernel
	link := k.linkName(a.Link, a.LinkIndex)
	h := Holder{Node: n.Name, Address: a, State: HolderUnknown}
	switch {
	case n.Role == RoleWitness:
		h.State, h.Reason = HolderOwn, "held by a witness, on which nothing is ever changed"
	case !k.ours(link):
		h.State, h.Reason = HolderOwn, j.onNIC(k, link)
	case !a.Prefix.IsSingleIP():
		h.Reason = fmt.Sprintf("a /%d, not a host address: never removed", a.Prefix.Bits())
	case len(k.Incomplete) > 0:
		h.Reason = "the inventory is not complete: " + k.Incomplete[0]
	case k.IPVS.unknown(j.s.VIP) != "":
		h.Reason = k.IPVS.unknown(j.s.VIP)
	case k.IPVS.serves(j.s.VIP):
		h.State, h.Reason = HolderLive, "an IPVS service for "+j.s.VIP.String()+" is behind it"
	case k.KubeProxy.State == KubeProxyUnknown:
		h.Reason = "it is not known whether kube-proxy runs here"
	default:
		j.stale(n, &h)
	}
	return h
}

// stale says whether what nothing stands behind is answered for on the segment.
func (j *judgement) stale(n *Node, h *Holder) {
	switch {
	case len(j.seg.Interfaces) == 0:
		h.Reason = "nothing is behind it; whether the kernel answers: there is no segment to judge it on"
		return
	case j.seg.Interfaces[n.Name] != "":
	case len(j.heardFrom(n.Name)) > 0:
		h.Reason = "it is heard on the segment, and none of its NICs is known to be there"
		return
	default:
		h.State, h.Reason = HolderLatent, "nothing is behind it; no NIC of this node is on the segment"+n.Kernel.otherwiseThere(j.s.VIP)
		return
	}
	switch a := j.now[n.Name]; a.Would {
	case AnswerYes:
		h.State, h.Reason = HolderStale, "nothing is behind it: no IPVS service, no manager; "+a.Reason
		if j.silent(n.Name) && n.Kernel.ARPPath.Unknown {
			h.State = HolderUnknown
			h.Reason = "nothing is behind it, yet nobody hears it: something else is on the ARP path"
		}
	case AnswerNo:
		h.State, h.Reason = HolderLatent, "nothing is behind it; silent now: "+a.Reason
	default:
		h.Reason = "whether this kernel answers: " + a.Reason
	}
}

func (j *judgement) onNIC(k *Kernel, link string) string {
	if m, ok := managedLinks[link]; ok {
		return fmt.Sprintf("on %s, which belongs to %s", link, m.by)
	}
	if l := k.link(link); l != nil && isLoopback(*l) {
		return "on the loopback link, where somebody put it on purpose"
	}
	return "on a real NIC: the node's own, or a VIP manager's (kube-vip, keepalived)"
}

// unknown says why the IPVS table cannot tell what is behind the VIP; empty when it can.
func (i IPVS) unknown(vip netip.Addr) string {
	switch {
	case i.serves(vip):
		return ""
	case i.State == IPVSAbsent, i.State == IPVSNone:
	case i.State == IPVSPresent && i.Marks > 0:
		return fmt.Sprintf("IPVS has %s with a firewall mark, behind which any address may be", count(i.Marks, "service", "services"))
	case i.State == IPVSPresent && len(i.Services) == 0:
		return "IPVS has services that were not listed"
	case i.State == IPVSPresent:
	case i.Reason != "":
		return "IPVS could not be read: " + i.Reason
	default:
		return "IPVS was not read"
	}
	return ""
}

func (i IPVS) serves(vip netip.Addr) bool {
	return slices.ContainsFunc(i.Services, func(s netip.AddrPort) bool { return s.Addr().Unmap() == vip })
}

// count writes a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
