// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"slices"
	"strings"
)

// holderFindings are about one address or local route by which a kernel has the VIP.
func (j *judgement) holderFindings(h Holder) {
	n := j.node(h.Node)
	k := n.Kernel
	if h.Route != nil {
		severity := Refuse
		if h.State == HolderLatent {
			severity = Warn
		}
		j.c.add(ResidualRoute, severity, n.Name, fmt.Sprintf("%s: local %s by %s, table %d: %s", n.Name, h.Route.Prefix, k.linkName(h.Route.Link, h.Route.LinkIndex), h.Route.Table, h.Reason))
		return
	}
	link := k.linkName(h.Address.Link, h.Address.LinkIndex)
	where := fmt.Sprintf("%s: %s on %s", n.Name, h.Address.Prefix, link)
	switch h.State {
	case HolderStale:
		j.c.add(StaleAddress, Warn, n.Name, where+": "+h.Reason)
	case HolderLatent:
		j.c.add(LatentAddress, Warn, n.Name, where+": "+h.Reason)
	case HolderLive:
		j.c.add(LiveAddress, Refuse, n.Name, where+": "+h.Reason)
	case HolderOwn:
		j.c.add(AddressOnNIC, Warn, n.Name, where+": "+h.Reason)
	}
	if h.State == HolderOwn {
		return
	}
	j.behind(n, link, where)
	if !h.Address.Prefix.IsSingleIP() {
		j.c.add(NotHostPrefix, Refuse, n.Name, where+k.collateral(h.Address, link))
	}
	j.twin(n, h.Address, link)
	if !n.CanAct && n.Connected {
		j.c.add(AgentCannotAct, Refuse, n.Name, fmt.Sprintf("%s: %s", n.Name, orElse(n.CannotActReason, "its agent may only observe")))
	}
	j.others(n, link)
}

// behind says who else may want the address: the IPVS table and the link's managers.
func (j *judgement) behind(n *Node, link, where string) {
	k := n.Kernel
	if why := k.IPVS.unknown(j.s.VIP); why != "" {
		j.c.add(IPVSNotReadable, Refuse, n.Name, fmt.Sprintf("%s: %s", where, why))
	}
	m := managedLinks[link]
	if m.by == "kube-router" && m.ipvs && len(k.IPVS.Services) > 0 {
		j.c.add(ManagerRunning, Refuse, n.Name, fmt.Sprintf("%s: kube-router's service proxy seems to run: IPVS has %s", where, count(len(k.IPVS.Services), "service", "services")))
	}
	detail := ""
	if k.KubeProxy.Detail != "" {
		detail = " (" + k.KubeProxy.Detail + ")"
	}
	switch k.KubeProxy.State {
	case KubeProxyAbsent:
	case KubeProxyRunning:
		j.c.add(ManagerRunning, Refuse, n.Name, fmt.Sprintf("%s: kube-proxy runs in mode %s%s", where, orElse(k.KubeProxy.Mode, "not told"), detail))
	case KubeProxyUnknownManager:
		j.c.add(UnknownManager, Refuse, n.Name, fmt.Sprintf("%s: something answers on kube-proxy's health port%s", where, detail))
	default:
		j.c.add(UnknownManager, Refuse, n.Name, fmt.Sprintf("%s: it is not known whether kube-proxy runs%s", where, detail))
	}
}

// twin: the same address on another link of this node, which goes on answering when this one is gone.
func (j *judgement) twin(n *Node, a Address, link string) {
	for _, o := range n.Kernel.Addresses {
		other := n.Kernel.linkName(o.Link, o.LinkIndex)
		if o.Prefix.Addr() != j.s.VIP || other == link {
			continue
		}
		severity := Refuse
		if _, known := ManagedDummy(other); known {
			severity = Warn
		}
		j.c.add(TwinAddress, severity, n.Name, fmt.Sprintf("%s: %s on %s and %s on %s", n.Name, a.Prefix, link, o.Prefix, other))
	}
}

// collateral lists what the kernel drops together with a primary address of a subnet.
func (k *Kernel) collateral(a Address, link string) string {
	promote := []bool{false, true}
	if l := k.link(link); l != nil {
		promote = orOf(k.All.PromoteSecondaries, l.Sysctls.PromoteSecondaries)
	}
	if a.Flags&secondaryAddress != 0 || len(promote) == 1 && promote[0] {
		return "; its siblings would stay"
	}
	var siblings []string
	for _, o := range k.Addresses {
		if k.linkName(o.Link, o.LinkIndex) == link && o.Prefix.Addr() != a.Prefix.Addr() &&
			o.Prefix.Addr().Is4() && o.subnet() == a.subnet() {
			siblings = append(siblings, o.Prefix.String())
		}
	}
	if len(siblings) == 0 {
		return ""
	}
	slices.Sort(siblings)
	setting := "promote_secondaries is 0 for all and for " + link
	if len(promote) > 1 {
		setting = "promote_secondaries could not be read"
	}
	return fmt.Sprintf("; removing it would drop %s too (%s)", strings.Join(siblings, ", "), setting)
}

// others counts what else stands on the link with nothing behind it: told, and never removed unless named.
func (j *judgement) others(n *Node, link string) {
	k := n.Kernel
	if m := managedLinks[link]; !m.ipvs {
		return
	}
	stale := 0
	for _, a := range k.Addresses {
		ip := a.Prefix.Addr()
		if k.linkName(a.Link, a.LinkIndex) == link && ip != j.s.VIP && ip.Is4() && a.Prefix.IsSingleIP() &&
			k.IPVS.unknown(ip) == "" && !k.IPVS.serves(ip) {
			stale++
		}
	}
	if stale > 0 {
		j.c.add(ShadowedClusterIPs, Info, n.Name, fmt.Sprintf("%s: %s on %s", n.Name, count(stale, "address", "addresses"), link))
	}
}

func (j *judgement) node(name string) *Node {
	for _, n := range j.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
