// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/vipmove/vipmove/lab/prober"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// play is one performance of the story.
type play struct {
	*app
	stage   *stage
	story   io.Writer
	started time.Time
	report  demoReport
	facts   demoFacts
	runCode int // exit code of the run; exitPreconditions where the plan did not allow one
	planned bool
}

// probeWindow is how long the independent prober collects replies; proxy ARP may take 0.8 s.
const probeWindow = 1500 * time.Millisecond

// perform plays the acts in order. An error is of the machinery; what is off about the result is in facts.
func (p *play) perform(ctx context.Context) error {
	c, err := p.dial(&p.stage.conn)
	if err != nil {
		return err
	}
	defer c.Close()
	p.report.Nodes, p.report.VIP = p.stage.options.nodes, p.stage.VIP().String()
	p.facts = demoFacts{
		announcer: p.stage.Announcer(), clusterIPs: p.stage.options.clusterIPs, serveNeedsAddress: p.stage.options.serveNeedsAddress,
	}
	if err := p.before(ctx, c); err != nil {
		return err
	}
	plan, err := p.plan(ctx, c)
	if err != nil {
		return err
	}
	p.planned = plan.GetRunnable()
	p.runCode = exitPreconditions
	if p.planned {
		if err := p.runPlan(ctx, c, plan); err != nil {
			return err
		}
	}
	if err := p.after(ctx, c); err != nil {
		return err
	}
	p.report.DurationSeconds = p.now().Sub(p.started).Round(time.Millisecond).Seconds()
	p.tell("Summary", func(pr *printer) { pr.demoSummary(p.report) })
	return nil
}

// before shows who answers, by three means.
func (p *play) before(ctx context.Context, c *control) error {
	first, heard, err := p.stage.FirstReply(ctx, probeWindow)
	if err != nil {
		return err
	}
	replies, judgement, err := p.look(ctx, c)
	if err != nil {
		return err
	}
	p.report.VerdictBefore, p.report.RespondersBefore = judgement.GetVerdict(), len(replies)
	p.facts.productBefore, p.facts.proberBefore = productMACs(judgement), proberMACs(replies)
	p.facts.ownerBefore = judgement.GetOwner()
	p.tell("1. Who answers before", func(pr *printer) {
		if heard {
			pr.line("a tool that stops at the first reply hears 1: %s (%s); whoever it is, it says nothing of the other %d",
				p.stage.NodeOf(first.MAC), first.MAC, max(0, len(replies)-1))
		} else {
			pr.line("a tool that stops at the first reply hears nobody")
		}
		pr.line("an independent prober hears %s", count(len(replies), "responder"))
		pr.line("")
		pr.judgement(judgement)
	})
	return nil
}

func (p *play) plan(ctx context.Context, c *control) (*vipmovev1.Plan, error) {
	p.note("planning")
	response, err := c.MakePlan(ctx, &vipmovev1.MakePlanRequest{Options: p.options()})
	if err != nil {
		return nil, c.explain("planning for "+p.report.VIP, err)
	}
	plan := response.GetPlan()
	p.report.Canary, p.report.Owner = plan.GetCanary(), plan.GetSurvivor()
	next := p.call + " run " + p.report.VIP + " --plan " + plan.GetHash() + " (the demo does it now)"
	p.tell("2. The plan", func(pr *printer) { pr.planAlone(plan, next) })
	return plan, nil
}

func (p *play) options() *vipmovev1.PlanOptions { return &vipmovev1.PlanOptions{Vip: p.report.VIP} }

func (p *play) runPlan(ctx context.Context, c *control, plan *vipmovev1.Plan) error {
	started, err := c.StartRun(ctx, &vipmovev1.StartRunRequest{Options: p.options(), PlanHash: plan.GetHash()})
	if err != nil {
		return p.notStarted(ctx, c, p.report.VIP, err)
	}
	p.note("run %s started for %s", started.GetRunId(), p.report.VIP)
	r, err := p.watchUntil(ctx, c, started.GetRunId(), stopped)
	if err != nil {
		return err
	}
	p.runCode, p.facts.state = runExit(r), r.GetState()
	p.report.Order, p.report.Steps = beganSteps(r)
	p.tell("3. The run", func(pr *printer) { pr.run(r) })
	return nil
}

// after shows who answers now, what is left in the kernels, and what it cost.
func (p *play) after(ctx context.Context, c *control) error {
	replies, judgement, err := p.look(ctx, c)
	if err != nil {
		return err
	}
	p.report.VerdictAfter, p.report.RespondersAfter = judgement.GetVerdict(), len(replies)
	p.facts.productAfter, p.facts.proberAfter = productMACs(judgement), proberMACs(replies)
	p.facts.ownerAfter = judgement.GetOwner()
	left, err := p.stage.StaleAddresses()
	if err != nil {
		return err
	}
	p.report.AddressesLeft = make(map[string]int, len(left))
	for node, addresses := range left {
		p.report.AddressesLeft[node] = len(addresses)
	}
	p.tell("4. Who answers after", func(pr *printer) {
		pr.line("an independent prober hears %s", count(len(replies), "responder"))
		pr.line("")
		pr.judgement(judgement)
	})
	return p.countRequests(ctx, c)
}

// look asks both the product and the independent prober.
func (p *play) look(ctx context.Context, c *control) ([]prober.Reply, *vipmovev1.Judgement, error) {
	replies, err := p.stage.Responders(ctx, probeWindow)
	if err != nil {
		return nil, nil, err
	}
	judgement, err := p.survey(ctx, c, &vipmovev1.SurveyRequest{Vip: p.report.VIP})
	return replies, judgement, err
}

// countRequests takes the witness's totals once they cover this moment.
func (p *play) countRequests(ctx context.Context, c *control) error {
	asked := p.now()
	for p.now().Sub(asked) < connectPatience {
		r, err := c.ListNodes(ctx, &vipmovev1.ListNodesRequest{})
		if err != nil {
			return c.explain("counting requests", err)
		}
		for _, q := range r.GetRequests() {
			if q.GetAt().AsTime().After(asked) {
				p.report.Requests = requestFigures(q)
				return nil
			}
		}
		select {
		case <-time.After(connectPoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("counting requests: the witness reported nothing for %s", connectPatience)
}

func requestFigures(q *vipmovev1.Requests) demoRequests {
	longest := max(q.GetLongestGap().AsDuration(), q.GetOpenGap().AsDuration())
	return demoRequests{
		Sent: q.GetSent(), Failed: q.GetFailed(), LongestGapMs: float64(longest.Microseconds()) / 1000,
		LossBoundPercent: lossBoundPercent(q.GetSent(), q.GetFailed()),
	}
}

// tell prints one act of the story.
func (p *play) tell(title string, draw func(*printer)) {
	var b bytes.Buffer
	pr := p.printer(&b, p.story)
	pr.line("%s", pr.style.paint(sgrBold, "== "+title+" =="))
	inner := p.printer(new(bytes.Buffer), p.story)
	draw(inner)
	b.Write(inner.Bytes())
	b.WriteByte('\n')
	_, _ = p.story.Write(b.Bytes()) // the report, not the story, is the result
}
