// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"strings"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

// Codes of preconditions that only a plan knows; documented in docs/findings.md beside diagnose's.
const (
	UnknownCanary    diagnose.Code = "UNKNOWN_CANARY"
	CanaryIsSurvivor diagnose.Code = "CANARY_IS_SURVIVOR"
	UnknownOwner     diagnose.Code = "UNKNOWN_OWNER"
	UnknownNode      diagnose.Code = "UNKNOWN_NODE"
	NothingToRemove  diagnose.Code = "NOTHING_TO_REMOVE"
	NoWitness        diagnose.Code = "NO_WITNESS"
	RequestsFail     diagnose.Code = "REQUESTS_FAIL"
	NoAgent          diagnose.Code = "NO_AGENT"
	NotOverridable   diagnose.Code = "NOT_OVERRIDABLE"
)

// overridable are the refusals that an operator may override by code; the agents' guard accepts the
// first two only. What proves that the VIP never goes dark (I1, I6) is not in this list.
var overridable = map[diagnose.Code]bool{
	diagnose.ManagerRunning: true,
	diagnose.UnknownManager: true,
	diagnose.ARPPathUnknown: true,
	diagnose.SplitView:      true,
}

// check lists every precondition with pass or fail; a refusal of the judgement is one that failed.
func (p *Plan) check(s diagnose.Snapshot) {
	p.checkOptions(s)
	agents := 0
	for _, n := range s.Nodes {
		if n.Role == diagnose.RoleAgent && n.Connected {
			agents++
		}
	}
	p.add(NoAgent, "agents are connected", agents > 0, fmt.Sprintf("%d agents connected", agents))
	for _, f := range p.Report.Findings {
		if f.Severity != diagnose.Refuse {
			continue
		}
		if overridable[f.Code] && contains(p.Options.Overrides, f.Code) {
			p.add(f.Code, "overridden: "+f.Message, true, "overridden by the operator, recorded in the plan hash")
			continue
		}
		p.add(f.Code, f.Message, false, f.NextStep)
	}
	p.add(NothingToRemove, "a stale or latent /32 of the VIP is on an allowed link", len(p.Steps) > 0,
		fmt.Sprintf("%d nodes in the plan", len(p.Steps)))
	p.checkTwins()
	p.add(diagnose.NoAnnouncer, "an announcer answers once the stale addresses are gone", p.Survivor != "",
		orElse(p.SurvivorReason, "nobody answered the announcer question; start the announcer, or name the survivor with --owner"))
	p.checkWitness(s)
}

// checkTwins: a step is known by its node, and it is verified by the node's silence, which two removals on
// one node could show only after the second.
func (p *Plan) checkTwins() {
	first := map[string]string{}
	for _, s := range p.Steps {
		if other, twice := first[s.Node]; twice {
			p.add(diagnose.TwinAddress, "node "+s.Node+" has one address to remove", false,
				fmt.Sprintf("it is on %s and on %s; take one of them off by hand, then plan again", other, s.Address.Link))
		}
		first[s.Node] = s.Address.Link
	}
}

// checkOptions holds what the operator named against what is there.
func (p *Plan) checkOptions(s diagnose.Snapshot) {
	o := p.Options
	if o.Canary != "" {
		p.add(UnknownCanary, "canary "+o.Canary+" is in the plan", p.step(o.Canary) != nil, "planned nodes: "+orElse(strings.Join(p.nodes(), " "), "none"))
		p.add(CanaryIsSurvivor, "canary is not the survivor", o.Canary != p.Survivor,
			either(o.Canary != p.Survivor, "the survivor is "+orElse(p.Survivor, "not known"), "the survivor goes last; choose another node with --canary"))
	}
	if o.Owner != "" {
		known := nodeOf(s, o.Owner) != nil
		p.add(UnknownOwner, "owner "+o.Owner+" is a known node", known, either(known, "named with --owner", "see: vipmove nodes"))
		if p.Report.Owner != "" && p.Report.Owner != o.Owner {
			p.add(UnknownOwner, "owner "+o.Owner+" answers the announcer question", false, p.Report.Owner+" does; leave out --owner")
		}
	}
	for _, n := range o.Without {
		known := nodeOf(s, n) != nil
		p.add(UnknownNode, "node "+n+" of --without is known", known, either(known, "left out of the plan", "see: vipmove nodes"))
	}
	for _, c := range o.Overrides {
		if !overridable[c] {
			p.add(NotOverridable, string(c)+" can be overridden", false, "this refusal protects against darkness or a wrong address; mend its cause instead")
		}
	}
}

// checkWitness wants real requests from outside, working before anything is changed.
func (p *Plan) checkWitness(s diagnose.Snapshot) {
	if p.Options.NoWitness {
		p.add(NoWitness, "requests: not measured", true, "--no-witness, recorded in the plan hash")
		return
	}
	p.add(NoWitness, "a witness sends real requests", len(s.Requests) > 0,
		either(len(s.Requests) > 0, fmt.Sprintf("%d report", len(s.Requests)), "start `vipmove witness` on a LAN host outside the cluster, or plan with --no-witness"))
	for _, q := range s.Requests {
		working := q.Succeeded > 0 && q.OpenGap < maxOpenGap
		p.add(RequestsFail, "requests of witness "+q.Witness+" succeed now", working,
			fmt.Sprintf("%d of %d failed since it started%s", q.Failed, q.Sent, suffix("; last error: ", q.LastError)))
	}
}

func (p *Plan) add(code diagnose.Code, name string, met bool, detail string) {
	p.Preconditions = append(p.Preconditions, Precondition{Code: code, Name: name, Met: met, Detail: detail})
}

func (p *Plan) step(node string) *PlannedStep {
	for i := range p.Steps {
		if p.Steps[i].Node == node {
			return &p.Steps[i]
		}
	}
	return nil
}

func (p *Plan) nodes() []string {
	var out []string
	for _, s := range p.Steps {
		out = append(out, s.Node)
	}
	return out
}

func either(met bool, then, otherwise string) string {
	if met {
		return then
	}
	return otherwise
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func suffix(lead, s string) string {
	if s == "" {
		return ""
	}
	return lead + s
}
