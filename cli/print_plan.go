// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"
	"strings"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// plan draws what would be done, why in this order, what is left alone, and whether it may be done. next is the command
// line that does it.
func (p *printer) plan(plan *vipmovev1.Plan, next string) {
	p.verdict(plan.GetJudgement())
	p.findings(plan.GetJudgement().GetFindings())
	p.planAlone(plan, next)
}

// planAlone is the plan without the judgement that it rests on.
func (p *printer) planAlone(plan *vipmovev1.Plan, next string) {
	p.title("Steps, in this order")
	p.steps(plan.GetSteps())
	p.field("canary", withReason(orText(plan.GetCanary(), "none"), plan.GetCanaryReason()))
	p.field("survivor", withReason(orText(plan.GetSurvivor(), "none"), plan.GetSurvivorReason()))
	p.field("left alone", leftAlone(plan.GetLeftAlone()))
	p.field("budgets", budgets(plan.GetOptions()))
	p.preconditions(plan.GetPreconditions())
	p.title("Plan " + plan.GetHash())
	if plan.GetRunnable() {
		p.line("next: %s", next)
		return
	}
	p.line("%s: no run will start from this plan, nothing was changed; see what is not met, then plan again", p.style.paint(sgrRed, "not runnable"))
}

func (p *printer) steps(steps []*vipmovev1.PlanStep) {
	if len(steps) == 0 {
		p.line("none: no kernel holds the address on a link that may be changed")
		return
	}
	t := newTable("#", "NODE", "ROLE", "REMOVES", "STATE", "REASON")
	for i, s := range steps {
		t.row(strconv.Itoa(i+1), s.GetNode(), s.GetRole(), addressText(s.GetAddress()), s.GetState(), s.GetReason())
	}
	p.table(t)
}

// addressText names an address as errors do.
func addressText(a *vipmovev1.Address) string {
	if a.GetPrefix() == "" {
		return ""
	}
	return a.GetPrefix() + " on " + a.GetLink()
}

// leftAlone says how many other addresses each node keeps.
func leftAlone(byNode map[string]uint32) string {
	if len(byNode) == 0 {
		return ""
	}
	return "other addresses on the same link: " + groupedByCount(byNode)
}

// groupedByCount names every node with its count, in few words where the nodes are alike.
func groupedByCount(byNode map[string]uint32) string {
	var groups []uint32
	nodes := map[uint32][]string{}
	for _, node := range sortedNames(byNode) {
		n := byNode[node]
		if len(nodes[n]) == 0 {
			groups = append(groups, n)
		}
		nodes[n] = append(nodes[n], node)
	}
	var parts []string
	for _, n := range groups {
		parts = append(parts, fmt.Sprintf("%d on %s", n, strings.Join(nodes[n], ",")))
	}
	return strings.Join(parts, "; ")
}

// budgets says what the plan's hash covers beside the addresses.
func budgets(o *vipmovev1.PlanOptions) string {
	var parts []string
	add := func(label, value string) {
		if value != "" {
			parts = append(parts, label+" "+value)
		}
	}
	add("TTL", spanOf(o.GetTtl()))
	add("dwell", spanOf(o.GetDwell()))
	add("canary soak", spanOf(o.GetCanarySoak()))
	if o.GetMaxParallel() > 0 {
		add("nodes at a time", strconv.Itoa(int(o.GetMaxParallel())))
	}
	add("failed requests a step may cost", strconv.Itoa(int(o.GetMaxFailed())))
	add("without", strings.Join(o.GetWithout(), ","))
	add("overridden", strings.Join(o.GetOverrides(), ","))
	if o.GetNoWitness() {
		parts = append(parts, "requests: not measured")
	}
	return strings.Join(parts, ", ")
}

func (p *printer) preconditions(all []*vipmovev1.Precondition) {
	if len(all) == 0 {
		return
	}
	p.title("Preconditions")
	t := newTable("MET", "PRECONDITION", "DETAIL")
	for _, c := range all {
		met := "ok"
		if !c.GetMet() {
			met = "NOT MET"
		}
		t.row(met, c.GetName(), withCode(c.GetDetail(), c.GetCode()))
	}
	p.table(t)
}
