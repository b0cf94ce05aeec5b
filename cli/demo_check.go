// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/vipmove/vipmove/lab/prober"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// demoFacts are what the report is held against: what the lab is known to be, and what the independent prober heard.
type demoFacts struct {
	announcer                   string // node that announces, known to the lab alone; "": none
	clusterIPs                  int
	serveNeedsAddress           bool
	state                       string // of the run at its end; "": there was none
	ownerBefore, ownerAfter     string // named by the product
	productBefore, proberBefore []string
	productAfter, proberAfter   []string // MACs, sorted
}

// off lists what is not as it must be, a sentence each. It is pure.
func (f demoFacts) off(r demoReport) []string {
	var off []string
	wrong := func(when bool, format string, args ...any) {
		if when {
			off = append(off, fmt.Sprintf(format, args...))
		}
	}
	wrong(!slices.Equal(f.productBefore, f.proberBefore), "before the run the product hears %s, the independent prober %s", list(f.productBefore), list(f.proberBefore))
	wrong(!slices.Equal(f.productAfter, f.proberAfter), "after the run the product hears %s, the independent prober %s", list(f.productAfter), list(f.proberAfter))
	wrong(r.RespondersBefore != r.Nodes, "%s answered before the run, the lab has %s", count(r.RespondersBefore, "responder"), count(r.Nodes, "node"))
	wrong(f.ownerBefore != f.announcer, "before the run the owner was said to be %s, it is %s", orText(f.ownerBefore, "none"), orText(f.announcer, "none"))
	wrong(r.Requests.Sent == 0, "no request was sent")
	if f.serveNeedsAddress || f.state == "" {
		return append(off, f.offUnchanged(r)...)
	}
	return append(off, f.offDone(r)...)
}

// offDone holds for a run that must end with exactly one responder.
func (f demoFacts) offDone(r demoReport) []string {
	var off []string
	wrong := func(when bool, format string, args ...any) {
		if when {
			off = append(off, fmt.Sprintf(format, args...))
		}
	}
	wrong(f.state != runDone, "the run ended %s", f.state)
	wrong(r.VerdictAfter != "single" || r.RespondersAfter != 1, "after the run the verdict is %s and %s answer, want single and 1", r.VerdictAfter, count(r.RespondersAfter, "responder"))
	wrong(f.ownerAfter != f.announcer, "after the run the owner is said to be %s, it is %s", orText(f.ownerAfter, "none"), orText(f.announcer, "none"))
	wrong(len(r.Order) != r.Nodes, "%s had their step, the lab has %s", count(len(r.Order), "node"), count(r.Nodes, "node"))
	if n := len(r.Order); n > 0 {
		wrong(r.Order[0] != r.Canary, "%s went first, the canary is %s", r.Order[0], orText(r.Canary, "none"))
		wrong(r.Order[n-1] != f.announcer, "%s went last, the survivor is %s", r.Order[n-1], orText(f.announcer, "none"))
	}
	before := demoStep{}
	for _, s := range r.Steps {
		wrong(s.RemovedAt == nil || s.VerifiedAt == nil || s.ConfirmedAt == nil, "the step of %s is not complete", s.Node)
		if s.RemovedAt != nil && before.ConfirmedAt != nil {
			wrong(*s.RemovedAt < *before.ConfirmedAt, "%s was changed before %s was confirmed", s.Node, before.Node)
		}
		before = s
	}
	wrong(r.Requests.Failed > 0, "%d of %d requests failed", r.Requests.Failed, r.Requests.Sent)
	return append(off, f.offAddresses(r, f.clusterIPs)...)
}

// offUnchanged holds where nothing may remain changed: the run was undone, or there was none.
func (f demoFacts) offUnchanged(r demoReport) []string {
	var off []string
	if f.serveNeedsAddress && f.state != "" && f.state != runRolledBack {
		off = append(off, fmt.Sprintf("the run ended %s although nodes serve only while they hold the address", f.state))
	}
	if !slices.Equal(f.proberBefore, f.proberAfter) {
		off = append(off, fmt.Sprintf("%s answered before and %s after, although nothing may remain changed", list(f.proberBefore), list(f.proberAfter)))
	}
	return append(off, f.offAddresses(r, f.clusterIPs+1)...)
}

// offAddresses holds every node's kube-ipvs0 to one count: only the VIP's /32 may go.
func (f demoFacts) offAddresses(r demoReport, want int) []string {
	var off []string
	if len(r.AddressesLeft) != r.Nodes {
		off = append(off, fmt.Sprintf("addresses were counted on %s, the lab has %s", count(len(r.AddressesLeft), "node"), count(r.Nodes, "node")))
	}
	for _, node := range sortedNames(r.AddressesLeft) {
		if got := r.AddressesLeft[node]; got != want {
			off = append(off, fmt.Sprintf("%s has %d addresses on kube-ipvs0, want %d", node, got, want))
		}
	}
	return off
}

func list(macs []string) string {
	if len(macs) == 0 {
		return "nobody"
	}
	return strings.Join(macs, " ")
}

// verdict ends the demo: the run's exit code, or what is off.
func (p *play) verdict() error {
	off := p.facts.off(p.report)
	if len(off) == 0 {
		return exitWith(p.runCode)
	}
	err := errors.New("demo: what is off:\n  " + strings.Join(off, "\n  "))
	if p.runCode != exitDone && !p.facts.serveNeedsAddress {
		return &exitError{code: p.runCode, err: err}
	}
	return &exitError{code: exitFailure, err: err}
}

func productMACs(j *vipmovev1.Judgement) []string {
	var macs []string
	for _, r := range j.GetResponders() {
		macs = append(macs, r.GetMac())
	}
	slices.Sort(macs)
	return slices.Compact(macs)
}

func proberMACs(replies []prober.Reply) []string {
	var macs []string
	for _, r := range replies {
		macs = append(macs, r.MAC.String())
	}
	slices.Sort(macs)
	return slices.Compact(macs)
}

// beganSteps are the steps that removed something, in the order in which they did.
func beganSteps(r *vipmovev1.Run) (order []string, steps []demoStep) {
	began := slices.DeleteFunc(slices.Clone(r.GetSteps()), func(s *vipmovev1.RunStep) bool { return s.GetRemovedAt() == nil })
	slices.SortStableFunc(began, func(a, b *vipmovev1.RunStep) int {
		return cmp.Compare(a.GetRemovedAt().AsTime().UnixNano(), b.GetRemovedAt().AsTime().UnixNano())
	})
	for _, s := range began {
		order = append(order, s.GetNode())
		steps = append(steps, demoStep{s.GetNode(), stampText(s.GetRemovedAt()), stampText(s.GetVerifiedAt()), stampText(s.GetConfirmedAt())})
	}
	return order, steps
}

// stampText has a fixed width, so that texts compare as times do.
func stampText(t *timestamppb.Timestamp) *string {
	if t == nil {
		return nil
	}
	text := t.AsTime().UTC().Format("2006-01-02T15:04:05.000000Z")
	return &text
}
