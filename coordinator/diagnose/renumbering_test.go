// SPDX-License-Identifier: Apache-2.0

package diagnose_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/handover"
)

// sibling maps a scenario to another one that is alike. XOR keeps every relation between addresses and prefixes.
type sibling struct {
	names   map[string]string // of nodes, links and MACs: no name is of two kinds
	flip    uint32            // addresses are XORed with it
	bits    int               // the prefix length in place of /24
	dropped string            // a finding that the other link name does not give
}

func drawSibling(t *rapid.T, s scenario) sibling {
	to := sibling{names: map[string]string{}, bits: rapid.IntRange(16, 26).Draw(t, "prefix length")}
	var nodes, macs, nics []string
	for _, n := range s.snapshot.Nodes {
		nodes = append(nodes, n.Name)
		if n.Kernel == nil {
			continue
		}
		for _, l := range n.Kernel.Links {
			if l.MAC != "" && len(l.MAC) == 17 && !slices.Contains(macs, l.MAC) {
				macs = append(macs, l.MAC)
			}
			if _, managed := diagnose.ManagedDummy(l.Name); !managed && l.Name != "lo" && !slices.Contains(nics, l.Name) {
				nics = append(nics, l.Name)
			}
		}
	}
	to.shuffled(t, "nodes", nodes)
	to.shuffled(t, "MACs", macs)
	for i, nic := range nics {
		to.names[nic] = fmt.Sprint(rapid.SampledFrom([]string{"enp3s", "wan", "eno", "br-lan", "zz", "bond"}).Draw(t, "NIC"), i)
	}
	to.dummies(t, s)
	to.flip = rapid.Custom(func(t *rapid.T) uint32 { return rapid.Uint32Range(0, 0x1fffffff).Draw(t, "flip") }).
		Filter(func(flip uint32) bool { to.flip = flip; return usable(to.snapshot(s.snapshot)) }).Draw(t, "renumbered")
	return to
}

func (to sibling) shuffled(t *rapid.T, what string, list []string) {
	if len(list) > 1 {
		for i, other := range rapid.Permutation(list).Draw(t, what) {
			to.names[list[i]] = other
		}
	}
}

// dummies renames the links that only carry: kube-ipvs0 to kube-router's, where no IPVS service makes
// that name say more, or to one that nobody manages, which has no "other leftovers".
func (to *sibling) dummies(t *rapid.T, s scenario) {
	text := string(s.json)
	plainly := !strings.Contains(text, `"services"`) && !strings.Contains(text, "kube-dummy-if") && !strings.Contains(strings.Join(s.expect, " "), "TWIN_ADDRESS")
	if !plainly {
		return
	}
	to.names["kube-ipvs0"] = rapid.SampledFrom([]string{"kube-ipvs0", "kube-dummy-if", "dummy7"}).Draw(t, "dummy")
	if to.names["kube-ipvs0"] == "dummy7" {
		to.dropped = "OTHER_STALE_ADDRESSES"
	}
}

func (to sibling) name(s string) string {
	if other, ok := to.names[s]; ok {
		return other
	}
	return s
}

func (to sibling) addr(a netip.Addr) netip.Addr {
	if !a.Is4() || a.IsLoopback() || a.IsUnspecified() {
		return a
	}
	b := a.As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])^to.flip)
	return netip.AddrFrom4(b)
}

// prefix keeps it masked where it was.
func (to sibling) prefix(p netip.Prefix) netip.Prefix {
	if !p.IsValid() || !p.Addr().Is4() || p.Bits() == 0 || p.Addr().IsLoopback() {
		return p
	}
	bits := p.Bits()
	if bits == 24 {
		bits = to.bits
	}
	out := netip.PrefixFrom(to.addr(p.Addr()), bits)
	if p.Masked() == p {
		return out.Masked()
	}
	return out
}

var (
	address = regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+(/\d+)?`)
	word    = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9._:-]*[A-Za-z0-9]`)
)

