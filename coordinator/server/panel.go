// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

// mostWitnesses is how many witnesses are asked beside the agents.
const mostWitnesses = 2

// questioners is how many observers put the announcer question to one responder.
const questioners = 2

// observer is one member of the panel that asks the wire: its NIC on the segment and its own address there.
type observer struct {
	name, nic string
	address   netip.Addr
	offLink   bool // some node's NIC has no subnet with this address: silence needs a zero-sender probe too
	// quiet: asks the announcer question alone. A witness's kernel takes every reply to its host as news about
	// the VIP (arp_process, net/ipv4/arp.c), so a broadcast by a witness would move the very requests that it
	// measures from one responder to another. Replies to 127.0.0.1 are dropped before that.
	quiet bool
}

// choosePanel takes agents by name, at most five a segment (three at a step), and lets witnesses ask the
// announcer question beside them; only with fewer than two agents does a witness broadcast. The node under
// the knife cannot vouch for itself and is left out.
func choosePanel(snap diagnose.Snapshot, seg diagnose.Segment, q query) []observer {
	agents, witnesses := candidates(snap, seg, q, diagnose.RoleAgent), candidates(snap, seg, q, diagnose.RoleWitness)
	limit := mostObservers
	if q.Step != "" {
		limit = stepObservers
		slices.SortStableFunc(agents, func(a, b observer) int { // the survivor only where nobody else is left
			return boolInt(a.name == q.Survivor) - boolInt(b.name == q.Survivor)
		})
	}
	agents = agents[:min(limit, len(agents))]
	witnesses = witnesses[:min(mostWitnesses, len(witnesses))]
	for i := range witnesses {
		witnesses[i].quiet = len(agents) >= 2
	}
	return append(agents, witnesses...)
}

// candidates are the connected observers of a role that have an own address on the segment.
func candidates(snap diagnose.Snapshot, seg diagnose.Segment, q query, role diagnose.Role) []observer {
	var out []observer
	for _, n := range snap.Nodes {
		nic := seg.Interfaces[n.Name]
		if n.Role != role || !n.Connected || n.Kernel == nil || nic == "" || n.Name == q.Step {
			continue
		}
		if a := ownAddress(n, nic, seg.Prefix, snap.VIP); a.IsValid() {
			out = append(out, observer{name: n.Name, nic: nic, address: a, offLink: anyOffLink(snap, seg, a)})
		}
	}
	return out
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// ownAddress is the node's own address on that NIC: in the segment's subnet, else its first with a subnet.
// Never the VIP: as a sender it would teach the whole segment a MAC for it.
func ownAddress(n diagnose.Node, nic string, segment netip.Prefix, vip netip.Addr) netip.Addr {
	var fallback netip.Addr
	for _, a := range n.Kernel.Addresses {
		if a.Link != nic || !a.Prefix.Addr().Is4() || a.Prefix.IsSingleIP() || a.Prefix.Addr() == vip {
			continue
		}
		if segment.Contains(a.Prefix.Addr()) {
			return a.Prefix.Addr()
		}
		if !fallback.IsValid() {
			fallback = a.Prefix.Addr()
		}
	}
	return fallback
}

func anyOffLink(snap diagnose.Snapshot, seg diagnose.Segment, sender netip.Addr) bool {
	for node, nic := range seg.Interfaces {
		n := findNode(snap, node)
		if n == nil || n.Kernel == nil {
			continue
		}
		if !slices.ContainsFunc(n.Kernel.Addresses, func(a diagnose.Address) bool {
			return a.Link == nic && a.Prefix.Masked().Contains(sender)
		}) {
			return true
		}
	}
	return false
}

func findNode(snap diagnose.Snapshot, name string) *diagnose.Node {
	for i := range snap.Nodes {
		if snap.Nodes[i].Name == name {
			return &snap.Nodes[i]
		}
	}
	return nil
}

// survivorQuestions: at a step every observer but the survivor asks the survivor's MAC, in the round's own window.
func survivorQuestions(q query, panel []observer, snap diagnose.Snapshot, seg diagnose.Segment) map[string][]string {
	if q.Step == "" {
		return nil
	}
	mac := macOf(snap, seg, q.Survivor)
	duty := map[string][]string{}
	for _, o := range panel {
		if mac != "" && o.name != q.Survivor {
			duty[o.name] = []string{mac}
		}
	}
	return duty
}

// shareQuestions gives each responder of a known node to two observers on other nodes, those with the least
// to do, so that no NIC spends its probe budget alone. MACs come from the inventory, never from a frame.
func shareQuestions(snap diagnose.Snapshot, panel []observer) map[string][]string {
	duty := map[string][]string{}
	report := diagnose.Judge(snap)
	for _, r := range report.Responders {
		if r.Node == "" {
			continue
		}
		able := slices.DeleteFunc(slices.Clone(panel), func(o observer) bool { return o.name == r.Node || isDeaf(report, o.name) })
		slices.SortStableFunc(able, func(a, b observer) int { return len(duty[a.name]) - len(duty[b.name]) })
		for _, o := range able[:min(questioners, len(able))] {
			duty[o.name] = append(duty[o.name], strings.ToLower(r.MAC))
		}
	}
	return duty
}

// isDeaf: the observer could not hear or ask in the rounds so far, so what it would not hear proves nothing.
func isDeaf(r diagnose.Report, name string) bool {
	return slices.ContainsFunc(r.Observers, func(v diagnose.ObserverView) bool {
		return v.Observer == name && (v.State == diagnose.ObserverBlind || v.State == diagnose.ObserverCannotProbe)
	})
}

// macOf is the MAC of the node's NIC on the segment, by its own inventory.
func macOf(snap diagnose.Snapshot, seg diagnose.Segment, node string) string {
	n := findNode(snap, node)
	if n == nil || n.Kernel == nil {
		return ""
	}
	for _, l := range n.Kernel.Links {
		if l.Name == seg.Interfaces[node] {
			return l.MAC
		}
	}
	return ""
}
