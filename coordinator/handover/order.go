// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"sort"
	"strings"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

// Carriers are the nodes whose MAC a witness's kernel uses for the VIP now: where clients' frames land.
// They say nothing about who survives.
func Carriers(s diagnose.Snapshot, r diagnose.Report) []string {
	var out []string
	for _, q := range s.Requests {
		for _, resp := range r.Responders {
			if resp.Node != "" && resp.MAC == q.NeighbourMAC && !contains(out, resp.Node) {
				out = append(out, resp.Node)
			}
		}
	}
	sort.Strings(out)
	return out
}

// chooseSurvivor takes whoever answers the announcer question; only where nobody does, whom the operator named.
func (p *Plan) chooseSurvivor(s diagnose.Snapshot) {
	switch {
	case p.Report.Owner != "":
		p.Survivor, p.SurvivorReason = p.Report.Owner, p.Report.OwnerReason
	case p.Options.Owner != "" && nodeOf(s, p.Options.Owner) != nil:
		p.Survivor, p.SurvivorReason = p.Options.Owner, "named by the operator with --owner; not proven by the announcer question"
	}
}

// chooseCanary takes the operator's choice, else the first worker that is neither carrier nor survivor (I4).
func (p *Plan) chooseCanary(s diagnose.Snapshot, entries []Entry, carriers []string) {
	if c := p.Options.Canary; c != "" {
		p.Canary, p.CanaryReason = c, "named by the operator with --canary"
		return
	}
	best, lowest := -1, 0
	for i, e := range entries {
		if e.Node == p.Survivor {
			continue
		}
		cost := canaryCost(s, p.Report, e, carriers)
		if best < 0 || cost < lowest || cost == lowest && e.Node < entries[best].Node {
			best, lowest = i, cost
		}
	}
	if best < 0 {
		return
	}
	e := entries[best]
	p.Canary = e.Node
	var why []string
	if !contains(carriers, e.Node) {
		why = append(why, "carries no client's frames that a witness knows of")
	} else {
		why = append(why, "every other node is the survivor or worse placed; it does carry clients' frames")
	}
	if e.ControlPlane {
		why = append(why, "no worker is left to choose")
	}
	p.CanaryReason = "not the survivor; " + strings.Join(why, "; ")
}

// canaryCost is lower for a better canary; each reason outweighs all the lighter ones together. A latent
// node is silent before and after its step, so as the canary it would show nothing of what a removal does
// to the wire.
func canaryCost(s diagnose.Snapshot, r diagnose.Report, e Entry, carriers []string) int {
	cost := 0
	for _, c := range []struct {
		against bool
		weight  int
	}{{!canAct(s, e.Node), 16}, {!heard(r, e), 8}, {contains(carriers, e.Node), 4}, {e.ControlPlane, 2}, {e.State == diagnose.HolderLatent, 1}} {
		if c.against {
			cost += c.weight
		}
	}
	return cost
}

// heard reports whether other observers hear the node, or it is latent and so cannot be heard.
func heard(r diagnose.Report, e Entry) bool {
	if e.State == diagnose.HolderLatent {
		return true
	}
	for _, resp := range r.Responders {
		if resp.Node == e.Node && len(resp.SeenBy) > 0 {
			return true
		}
	}
	return false
}

func canAct(s diagnose.Snapshot, node string) bool {
	n := nodeOf(s, node)
	return n != nil && n.Connected && n.CanAct && n.PendingUndo == nil
}

// order lays the steps out: canary, idle, carriers, survivor last (I3, I4).
func (p *Plan) order(entries []Entry, carriers []string) {
	for _, e := range entries {
		role := roleOf(e.Node, p.Canary, p.Survivor, carriers)
		p.Steps = append(p.Steps, PlannedStep{Entry: e, Role: role, Reason: p.reason(role)})
	}
	sort.SliceStable(p.Steps, func(i, j int) bool { return before(p.Steps[i], p.Steps[j]) })
}

func roleOf(node, canary, survivor string, carriers []string) Role {
	switch {
	case node == survivor:
		return RoleSurvivor
	case node == canary:
		return RoleCanary
	case contains(carriers, node):
		return RoleCarrier
	}
	return RoleIdle
}

func (p *Plan) reason(r Role) string {
	switch r {
	case RoleCanary:
		return p.CanaryReason
	case RoleSurvivor:
		return "last: " + p.SurvivorReason
	case RoleCarrier:
		return "a witness sends its frames for the VIP here now"
	}
	return fmt.Sprintf("neither carries frames nor survives; waves of %d", p.Options.MaxParallel)
}

var rank = map[Role]int{RoleCanary: 0, RoleIdle: 1, RoleCarrier: 2, RoleSurvivor: 3}

func before(a, b PlannedStep) bool {
	if rank[a.Role] != rank[b.Role] {
		return rank[a.Role] < rank[b.Role]
	}
	if a.ControlPlane != b.ControlPlane {
		return b.ControlPlane
	}
	return a.Node < b.Node
}
