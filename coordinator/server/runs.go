// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vipmove/vipmove/coordinator/handover"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// keptPlans bounds the plans kept to tell what changed when a hash no longer fits.
const keptPlans = 32

// reviewed remembers the newest plans by hash. Losing them loses only that explanation.
type reviewed struct {
	mu    sync.Mutex
	order []string
	lines map[string][]string
}

func (r *reviewed) keep(p handover.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lines == nil {
		r.lines = map[string][]string{}
	}
	if _, known := r.lines[p.Hash]; known {
		return
	}
	r.lines[p.Hash] = p.HashedLines
	if r.order = append(r.order, p.Hash); len(r.order) > keptPlans {
		delete(r.lines, r.order[0])
		r.order = r.order[1:]
	}
}

// difference lists what the reviewed plan said (-) and what is so now (+).
func (r *reviewed) difference(hash string, now []string) string {
	r.mu.Lock()
	was, known := r.lines[hash]
	r.mu.Unlock()
	if !known {
		return "this coordinator does not know that plan any more"
	}
	var out []string
	for _, l := range was {
		if !slices.Contains(now, l) {
			out = append(out, "- "+l)
		}
	}
	for _, l := range now {
		if !slices.Contains(was, l) {
			out = append(out, "+ "+l)
		}
	}
	return strings.Join(out, "\n")
}

// MakePlan implements Control. It changes nothing.
func (c *control) MakePlan(ctx context.Context, req *vipmovev1.MakePlanRequest) (*vipmovev1.MakePlanResponse, error) {
	if _, err := operator(ctx); err != nil {
		return nil, err
	}
	plan, err := c.plan(ctx, req.GetOptions())
	if err != nil {
		return nil, err
	}
	c.reviewed.keep(plan)
	return &vipmovev1.MakePlanResponse{Plan: snapshot.PlanToProto(plan, c.now())}, nil
}

func (c *control) plan(ctx context.Context, o *vipmovev1.PlanOptions) (handover.Plan, error) {
	options, err := optionsFrom(o)
	if err != nil {
		return handover.Plan{}, err
	}
	if err := c.anyAgent(); err != nil {
		return handover.Plan{}, err
	}
	v, err := c.look(ctx, query{VIP: options.VIP, Interface: options.Interface, Without: options.Without, Rounds: planRounds})
	if err != nil {
		return handover.Plan{}, err
	}
	return handover.Make(v.snap, options), nil
}

// StartRun implements Control: the plan is made anew from fresh evidence and has to have the reviewed hash.
func (c *control) StartRun(ctx context.Context, req *vipmovev1.StartRunRequest) (*vipmovev1.StartRunResponse, error) {
	who, err := operator(ctx)
	if err != nil {
		return nil, err
	}
	if !c.starting.TryLock() {
		return nil, status.Error(codes.FailedPrecondition, "another run is being started")
	}
	defer c.starting.Unlock()
	if id := c.driver.active(); id != "" {
		return nil, underWay(id) // the loop decides; this spares the look
	}
	plan, err := c.plan(ctx, req.GetOptions())
	if err != nil {
		return nil, err
	}
	if !plan.Runnable() {
		return nil, notRunnable(plan)
	}
	if plan.Hash != req.GetPlanHash() {
		return nil, status.Errorf(codes.FailedPrecondition, "the world is not as reviewed: plan %s fits now, not %s; nothing was changed. Review it with `vipmove plan %s`. What changed:\n%s",
			plan.Hash, req.GetPlanHash(), plan.Options.VIP, c.reviewed.difference(req.GetPlanHash(), plan.HashedLines))
	}
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	id := fmt.Sprintf("%s-%04x", c.now().UTC().Format("20060102-150405"), rand.Uint32N(1<<16)) // ids sort by time
	whole := context.WithoutCancel(ctx)                                                        // a run that was made begins, whether its caller waits or not
	for _, e := range []handover.Event{
		{Kind: handover.Created, RunID: id, Plan: &plan, By: who.Name, Term: c.driver.journal.Term()},
		{Kind: handover.Started},
	} {
		if err := c.driver.order(whole, id, e); err != nil {
			return nil, err
		}
	}
	return &vipmovev1.StartRunResponse{RunId: id}, nil
}

// notRunnable lists what stands in the way, each with its next step.
func notRunnable(p handover.Plan) error {
	var why []string
	for _, c := range p.Preconditions {
		if !c.Met {
			why = append(why, fmt.Sprintf("%s: %s: %s", c.Code, c.Name, c.Detail))
		}
	}
	return status.Errorf(codes.FailedPrecondition, "the preconditions are not met; nothing was changed\n%s", strings.Join(why, "\n"))
}

// AbortRun implements Control. It returns when the order is durable, not when the run has ended.
func (c *control) AbortRun(ctx context.Context, req *vipmovev1.AbortRunRequest) (*vipmovev1.AbortRunResponse, error) {
	run, err := c.stop(ctx, req.GetRunId(), handover.AbortAsked)
	return &vipmovev1.AbortRunResponse{Run: run}, err
}

// RollbackRun implements Control.
func (c *control) RollbackRun(ctx context.Context, req *vipmovev1.RollbackRunRequest) (*vipmovev1.RollbackRunResponse, error) {
	run, err := c.stop(ctx, req.GetRunId(), handover.RollbackAsk)
	return &vipmovev1.RollbackRunResponse{Run: run}, err
}

func (c *control) stop(ctx context.Context, id string, kind handover.EventKind) (*vipmovev1.Run, error) {
	who, err := operator(ctx)
	if err != nil {
		return nil, err
	}
	if _, _, ok := c.driver.view(id); !ok {
		return nil, c.noRun(id)
	}
	if err := c.driver.order(ctx, id, handover.Event{Kind: kind, By: who.Name}); err != nil {
		return nil, err
	}
	v, _, _ := c.driver.view(id)
	return runTo(v, c.fleet.Requests()), nil
}
