// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// States of a step.
const (
	stepPending   = "pending"
	stepConfirmed = "confirmed"
)

// liveRun is a run as the redrawn view shows it at now.
func liveRun(r *vipmovev1.Run, now time.Time, s style, zone *time.Location) []string {
	p := &printer{Buffer: new(bytes.Buffer), style: s, zone: zone}
	end := now
	if r.GetEndedAt() != nil {
		end = r.GetEndedAt().AsTime()
	}
	elapsed := ""
	if r.GetStartedAt() != nil {
		elapsed = ", " + span(max(0, end.Sub(r.GetStartedAt().AsTime())).Truncate(time.Second))
	}
	p.line("%s %s: %s%s", s.paint(sgrBold, r.GetRunId()), r.GetVip(), runState(r, s), elapsed)
	p.table(runTable(p, r))
	p.field("requests", liveRequests(r))
	p.field("now", r.GetDoing())
	p.field("reason", withCode(r.GetReason(), r.GetReasonCode()))
	return strings.Split(strings.TrimSuffix(p.String(), "\n"), "\n")
}

func liveRequests(r *vipmovev1.Run) string {
	if r.GetRequestsSent() == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%d sent, %d failed, longest gap %s", r.GetRequestsSent(), r.GetRequestsFailed(), span(longestGap(r)))
}

// runChanges says in plain lines what became different between two states of a run; before is nil at first.
func runChanges(before, r *vipmovev1.Run) []string {
	var lines []string
	was := map[string]*vipmovev1.RunStep{}
	for _, s := range before.GetSteps() {
		was[stepKey(s)] = s
	}
	for _, s := range r.GetSteps() {
		old := was[stepKey(s)]
		if old.GetState() == s.GetState() || (old == nil && s.GetState() == stepPending) {
			continue
		}
		lines = append(lines, stepLine(r, s))
	}
	if before.GetState() != r.GetState() {
		state := fmt.Sprintf("run %s is %s", r.GetRunId(), withReason(runState(r, style{}), withCode(r.GetReason(), r.GetReasonCode())))
		if stopped(r) {
			return append(lines, state)
		}
		lines = append([]string{state}, lines...)
	}
	if before.GetDoing() != r.GetDoing() && r.GetDoing() != "" {
		lines = append(lines, r.GetDoing())
	}
	return lines
}

// stepLine is one step's new state, with what requests cost so far once it is confirmed.
func stepLine(r *vipmovev1.Run, s *vipmovev1.RunStep) string {
	line := s.GetNode() + " " + s.GetState()
	if s.GetDetail() != "" {
		line += ": " + s.GetDetail()
	}
	if s.GetState() == stepConfirmed && r.GetRequestsSent() > 0 {
		line += "; requests " + liveRequests(r)
	}
	return line
}

// stepKey tells the steps of a run apart: a node may hold the address on two links.
func stepKey(s *vipmovev1.RunStep) string { return s.GetNode() + " " + addressText(s.GetAddress()) }
