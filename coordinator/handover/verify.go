// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"github.com/vipmove/vipmove/coordinator/diagnose"
)

// JudgeVerified decides whether a removal did what the plan said: in no listing, silent on the wire (or one
// reply fewer where an announcer runs), the VIP answered throughout, requests within budget.
func JudgeVerified(r Run, node string, l Look) Check {
	step, ok := r.Step(node)
	if !ok {
		return bad(InvariantBroken, "node %s is not in the plan", node)
	}
	rep := diagnose.Judge(l.Snapshot)
	if c := judgeGone(r, step, l.Snapshot); !c.OK {
		return c
	}
	if c := judgeWorld(r, rep, l); !c.OK {
		return c
	}
	if c := judgeSilent(r, step, rep); !c.OK {
		return c
	}
	if c := judgeRequests(r, l); !c.OK {
		return c
	}
	if c := judgeThrough(node, l, "after its address was removed: it serves only while it holds the address"); !c.OK {
		return c
	}
	return Check{OK: true, Verdict: string(rep.Verdict)}
}

// JudgeDwell decides at the end (and during) a dwell: still gone, requests within budget.
func JudgeDwell(r Run, node string, l Look) Check {
	step, ok := r.Step(node)
	if !ok {
		return bad(InvariantBroken, "node %s is not in the plan", node)
	}
	if c := judgeGone(r, step, l.Snapshot); !c.OK {
		return c
	}
	if c := judgeRequests(r, l); !c.OK {
		return c
	}
	return Check{OK: true}
}

// JudgeFinal decides whether the run is done: exactly one machine answers, the survivor, by its announcer.
func JudgeFinal(r Run, l Look) Check {
	rep := diagnose.Judge(l.Snapshot)
	c := judgeWorld(r, rep, l)
	c.Verdict = string(rep.Verdict)
	if !c.OK {
		return c
	}
	switch {
	case rep.Verdict != diagnose.VerdictSingle:
		c = bad(VerdictNotSingle, "every planned node is clean, and the verdict is %s: %s", rep.Verdict, firstFinding(rep))
	case rep.Responders[0].Node != r.Plan.Survivor:
		c = bad(SurvivorMoved, "%s answers, the plan's survivor was %s", rep.Responders[0].Node, r.Plan.Survivor)
	default:
		r.Plan.Options.MaxFailed *= uint64(len(r.Steps)) // the budget is per step, this looks at the whole run
		if c = judgeRequests(r, l); c.OK {
			c.Detail = "exactly one machine answers: " + r.Plan.Survivor
		}
	}
	c.Verdict = string(rep.Verdict)
	return c
}

// judgeGone: unknown is not absent, so only a full clean reading of the same boot proves it.
func judgeGone(r Run, s Step, snap diagnose.Snapshot) Check {
	n := nodeOf(snap, s.Node)
	switch {
	case n == nil || !n.Connected || n.Kernel == nil:
		return bad(EvidenceUnknown, "node %s could not be read after its step", s.Node)
	case len(n.Kernel.Incomplete) > 0:
		return bad(EvidenceUnknown, "node %s was read in part only after its step: %s", s.Node, n.Kernel.Incomplete[0])
	case n.Kernel.BootID != s.BootID:
		return bad(WorldChanged, "node %s was rebooted during its step", s.Node)
	}
	if where := heldOn(n.Kernel, r); where != "" {
		return bad(AddressCameBack, "%s is on node %s again (%s) although this run removed it; something puts it back: look for kube-proxy there", r.Plan.Options.VIP, s.Node, where)
	}
	return Check{OK: true}
}

// judgeSilent looks at the wire. A latent node was silent before, so the listing alone verifies it.
func judgeSilent(r Run, s Step, rep diagnose.Report) Check {
	survivor := responder(rep, r.Plan.Survivor)
	if survivor == nil {
		return bad(LastResponder, "the survivor %s is no longer heard", r.Plan.Survivor)
	}
	if n := hearing(rep, s.Node); n < 2 && s.Entry.State == diagnose.HolderStale {
		return bad(EvidenceUnknown, "%d observers besides node %s hear, two are needed", n, s.Node)
	}
	if s.Node != r.Plan.Survivor {
		if resp := responder(rep, s.Node); resp != nil && s.Entry.State == diagnose.HolderStale {
			return bad(StillAnswers, "node %s still answers (%s), heard by %d observers", s.Node, resp.Reason, len(resp.SeenBy))
		}
		return Check{OK: true}
	}
	if survivor.RepliesPerRequest > 1 {
		return bad(StillAnswers, "survivor %s still sends %d replies to one request", s.Node, survivor.RepliesPerRequest)
	}
	return Check{OK: true}
}

// hearing counts the observers besides a node that asked the whole segment and can hear.
func hearing(rep diagnose.Report, without string) int {
	n := 0
	for _, o := range rep.Observers {
		if o.State == diagnose.ObserverHears && o.Rounds > 0 && o.Observer != without {
			n++
		}
	}
	return n
}
