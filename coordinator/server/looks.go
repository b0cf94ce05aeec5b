// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/handover"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

const (
	throughCount   = 3
	throughTimeout = 2 * time.Second
	measureWait    = 3 * time.Second
	measurePause   = 100 * time.Millisecond
)

func stepQuery(run handover.Run, node string) query {
	o := run.Plan.Options
	return query{VIP: o.VIP, Interface: o.Interface, Without: o.Without, Rounds: 1, Step: node, Survivor: run.Plan.Survivor}
}

// baseline looks at a node before its step. Its request counters begin here.
func (d *driver) baseline(ctx context.Context, p *progress, run handover.Run, f handover.Effect) handover.Event {
	q := stepQuery(run, f.Node)
	q.WhoElse = true
	return checkEvent(handover.Baselined, f, d.judge(ctx, run, q, d.stepBegins(p, f.Node), handover.JudgeBaseline))
}

// verify looks at a node after its step. A kernel stops answering with the delete itself, so one bad look is bad.
func (d *driver) verify(ctx context.Context, p *progress, run handover.Run, f handover.Effect) handover.Event {
	check := d.judge(ctx, run, stepQuery(run, f.Node), d.stepMarks(p, f.Node), handover.JudgeVerified)
	return d.byWhom(ctx, run, f, checkEvent(handover.VerifiedEv, f, check))
}

// byWhom tells an address that somebody put back from one that the node's own undo put back: its agent knows.
func (d *driver) byWhom(ctx context.Context, run handover.Run, f handover.Effect, e handover.Event) handover.Event {
	if e.Code != handover.AddressCameBack {
		return e
	}
	said := d.act(ctx, run, f, func(fence *vipmovev1.Fence) *vipmovev1.Command {
		return &vipmovev1.Command{Order: &vipmovev1.Command_Inquire{Inquire: &vipmovev1.Inquire{Fence: fence, RemoveCommandId: f.CommandID}}}
	})
	if said.Kind == handover.Answered && said.Answer == handover.AnswerRestored {
		return said
	}
	return e
}

func (d *driver) judge(ctx context.Context, run handover.Run, q query, since marks, judge func(handover.Run, string, handover.Look) handover.Check) handover.Check {
	v, err := d.survey.look(ctx, q)
	if err != nil {
		return handover.Check{Code: handover.EvidenceUnknown, Detail: err.Error()}
	}
	look := d.lookOf(ctx, run, v, func() delta { return since.since(d.fleet.Tallies(), d.now()) })
	d.through(ctx, run, q.Step, v, &look)
	return judge(run, q.Step, look)
}

// lookOf joins a snapshot with what requests did. Just after a take-over a witness may need a moment to
// come back; it gets one.
func (d *driver) lookOf(ctx context.Context, run handover.Run, v sight, requests func() delta) handover.Look {
	t := requests()
	for end := d.now().Add(measureWait); !t.measured && !run.Plan.Options.NoWitness && d.now().Before(end) && ctx.Err() == nil; {
		pause(ctx, measurePause)
		t = requests()
	}
	return handover.Look{Snapshot: v.snap, Sent: t.sent, Failed: t.failed, OpenGap: t.openGap, Measured: t.measured}
}

// through sends requests to the node's own MAC by a witness: "any node can serve" is measured, not assumed.
// Not measured counts as not shown, unless the operator goes without a witness.
func (d *driver) through(ctx context.Context, run handover.Run, node string, v sight, look *handover.Look) {
	seg, _ := diagnose.SegmentOf(v.snap)
	mac := macOf(v.snap, seg, node)
	if !run.Plan.Options.NoWitness {
		look.ThroughSent, look.ThroughError = 1, "no witness on the segment could send any"
	}
	for _, n := range v.snap.Nodes {
		if n.Role != diagnose.RoleWitness || !n.Connected || mac == "" || seg.Interfaces[n.Name] == "" {
			continue
		}
		a, why := d.sendThrough(ctx, n.Name, &vipmovev1.SendRequests{
			Interface: seg.Interfaces[n.Name], Vip: run.Plan.Options.VIP.String(), TargetMac: mac, NodeAddress: ownText(v.snap, seg, node)})
		if a == nil {
			look.ThroughSent, look.ThroughError = 1, "witness "+n.Name+": "+why
			continue // another one may be able to
		}
		look.ThroughSent, look.ThroughSucceeded = throughCount, int(a.GetSucceeded()) // what did not leave did not succeed
		look.ThroughError = orText(a.GetLastError(), fmt.Sprint(a.GetFailedByType()))
		return
	}
}

// ownText is the node's own address on the segment, for the witness to introduce itself with.
func ownText(snap diagnose.Snapshot, seg diagnose.Segment, node string) string {
	if n := findNode(snap, node); n != nil && n.Kernel != nil {
		if a := ownAddress(*n, seg.Interfaces[node], seg.Prefix, snap.VIP); a.IsValid() {
			return a.String()
		}
	}
	return ""
}

