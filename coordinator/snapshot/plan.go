// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/handover"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// PlanToProto writes a plan with the judgement that it rests on, as that stood at the given time. A
// finding is overridden where the operator named its code and the plan lets that pass.
func PlanToProto(p handover.Plan, at time.Time) *vipmovev1.Plan {
	out := &vipmovev1.Plan{
		Hash: p.Hash, Options: OptionsToProto(p.Options), Judgement: ReportToProto(p.Report, at), Canary: p.Canary, CanaryReason: p.CanaryReason,
		Survivor: p.Survivor, SurvivorReason: p.SurvivorReason, LeftAlone: map[string]uint32{}, HashedLines: p.HashedLines, Runnable: p.Runnable(),
	}
	for node, n := range p.LeftAlone {
		out.LeftAlone[node] = uint32(n)
	}
	for _, s := range p.Steps {
		out.Steps = append(out.Steps, &vipmovev1.PlanStep{Node: s.Node, Address: AddressToProto(s.Address), State: string(s.State), Role: string(s.Role), Reason: s.Reason})
	}
	stands := map[diagnose.Code]bool{}
	for _, c := range p.Preconditions {
		out.Preconditions = append(out.Preconditions, &vipmovev1.Precondition{Name: c.Name, Met: c.Met, Detail: c.Detail, Code: string(c.Code)})
		stands[c.Code] = stands[c.Code] || !c.Met
	}
	for _, f := range out.GetJudgement().GetFindings() {
		for _, c := range p.Options.Overrides {
			f.Overridden = f.Overridden || f.Code == string(c) && f.Severity == string(diagnose.Refuse) && !stands[c]
		}
	}
	return out
}

// OptionsToProto writes what the operator chose for a plan.
func OptionsToProto(o handover.Options) *vipmovev1.PlanOptions {
	out := &vipmovev1.PlanOptions{
		Vip: text(o.VIP), Interface: o.Interface, Canary: o.Canary, Owner: o.Owner, Without: o.Without,
		MaxParallel: uint32(o.MaxParallel), Ttl: durationpb.New(o.TTL), Dwell: durationpb.New(o.Dwell),
		CanarySoak: durationpb.New(o.CanarySoak), MaxFailed: uint32(o.MaxFailed), NoWitness: o.NoWitness, Announce: o.Announce,
	}
	for _, c := range o.Overrides {
		out.Overrides = append(out.Overrides, string(c))
	}
	return out
}
