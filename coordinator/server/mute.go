// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// muteLength is the window that `owners --mute` declares for each node: the longest that an agent accepts. The
// mute is lifted as soon as its one round is over.
const muteLength = 2 * time.Second

// muteEach has one responder's kernel after the other mute for one round, and asks its MAC who remains. Never two at
// once: the others go on answering (I1). Witnesses do not ask: an answer would move their own neighbour entry.
func (s *surveyor) muteEach(ctx context.Context, q query, seg diagnose.Segment, panel []observer, v *sight) {
	again, err := s.convert(v.wire, q)
	if err != nil || !q.Mute {
		return // an error comes up again at the end of the look
	}
	report := diagnose.Judge(again.snap)
	panel = slices.DeleteFunc(slices.Clone(panel), func(o observer) bool { return o.quiet || isDeaf(report, o.name) })
	asks := map[string]int{} // so that no NIC spends its probe budget alone
	for _, r := range report.Responders {
		n := findNode(again.snap, r.Node)
		if n == nil || n.Role != diagnose.RoleAgent || ctx.Err() != nil {
			continue
		}
		askers := slices.DeleteFunc(slices.Clone(panel), func(o observer) bool { return o.name == r.Node })
		slices.SortStableFunc(askers, func(a, b observer) int { return asks[a.name] - asks[b.name] })
		askers = askers[:min(questioners, len(askers))]
		for _, o := range askers {
			asks[o.name]++
		}
		q.Progress(fmt.Sprintf("muting the kernel of %s for a moment, asking who remains", r.Node))
		v.wire.Rounds = append(v.wire.Rounds, s.muteOne(ctx, q, *n, strings.ToLower(r.MAC), askers)...)
	}
}

// muteOne mutes, asks, and lifts. What was heard counts only if the agent says that the mute held to the end.
func (s *surveyor) muteOne(ctx context.Context, q query, n diagnose.Node, mac string, askers []observer) []*vipmovev1.Round {
	probe := func(o observer) *vipmovev1.Probe {
		return &vipmovev1.Probe{Interface: o.nic, Vip: q.VIP.String(), Window: durationpb.New(s.questionWindow), Number: 1,
			Requests: []*vipmovev1.ProbeRequest{{Kind: vipmovev1.ProbeKind_PROBE_KIND_UNICAST, TargetMac: mac, SenderIp: o.address.String()}}}
	}
	rounds := make([][]*vipmovev1.Round, len(askers))
	void := func(why string) {
		for i, o := range askers {
			rounds[i] = unsent(o, probe(o), why)
		}
	}
	muted, refused, why := s.orderMute(ctx, n, q, muteLength)
	begun := s.now()
	if muted.GetMuted() {
		var wg sync.WaitGroup
		for i, o := range askers {
			wg.Go(func() { rounds[i] = s.probe(ctx, query{VIP: q.VIP}, o, probe(o)) })
		}
		wg.Wait()
	} else {
		void(why)
	}
	if refused {
		return underMute(askers, rounds)
	}
	lifted, _, why := s.orderMute(context.WithoutCancel(ctx), n, q, 0)
	if muted.GetMuted() && !lifted.GetHeld() {
		void("the mute had ended before the round did" + suffixed(why))
	}
	if lifted == nil { // mute or not: it ends by itself, and the next one waits for that (I1)
		pause(ctx, begun.Add(muteLength).Sub(s.now()))
	}
	return underMute(askers, rounds)
}

// underMute flattens the rounds and marks them: they are no part of who answers as things are.
func underMute(askers []observer, rounds [][]*vipmovev1.Round) []*vipmovev1.Round {
	var out []*vipmovev1.Round
	for i, list := range rounds {
		for _, r := range list {
			r.Observer, r.Muted = askers[i].name, true
			out = append(out, r)
		}
	}
	return out
}

func suffixed(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// orderMute orders a mute, or with no length its end. The sentence says why there is no answer; only refused means
// that nothing was done.
func (s *surveyor) orderMute(ctx context.Context, n diagnose.Node, q query, length time.Duration) (answer *vipmovev1.MuteAnswer, refused bool, why string) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	fence, err := s.fence(n.Name)
	if err != nil {
		return nil, true, err.Error()
	}
	fence.BootId = n.Kernel.BootID
	r, err := s.fleet.Do(ctx, n.Name, &vipmovev1.Command{CommandId: s.ids(), Order: &vipmovev1.Command_Mute{
		Mute: &vipmovev1.Mute{Fence: fence, Vip: q.VIP.String(), Duration: durationpb.New(length)}}}, nil)
	switch refusal := r.GetRefusal(); {
	case err != nil:
		return nil, false, err.Error()
	case refusal.GetCode() != vipmovev1.Refusal_NONE:
		return nil, true, fmt.Sprintf("%s refused (%s): %s", n.Name, refusal.GetCode(), refusal.GetMessage())
	case r.GetMute() == nil:
		return nil, false, n.Name + ": " + orText(r.GetError(), "no answer about its mute; is the agent older than the coordinator?")
	}
	return r.GetMute(), false, ""
}

// lookFence is the fence of an order that belongs to no run.
func (s *Server) lookFence(node string) (*vipmovev1.Fence, error) {
	boot, ok := s.fleet.Boottime(node)
	if !ok {
		return nil, fmt.Errorf("node %s has no session", node)
	}
	return &vipmovev1.Fence{JournalId: s.cfg.Journal.ID(), Term: s.cfg.Journal.Term(), Node: node, DeadlineBoottime: durationpb.New(boot + commandLife)}, nil
}
