// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/handover"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// cachesWait is how long witnesses have to take an announcement in: they report twice a second.
const cachesWait = 3 * time.Second

// announce orders the survivor's announcement and looks whether witnesses followed it. The MAC is the one that it was
// heard to answer with just now, by the survivor's own inventory too.
func (d *driver) announce(ctx context.Context, p *progress, run handover.Run, f handover.Effect) handover.Event {
	event := handover.Event{Kind: handover.Announced, Node: f.Node}
	v := d.lastLook(p)
	if v == nil { // taken over since the verdict: look anew, as the verdict did
		q := stepQuery(run, "")
		q.Survivor = ""
		fresh, err := d.survey.look(ctx, q)
		if err != nil {
			event.Detail = "not announced: " + err.Error()
			return event
		}
		v = &fresh
	}
	said := "announced by " + f.Node
	if err := d.orderAnnounce(ctx, run, f.Node, *v); err != nil {
		said = "not announced: " + err.Error()
	} else {
		event.OK = true
	}
	c := d.caches(ctx, run, *v, true) // done and error: it may have left
	event.Code, event.Detail = c.Code, said+"; "+c.Detail
	return event
}

func (d *driver) orderAnnounce(ctx context.Context, run handover.Run, node string, v sight) error {
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	report := diagnose.Judge(v.snap)
	if report.Verdict != diagnose.VerdictSingle || report.Responders[0].Node != node {
		return fmt.Errorf("%s is not the one that answers", node)
	}
	r := report.Responders[0]
	fence, err := d.fence(run, node)
	if err != nil {
		return err
	}
	result, err := d.fleet.Do(ctx, node, &vipmovev1.Command{CommandId: d.survey.ids(), Order: &vipmovev1.Command_Announce{
		Announce: &vipmovev1.Announce{Fence: fence, Vip: run.Plan.Options.VIP.String(), Interface: r.Interface, Mac: strings.ToLower(r.MAC)}}}, nil)
	switch refusal := result.GetRefusal(); {
	case err != nil:
		return fmt.Errorf("%w; it may have announced", err)
	case refusal.GetCode() != vipmovev1.Refusal_NONE:
		return fmt.Errorf("%s refused (%s): %s", node, refusal.GetCode(), refusal.GetMessage())
	case result.GetError() != "":
		return fmt.Errorf("%s told of %d frames of 6: %s", node, result.GetAnnounce().GetSent(), result.GetError())
	case result.GetAnnounce().GetSent() == 0:
		return fmt.Errorf("%s gave no answer about it", node)
	}
	return nil
}

// caches judges the witnesses' neighbour entries; after an announcement it gives them a moment to follow.
func (d *driver) caches(ctx context.Context, run handover.Run, v sight, announced bool) handover.Check {
	for end := d.now().Add(cachesWait); ; pause(ctx, measurePause) {
		v.wire.Requests = d.fleet.Requests()
		again, err := d.survey.convert(v.wire, stepQuery(run, ""))
		if err != nil {
			return handover.Check{OK: true, Code: handover.CachesLag, Detail: "caches lag, as far as is known: " + err.Error()}
		}
		c := handover.JudgeCaches(run, again.snap)
		if c.Code == "" || !announced || !d.now().Before(end) || ctx.Err() != nil {
			return c
		}
	}
}
