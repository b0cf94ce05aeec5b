// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/handover"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// address parses a VIP from an operator; every no names what was given and what to give instead.
func address(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		if _, perr := netip.ParsePrefix(s); perr == nil {
			return a, status.Errorf(codes.InvalidArgument, "%q is a prefix: give the address without a prefix length", s)
		}
		return a, status.Errorf(codes.InvalidArgument, "%q is no IP address: give the VIP in the form 192.0.2.50", s)
	case a.Is4In6():
		return a, status.Errorf(codes.InvalidArgument, "%q is an IPv4 address in IPv6 form: give it as %s", s, a.Unmap())
	case !a.Is4():
		return a, status.Errorf(codes.InvalidArgument, "%s is IPv6: this release looks at IPv4 only; of IPv6 nothing is known, which is not the same as nothing wrong", s)
	case a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return a, status.Errorf(codes.InvalidArgument, "%s cannot be a LoadBalancer address: give the VIP in the form 192.0.2.50", s)
	}
	return a, nil
}

// Bounds of a removal's time to live: shorter leaves no room to verify a step before its first extension;
// longer is more than an agent keeps (docs/design.md section 6).
const (
	shortestTTL = 10 * time.Second
	longestTTL  = 10 * time.Minute
)

// optionsFrom reads an operator's choices and fills in what was left open.
func optionsFrom(o *vipmovev1.PlanOptions) (handover.Options, error) {
	vip, err := address(o.GetVip())
	if err != nil {
		return handover.Options{}, err
	}
	for name, d := range map[string]*durationpb.Duration{"ttl": o.GetTtl(), "dwell": o.GetDwell(), "canary-soak": o.GetCanarySoak()} {
		if d != nil && (d.CheckValid() != nil || d.AsDuration() < 0) {
			return handover.Options{}, status.Errorf(codes.InvalidArgument, "--%s %s: give a time that is not negative", name, d.AsDuration())
		}
	}
	out := handover.Options{
		VIP: vip, Interface: o.GetInterface(), Canary: o.GetCanary(), Owner: o.GetOwner(), Without: o.GetWithout(),
		MaxParallel: int(o.GetMaxParallel()), TTL: o.GetTtl().AsDuration(), Dwell: o.GetDwell().AsDuration(),
		CanarySoak: o.GetCanarySoak().AsDuration(), MaxFailed: uint64(o.GetMaxFailed()), NoWitness: o.GetNoWitness(), Announce: o.GetAnnounce(),
	}
	for _, c := range o.GetOverrides() {
		out.Overrides = append(out.Overrides, diagnose.Code(c))
	}
	out = out.WithDefaults()
	switch {
	case out.TTL < shortestTTL:
		return out, status.Errorf(codes.InvalidArgument, "a TTL of %s is too short to verify a step in; give at least %s with --ttl", out.TTL, shortestTTL)
	case out.TTL > longestTTL:
		return out, status.Errorf(codes.InvalidArgument, "a TTL of %s is longer than agents keep an unconfirmed removal; give at most %s with --ttl", out.TTL, longestTTL)
	}
	return out, nil
}

// runTo writes a run as it stands; requests are the connected witnesses' own counts.
func runTo(v view, requests []*vipmovev1.Requests) *vipmovev1.Run {
	r := v.run
	out := &vipmovev1.Run{
		RunId: r.ID, Vip: r.Plan.Options.VIP.String(), PlanHash: r.Plan.Hash, State: string(r.State), Reason: r.Reason, ReasonCode: string(r.Code),
		NextStep: nextStep(r), Canary: r.Plan.Canary, Survivor: r.Plan.Survivor, StartedAt: stamp(r.StartedAt), EndedAt: stamp(r.EndedAt), Term: r.Term,
		StartedBy: r.StartedBy, VerdictBefore: r.Plan.VerdictBefore, VerdictAfter: r.Verdict, Doing: v.doing, Changed: r.Changed,
		Options: snapshot.OptionsToProto(r.Plan.Options), Revision: r.Revision, Requests: requests, After: v.after,
		RequestsSent: v.totals.sent, RequestsFailed: v.totals.failed,
	}
	if v.totals.longestGap > 0 {
		out.LongestGap = durationpb.New(v.totals.longestGap)
	}
	for _, s := range r.Steps {
		out.Steps = append(out.Steps, &vipmovev1.RunStep{
			Node: s.Node, State: string(s.State), Role: string(s.Role), Address: snapshot.AddressToProto(s.Address), RemovedAt: stamp(s.RemovedAt),
			VerifiedAt: stamp(s.VerifiedAt), ConfirmedAt: stamp(s.ConfirmedAt), Detail: s.Detail, CommandId: s.CommandID, Attempts: uint32(s.Attempt),
		})
	}
	return out
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// nextStep tells the operator what to do about a run that stopped.
func nextStep(r handover.Run) string {
	vip := r.Plan.Options.VIP
	switch r.State {
	case handover.Paused:
		return fmt.Sprintf("make a new plan: vipmove plan %s (this run can be aborted: vipmove abort %s)", vip, r.ID)
	case handover.NeedsDecision:
		return fmt.Sprintf("look who answers now: vipmove owners %s; put confirmed nodes back with: vipmove rollback %s; docs/findings.md explains %s", vip, r.ID, r.Code)
	case handover.Done:
		if r.Code == handover.CachesLag {
			return fmt.Sprintf("before a node is drained, look where clients and routers still send; the neighbour entry of a host goes with: ip neigh flush to %s. docs/findings.md explains %s", vip, r.Code)
		}
	case handover.RolledBack:
		return fmt.Sprintf("mend the cause (docs/findings.md explains %s), then make a new plan: vipmove plan %s", r.Code, vip)
	}
	return ""
}
