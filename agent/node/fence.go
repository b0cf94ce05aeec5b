// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"time"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// refuse makes a refusal with its reason and what to do next.
func refuse(code vipmovev1.Refusal_Code, next, format string, args ...any) *vipmovev1.Refusal {
	return &vipmovev1.Refusal{Code: code, Message: fmt.Sprintf(format, args...), NextStep: next}
}

// checkSender refuses orders from another journal, of a lower term, or for
// another node (I7). The term that has to be kept from now on is the fence's
// when nothing is refused. A zero Term obeys any journal.
func checkSender(term Term, node string, f *vipmovev1.Fence) *vipmovev1.Refusal {
	switch {
	case f.GetNode() != node:
		return refuse(vipmovev1.Refusal_WRONG_NODE, "compare --node of the agents: each needs its own name",
			"the order is for node %q, this is %q", f.GetNode(), node)
	case f.GetJournalId() == "":
		return refuse(vipmovev1.Refusal_OTHER_JOURNAL, "upgrade the coordinator: it must name its journal",
			"the order names no journal")
	case term.Journal != "" && term.Journal != f.GetJournalId():
		return refuse(vipmovev1.Refusal_OTHER_JOURNAL,
			"if the old coordinator is gone for good, run `vipmove-agent reset-term` on this node",
			"the order comes from journal %s, this agent obeys %s", f.GetJournalId(), term.Journal)
	case f.GetTerm() < term.Term:
		return refuse(vipmovev1.Refusal_STALE_TERM, "stop the coordinator that was replaced; the one of the higher term goes on",
			"the order is of term %d, this agent has obeyed term %d", f.GetTerm(), term.Term)
	}
	return nil
}

// checkBoot refuses orders for a node as it was before it booted.
func checkBoot(bootID string, f *vipmovev1.Fence) *vipmovev1.Refusal {
	if f.GetBootId() == bootID && bootID != "" {
		return nil
	}
	return refuse(vipmovev1.Refusal_WRONG_BOOT, "take a new snapshot and make a new plan: the node has booted since",
		"the order is for boot %q, this node runs boot %q", f.GetBootId(), bootID)
}

// checkDeadline refuses an order whose time is over; one without a deadline
// has none left.
func checkDeadline(now time.Duration, f *vipmovev1.Fence) *vipmovev1.Refusal {
	const next = "ask again with a new deadline in this agent's boot time"
	deadline := f.GetDeadlineBoottime()
	if deadline == nil {
		return refuse(vipmovev1.Refusal_LATE, next, "the order has no deadline")
	}
	if now <= deadline.AsDuration() {
		return nil
	}
	return refuse(vipmovev1.Refusal_LATE, next, "the order came %v after its deadline", now-deadline.AsDuration())
}

// checkPrepared refuses an order for anything but the entry that was stored
// for its run (I5). found tells whether there is one.
func checkPrepared(p Prepared, found bool, f *vipmovev1.Fence) *vipmovev1.Refusal {
	const next = "send Prepare for this run first"
	switch {
	case !found:
		return refuse(vipmovev1.Refusal_NOT_PREPARED, next, "no entry of run %q is stored on this node", f.GetRunId())
	case p.PlanHash != f.GetPlanHash():
		return refuse(vipmovev1.Refusal_NOT_PREPARED, next, "run %q was prepared with plan %q, the order names %q",
			p.RunID, p.PlanHash, f.GetPlanHash())
	case p.Step != f.GetStep():
		return refuse(vipmovev1.Refusal_NOT_PREPARED, next, "run %q was prepared for step %q, the order names %q",
			p.RunID, p.Step, f.GetStep())
	}
	return nil
}