// lines maps what is expected.
func (to sibling) lines(list []string) []string {
	var out []string
	for _, line := range list {
		if to.dropped != "" && strings.Contains(line, to.dropped) {
			continue
		}
		line = word.ReplaceAllStringFunc(line, to.name)
		line = strings.ReplaceAll(line, " /24 on ", fmt.Sprintf(" /%d on ", to.bits))
		out = append(out, address.ReplaceAllStringFunc(line, func(s string) string {
			if p, err := netip.ParsePrefix(s); err == nil {
				return to.prefix(p).String()
			}
			return to.addr(netip.MustParseAddr(s)).String()
		}))
	}
	return out
}

func (to sibling) options(o handover.Options) handover.Options {
	o.VIP, o.Interface, o.Canary, o.Owner = to.addr(o.VIP), to.name(o.Interface), to.name(o.Canary), to.name(o.Owner)
	o.Without = to.all(o.Without)
	return o
}

func (to sibling) all(names []string) []string {
	var out []string
	for _, n := range names {
		out = append(out, to.name(n))
	}
	return out
}

func (to sibling) snapshot(s diagnose.Snapshot) diagnose.Snapshot {
	s = clone(s)
	s.VIP, s.Interface, s.Without = to.addr(s.VIP), to.name(s.Interface), to.all(s.Without)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.Name = to.name(n.Name)
		if n.Kernel != nil {
			to.kernel(n.Kernel)
		}
	}
	for i := range s.Rounds {
		r := &s.Rounds[i]
		r.Observer, r.Interface, r.TargetMAC = to.name(r.Observer), to.name(r.Interface), to.name(r.TargetMAC)
		r.VIP, r.SenderIP, r.Heard = to.addr(r.VIP), to.addr(r.SenderIP), to.all(r.Heard)
		r.Replies, r.Unsolicited = to.frames(r.Replies), to.frames(r.Unsolicited)
	}
	for i := range s.Outgoing {
		g := &s.Outgoing[i]
		g.Node, g.Interface = to.name(g.Node), to.name(g.Interface)
		for k := range g.Replies {
			m := &g.Replies[k]
			m.SenderMAC, m.TargetMAC, m.TargetIP = to.name(m.SenderMAC), to.name(m.TargetMAC), to.addr(m.TargetIP)
		}
	}
	s.Requests = slices.Clone(s.Requests)
	for i := range s.Requests {
		s.Requests[i].Witness, s.Requests[i].NeighbourMAC = to.name(s.Requests[i].Witness), to.name(s.Requests[i].NeighbourMAC)
	}
	return s
}

func (to sibling) frames(list []diagnose.Reply) []diagnose.Reply {
	var out []diagnose.Reply
	for _, m := range list {
		m.SenderMAC, m.EthSource, m.SenderIP = to.name(m.SenderMAC), to.name(m.EthSource), to.addr(m.SenderIP)
		out = append(out, m)
	}
	return out
}

func (to sibling) kernel(k *diagnose.Kernel) {
	for i := range k.Links {
		l := &k.Links[i]
		l.Name, l.MAC, l.PermanentMAC = to.name(l.Name), to.name(l.MAC), to.name(l.PermanentMAC)
	}
	for i := range k.Addresses {
		a := &k.Addresses[i]
		a.Link, a.Prefix, a.Peer, a.Broadcast = to.name(a.Link), to.prefix(a.Prefix), to.prefix(a.Peer), to.addr(a.Broadcast)
	}
	for i := range k.Routes {
		r := &k.Routes[i]
		r.Link, r.Prefix, r.Source, r.Gateway = to.name(r.Link), to.prefix(r.Prefix), to.addr(r.Source), to.addr(r.Gateway)
	}
	k.ARPPath.Reasons = slices.Clone(k.ARPPath.Reasons)
	for i, why := range k.ARPPath.Reasons {
		k.ARPPath.Reasons[i] = word.ReplaceAllStringFunc(why, to.name)
	}
	for i, s := range k.IPVS.Services {
		k.IPVS.Services[i] = netip.AddrPortFrom(to.addr(s.Addr()), s.Port())
	}
}
