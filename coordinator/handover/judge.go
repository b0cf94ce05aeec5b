// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"time"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

// Check is the judgement of one look at a step. Not OK always carries a code and a sentence.
type Check struct {
	OK       bool
	Code     diagnose.Code
	Detail   string
	Verdict  string
	Carriers []string
}

// Look is what was seen for one judgement: a fresh snapshot, and what requests did since the mark.
type Look struct {
	Snapshot diagnose.Snapshot
	// Sent and Failed requests of all witnesses since the step began (baseline: since the run began).
	Sent, Failed uint64
	OpenGap      time.Duration // longest open gap of any witness
	Measured     bool          // a witness is connected and reported after the step began
	// Through are requests sent to this node's MAC: "any node can serve", measured.
	ThroughSent, ThroughSucceeded int
	ThroughError                  string
}

// maxOpenGap is how long a witness may be without a success before requests count as failing now.
const maxOpenGap = 2 * time.Second

func bad(code diagnose.Code, format string, args ...any) Check {
	return Check{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// JudgeBaseline decides whether a node's step may begin: it behaves as the plan said, something else
// answers, requests are fine, and the node serves. No evidence, no step (I1, I6).
func JudgeBaseline(r Run, node string, l Look) Check {
	step, ok := r.Step(node)
	if !ok {
		return bad(InvariantBroken, "node %s is not in the plan", node)
	}
	rep := diagnose.Judge(l.Snapshot)
	if c := judgeWorld(r, rep, l); !c.OK {
		return c
	}
	if c := judgeEntry(step, l.Snapshot, rep); !c.OK {
		return c
	}
	if c := judgeOthersAnswer(r, node, rep); !c.OK {
		return c
	}
	if c := judgeRequests(r, l); !c.OK {
		return c
	}
	if c := judgeThrough(node, l, "before its step"); !c.OK {
		return c
	}
	return Check{OK: true, Verdict: string(rep.Verdict)}
}

// judgeWorld holds what must be true of all other nodes at any look.
func judgeWorld(r Run, rep diagnose.Report, l Look) Check {
	for _, resp := range rep.Responders {
		if resp.Node == "" {
			return bad(diagnose.ForeignResponder, "a machine that is no known node answers for %s: %s", r.Plan.Options.VIP, resp.MAC)
		}
	}
	for _, s := range r.Steps {
		n := nodeOf(l.Snapshot, s.Node)
		if s.State != Confirmed || n == nil || n.Kernel == nil || len(n.Kernel.Incomplete) > 0 {
			continue // a cleaned node that cannot be read now is judged by the wire
		}
		if where := heldOn(n.Kernel, r); where != "" {
			return bad(AddressCameBack, "%s is on node %s again (%s) after its step was confirmed; something puts it back: look for kube-proxy there, then make a new plan", r.Plan.Options.VIP, s.Node, where)
		}
	}
	if rep.Verdict == diagnose.VerdictUnknown || rep.Verdict == diagnose.VerdictSplit {
		if !contains(r.Plan.Options.Overrides, diagnose.SplitView) || rep.Verdict == diagnose.VerdictUnknown {
			return bad(EvidenceUnknown, "the verdict is %s: %s", rep.Verdict, firstFinding(rep))
		}
	}
	return Check{OK: true}
}

// judgeEntry: the kernel still has exactly the reviewed tuple, in the same boot, and it behaves as planned.
func judgeEntry(s Step, snap diagnose.Snapshot, rep diagnose.Report) Check {
	n := nodeOf(snap, s.Node)
	switch {
	case n == nil || !n.Connected || n.Kernel == nil:
		return bad(EvidenceUnknown, "node %s could not be read", s.Node)
	case len(n.Kernel.Incomplete) > 0:
		return bad(EvidenceUnknown, "node %s was read in part only: %s", s.Node, n.Kernel.Incomplete[0])
	case n.Kernel.BootID != s.BootID:
		return bad(WorldChanged, "node %s was rebooted since the plan was made; make a new plan", s.Node)
	case !contains(n.Kernel.Addresses, s.Address):
		return bad(WorldChanged, "node %s no longer has exactly %s on %s as planned; make a new plan", s.Node, s.Address.Prefix, s.Address.Link)
	}
	for _, h := range rep.Holders {
		if h.Node == s.Node && h.Route == nil && h.Address == s.Address && h.State != s.Entry.State {
			return bad(WorldChanged, "%s on node %s was %s in the plan and is %s now (%s); make a new plan", s.Address.Prefix, s.Node, s.Entry.State, h.State, h.Reason)
		}
	}
	if s.Entry.State == diagnose.HolderStale && responder(rep, s.Node) == nil {
		return bad(EvidenceUnknown, "node %s should answer before its step and is not heard; its silence afterwards would prove nothing", s.Node)
	}
	return Check{OK: true}
}

// judgeOthersAnswer is the last-responder rule: never remove where nothing else would answer (I1).
func judgeOthersAnswer(r Run, node string, rep diagnose.Report) Check {
	if rep.Owner != "" && rep.Owner != r.Plan.Survivor {
		return bad(SurvivorMoved, "node %s answers the announcer question now, the plan says %s; make a new plan", rep.Owner, r.Plan.Survivor)
	}
	for _, f := range rep.Findings {
		if f.Code == diagnose.TwoAnnouncers {
			return bad(f.Code, "%s", f.Message)
		}
	}
	s := responder(rep, r.Plan.Survivor)
	if s == nil {
		return bad(LastResponder, "the survivor %s is not heard on the wire; removing %s from node %s could leave the address dark", r.Plan.Survivor, r.Plan.Options.VIP, node)
	}
	if s.AnswersQuestion || s.RepliesPerRequest >= 2 {
		return Check{OK: true}
	}
	return bad(LastResponder, "nothing proves that an announcer answers on %s: it is silent to the announcer question and sends one reply to a request; is the announcer running?", r.Plan.Survivor)
}

func judgeRequests(r Run, l Look) Check {
	o := r.Plan.Options
	switch {
	case o.NoWitness:
		return Check{OK: true}
	case !l.Measured:
		return bad(EvidenceUnknown, "no witness reports requests now; start it again, or plan with --no-witness")
	case l.Failed > o.MaxFailed:
		return bad(RequestBudget, "%d of %d requests failed, the budget is %d", l.Failed, l.Sent, o.MaxFailed)
	case l.OpenGap > maxOpenGap:
		return bad(RequestBudget, "no request has succeeded for %s", l.OpenGap.Round(time.Millisecond))
	}
	return Check{OK: true}
}

func judgeThrough(node string, l Look, when string) Check {
	if l.ThroughSent > 0 && l.ThroughSucceeded < l.ThroughSent {
		return bad(NodeDoesNotServe, "%d of %d requests sent to the MAC of node %s failed %s: %s", l.ThroughSent-l.ThroughSucceeded, l.ThroughSent, node, when, orElse(l.ThroughError, "no reason given"))
	}
	return Check{OK: true}
}

func responder(rep diagnose.Report, node string) *diagnose.Responder {
	for i := range rep.Responders {
		if rep.Responders[i].Node == node {
			return &rep.Responders[i]
		}
	}
	return nil
}

func firstFinding(rep diagnose.Report) string {
	for _, sev := range []diagnose.Severity{diagnose.Refuse, diagnose.Warn, diagnose.Info} {
		for _, f := range rep.Findings {
			if f.Severity == sev {
				return f.Message
			}
		}
	}
	return "no finding says why"
}

// heldOn says where the kernel still has the VIP on a planned link or as a local route; empty: nowhere.
func heldOn(k *diagnose.Kernel, r Run) string {
	vip := r.Plan.Options.VIP
	for _, a := range k.Addresses {
		for _, s := range r.Steps {
			if a.Prefix.Addr() == vip && a.Link == s.Address.Link {
				return fmt.Sprintf("%s on %s", a.Prefix, a.Link)
			}
		}
	}
	for _, rt := range k.Routes {
		if rt.Type == "local" && rt.Prefix.IsSingleIP() && rt.Prefix.Addr() == vip && !onOtherLink(k, rt, r) {
			return "a local route by " + rt.Link
		}
	}
	return ""
}

// onOtherLink: the route belongs to an address of a link that is not in the plan, which is not ours to judge.
func onOtherLink(k *diagnose.Kernel, rt diagnose.Route, r Run) bool {
	for _, a := range k.Addresses {
		if a.Prefix.Addr() == r.Plan.Options.VIP && a.Link == rt.Link {
			for _, s := range r.Steps {
				if s.Address.Link == a.Link {
					return false
				}
			}
			return true
		}
	}
	return false
}
