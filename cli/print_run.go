// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"time"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// States of a run.
const (
	runPlanned       = "planned"
	runRunning       = "running"
	runPaused        = "paused"
	runAborting      = "aborting"
	runDone          = "done"
	runRolledBack    = "rolled-back"
	runNeedsDecision = "needs-decision"
)

// codeCachesLag is the reason of a run that is done while caches lag; its exit code is that of done.
const codeCachesLag = "CACHES_LAG"

// run draws how a run stands or ended.
func (p *printer) run(r *vipmovev1.Run) {
	p.runHead(r)
	if len(r.GetSteps()) > 0 {
		p.WriteByte('\n')
		p.table(runTable(p, r))
	}
	p.field("requests", requestsSentence(r))
	if r.GetVerdictBefore() != "" {
		after := r.GetVerdictAfter()
		if after == "" {
			after = "not judged"
		}
		p.field("verdict", p.style.word(r.GetVerdictBefore())+" before, "+p.style.word(after)+" after")
	}
	if owner := r.GetAfter().GetOwner(); owner != "" {
		p.field("owner", withReason(owner, r.GetAfter().GetOwnerReason()))
	}
	p.findings(r.GetFindings())
}

func (p *printer) runHead(r *vipmovev1.Run) {
	p.field("run", r.GetRunId())
	p.field("VIP", r.GetVip())
	p.field("state", withReason(runState(r, p.style), withCode(r.GetReason(), r.GetReasonCode())))
	if r.GetState() == runRolledBack && !r.GetChanged() {
		p.field("changed", "nothing, at no moment")
	}
	p.field("next", r.GetNextStep())
	p.field("started", withReason(p.date(r.GetStartedAt()), by(r.GetStartedBy())))
	if r.GetEndedAt() != nil {
		p.field("took", span(r.GetEndedAt().AsTime().Sub(r.GetStartedAt().AsTime())))
	}
}

// runState is the state as it is said: a run that is done while old neighbour entries still lead to other nodes says so.
func runState(r *vipmovev1.Run, s style) string {
	word := s.word(r.GetState())
	if r.GetState() == runDone && r.GetReasonCode() == codeCachesLag {
		word += ", caches lag"
	}
	return word
}

func by(operator string) string {
	if operator == "" {
		return ""
	}
	return "by " + operator
}

// runTable has a row for every step, with the times that the report needs.
func runTable(p *printer, r *vipmovev1.Run) *table {
	t := newTable("NODE", "ROLE", "STATE", "REMOVED", "VERIFIED", "CONFIRMED", "DETAIL")
	for _, s := range r.GetSteps() {
		t.row(s.GetNode(), s.GetRole(), s.GetState(), p.clock(s.GetRemovedAt()), p.clock(s.GetVerifiedAt()), p.clock(s.GetConfirmedAt()), s.GetDetail())
	}
	return t
}

// requestsSentence gives failures with what their number proves; design section 6.
func requestsSentence(r *vipmovev1.Run) string {
	sent, failed := r.GetRequestsSent(), r.GetRequestsFailed()
	if sent == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%d failed of %d, longest gap %s; bounds the loss rate below %s at 95 %%",
		failed, sent, span(longestGap(r)), percent(lossBoundPercent(sent, failed)))
}

// longestGap between two successes, of the run or still open.
func longestGap(r *vipmovev1.Run) time.Duration {
	longest := r.GetLongestGap().AsDuration()
	for _, w := range r.GetRequests() {
		longest = max(longest, w.GetOpenGap().AsDuration())
	}
	return longest
}

func percent(p float64) string {
	switch {
	case p >= 10:
		return fmt.Sprintf("%.0f %%", p)
	case p >= 1:
		return fmt.Sprintf("%.1f %%", p)
	case p >= 0.1:
		return fmt.Sprintf("%.2f %%", p)
	}
	return fmt.Sprintf("%.3f %%", p)
}

// runs draws the list for status, newest last as the coordinator sends it.
func (p *printer) runs(all []*vipmovev1.Run) {
	if len(all) == 0 {
		p.line("no runs")
		return
	}
	t := newTable("RUN", "VIP", "STATE", "STEPS", "STARTED", "TOOK", "REQUESTS", "REASON")
	for _, r := range all {
		took := ""
		if r.GetEndedAt() != nil {
			took = span(r.GetEndedAt().AsTime().Sub(r.GetStartedAt().AsTime()))
		}
		requests := "not measured"
		if r.GetRequestsSent() > 0 {
			requests = fmt.Sprintf("%d failed of %d", r.GetRequestsFailed(), r.GetRequestsSent())
		}
		t.row(r.GetRunId(), r.GetVip(), runState(r, p.style), stepCount(r), p.date(r.GetStartedAt()), took, requests, withCode(r.GetReason(), r.GetReasonCode()))
	}
	p.table(t)
}

// stepCount is steps confirmed of steps planned.
func stepCount(r *vipmovev1.Run) string {
	confirmed := 0
	for _, s := range r.GetSteps() {
		if s.GetState() == stepConfirmed {
			confirmed++
		}
	}
	return fmt.Sprintf("%d of %d", confirmed, len(r.GetSteps()))
}