func (d *driver) sendThrough(ctx context.Context, witness string, order *vipmovev1.SendRequests) (*vipmovev1.SendRequestsAnswer, string) {
	ctx, cancel := context.WithTimeout(ctx, throughTimeout*throughCount+answerSlack)
	defer cancel()
	order.Count, order.Timeout = throughCount, durationpb.New(throughTimeout)
	r, err := d.fleet.Do(ctx, witness, &vipmovev1.Command{CommandId: d.survey.ids(), Order: &vipmovev1.Command_SendRequests{SendRequests: order}}, nil)
	if err != nil {
		return nil, err.Error()
	}
	return r.GetSendRequests(), orText(r.GetError(), "it gave no answer about its requests")
}

// dwell watches a verified node: still gone, requests fine, undo extended so that it cannot fire meanwhile.
func (d *driver) dwell(ctx context.Context, p *progress, run handover.Run, f handover.Effect) handover.Event {
	end := d.now().Add(f.Dwell)
	extended := time.Time{}
	for {
		if ttl := run.Plan.Options.TTL; d.now().Sub(extended) > ttl/3 {
			if e := d.extend(ctx, run, f); e != nil {
				return *e
			}
			extended = d.now()
		}
		check := d.dwellLook(ctx, p, run, f.Node)
		if !check.OK || !d.now().Before(end) || ctx.Err() != nil {
			return d.byWhom(ctx, run, f, checkEvent(handover.Dwelled, f, check))
		}
		pause(ctx, min(dwellLook, end.Sub(d.now())))
	}
}

// extend keeps the undo from firing. Any answer but "removed" is the step's new truth and goes to the machine.
func (d *driver) extend(ctx context.Context, run handover.Run, f handover.Effect) *handover.Event {
	e := d.act(ctx, run, f, func(fence *vipmovev1.Fence) *vipmovev1.Command {
		return &vipmovev1.Command{Order: &vipmovev1.Command_Extend{Extend: &vipmovev1.Extend{
			Fence: fence, RemoveCommandId: f.CommandID, Ttl: durationpb.New(run.Plan.Options.TTL)}}}
	})
	if e.Kind == handover.Answered && !e.PresentAgain && (e.Answer == handover.AnswerRemoved || e.Answer == handover.AnswerAlreadyAbsent) {
		return nil
	}
	return &e
}

func (d *driver) dwellLook(ctx context.Context, p *progress, run handover.Run, node string) handover.Check {
	q := stepQuery(run, node)
	wire := &vipmovev1.Snapshot{SchemaVersion: snapshot.SchemaVersion, Vip: q.VIP.String(), Interface: q.Interface}
	for _, n := range d.fleet.Nodes() {
		if n.Name == node {
			n.Kernel = d.survey.readKernel(ctx, node, q.VIP)
			wire.Nodes = append(wire.Nodes, n)
		}
	}
	v, err := d.survey.convert(wire, q)
	if err != nil {
		return handover.Check{Code: handover.EvidenceUnknown, Detail: err.Error()}
	}
	since := d.stepMarks(p, node)
	return handover.JudgeDwell(run, node, d.lookOf(ctx, run, v, func() delta { return since.since(d.fleet.Tallies(), d.now()) }))
}

// final takes the plan's three rounds again.
func (d *driver) final(ctx context.Context, p *progress, run handover.Run) handover.Event {
	q := stepQuery(run, "")
	q.Rounds, q.Survivor = planRounds, ""
	v, err := d.survey.look(ctx, q)
	if err != nil {
		return handover.Event{Kind: handover.FinalLooked, Code: handover.EvidenceUnknown, Detail: err.Error()}
	}
	d.setAfter(p, snapshot.ReportToProto(diagnose.Judge(v.snap), v.wire.GetTakenAt().AsTime()))
	c := handover.JudgeFinal(run, d.lookOf(ctx, run, v, func() delta { return d.totals(p) }))
	if c.OK && run.Announces() {
		d.setLastLook(p, &v)
	} else if c.OK {
		lag := d.caches(ctx, run, v, false)
		c.Code, c.Detail = lag.Code, c.Detail+"; "+lag.Detail
	}
	return handover.Event{Kind: handover.FinalLooked, OK: c.OK, Code: c.Code, Detail: c.Detail, Verdict: c.Verdict}
}

// carriers are where witnesses' kernels send frames for the VIP now; MACs are matched with the agents' own
// inventories.
func (d *driver) carriers(ctx context.Context, run handover.Run) []string {
	macs := map[string]bool{}
	for _, q := range d.fleet.Requests() {
		if q.GetNeighbourMac() != "" {
			macs[strings.ToLower(q.GetNeighbourMac())] = true
		}
	}
	if len(macs) == 0 {
		return nil
	}
	var out []string
	for _, n := range d.survey.readKernels(ctx, run.Plan.Options.VIP) {
		carries := func(l *vipmovev1.Link) bool { return macs[strings.ToLower(l.GetMac())] }
		if n.GetRole() == vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT && slices.ContainsFunc(n.GetKernel().GetLinks(), carries) {
			out = append(out, n.GetName())
		}
	}
	return out
}

func checkEvent(kind handover.EventKind, f handover.Effect, c handover.Check) handover.Event {
	return handover.Event{Kind: kind, Node: f.Node, CommandID: f.CommandID, OK: c.OK, Code: c.Code, Detail: c.Detail}
}
