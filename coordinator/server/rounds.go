// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// round sends one probe by every observer at once and collects the whole window.
func (s *surveyor) round(ctx context.Context, q query, panel []observer, number int, duty map[string][]string) []*vipmovev1.Round {
	var asking []observer
	var probes []*vipmovev1.Probe
	for _, o := range panel {
		p := &vipmovev1.Probe{Interface: o.nic, Vip: q.VIP.String(), Window: durationpb.New(q.Window), Number: uint32(number)}
		if !o.quiet {
			p.Requests = append(p.Requests, &vipmovev1.ProbeRequest{Kind: vipmovev1.ProbeKind_PROBE_KIND_BROADCAST, SenderIp: o.address.String()})
		}
		if !o.quiet && o.offLink {
			p.Requests = append(p.Requests, &vipmovev1.ProbeRequest{Kind: vipmovev1.ProbeKind_PROBE_KIND_ZERO_SENDER})
		}
		if p.Requests = append(p.Requests, questionsFor(duty[o.name])...); len(p.Requests) > 0 {
			asking, probes = append(asking, o), append(probes, p)
		}
	}
	return s.send(ctx, q, asking, probes)
}

// questions asks the announcer question alone, in a window of its own.
func (s *surveyor) questions(ctx context.Context, q query, panel []observer, number int, duty map[string][]string) []*vipmovev1.Round {
	var asking []observer
	var probes []*vipmovev1.Probe
	for _, o := range panel {
		if len(duty[o.name]) > 0 {
			asking = append(asking, o)
			probes = append(probes, &vipmovev1.Probe{Interface: o.nic, Vip: q.VIP.String(), Window: durationpb.New(s.questionWindow),
				Number: uint32(number), Requests: questionsFor(duty[o.name])})
		}
	}
	return s.send(ctx, q, asking, probes)
}

// testHearing has everyone that asks in one window also ask for another's own address, which no announcer
// consumes, and listen for all of those requests: whoever hears none of them cannot vouch for silence.
func testHearing(asking []observer, probes []*vipmovev1.Probe) {
	if len(asking) < 2 {
		return
	}
	for i, p := range probes {
		p.HearingAsk = asking[(i+1)%len(asking)].address.String()
		for _, other := range asking {
			p.HearingAddresses = append(p.HearingAddresses, other.address.String())
		}
	}
}

func questionsFor(macs []string) []*vipmovev1.ProbeRequest {
	var out []*vipmovev1.ProbeRequest
	for _, mac := range macs {
		out = append(out, &vipmovev1.ProbeRequest{Kind: vipmovev1.ProbeKind_PROBE_KIND_ANNOUNCER_QUESTION, TargetMac: mac, SenderIp: "127.0.0.1"})
	}
	return out
}

// send orders the probes and waits for all.
func (s *surveyor) send(ctx context.Context, q query, panel []observer, probes []*vipmovev1.Probe) []*vipmovev1.Round {
	testHearing(panel, probes)
	rounds := make([][]*vipmovev1.Round, len(panel))
	var wg sync.WaitGroup
	for i, o := range panel {
		wg.Go(func() { rounds[i] = s.probe(ctx, q, o, probes[i]) })
	}
	wg.Wait()
	return together(panel, rounds)
}

// probe has one observer ask. Where its answer is lost, or is not about what was asked, nothing was asked.
func (s *surveyor) probe(ctx context.Context, q query, o observer, p *vipmovev1.Probe) []*vipmovev1.Round {
	ctx, cancel := context.WithTimeout(ctx, p.Window.AsDuration()+budgetWait(p)+answerSlack)
	defer cancel()
	var heard func(*vipmovev1.ReplyHeard)
	if q.Heard != nil {
		heard = func(h *vipmovev1.ReplyHeard) { q.Heard(o.name, o.nic, h) }
	}
	r, err := s.fleet.Do(ctx, o.name, &vipmovev1.Command{CommandId: s.ids(), Order: &vipmovev1.Command_Probe{Probe: p}}, heard)
	switch rounds := r.GetProbe().GetRounds(); {
	case err != nil:
		return unsent(o, p, err.Error())
	case r.GetProbe() == nil:
		return unsent(o, p, orText(r.GetError(), "it gave no answer about its requests"))
	case len(rounds) != len(p.Requests):
		return unsent(o, p, fmt.Sprintf("it answered about %d requests of %d", len(rounds), len(p.Requests)))
	default:
		return rounds
	}
}

// budgetWait is how long the NIC's own budget may hold a probe's requests back; one more is the hearing test.
func budgetWait(p *vipmovev1.Probe) time.Duration {
	return time.Duration(len(p.Requests)+1) * time.Second / nicRate
}

// together flattens the rounds, names each by its session and notes who was there to be heard.
func together(panel []observer, rounds [][]*vipmovev1.Round) []*vipmovev1.Round {
	asked := map[string]bool{}
	for i, list := range rounds {
		for _, r := range list {
			r.Observer = panel[i].name
			asked[r.Observer] = asked[r.Observer] || r.Sent
		}
	}
	var out []*vipmovev1.Round
	for _, list := range rounds {
		for _, r := range list {
			for other, sent := range asked {
				r.HearingExpected = r.HearingExpected || sent && other != r.Observer
			}
			out = append(out, r)
		}
	}
	return out
}

func unsent(o observer, p *vipmovev1.Probe, why string) []*vipmovev1.Round {
	var out []*vipmovev1.Round
	for _, q := range p.Requests {
		out = append(out, &vipmovev1.Round{Observer: o.name, Interface: o.nic, Vip: p.Vip, Kind: q.Kind, TargetMac: q.TargetMac,
			SenderIp: q.SenderIp, Window: p.Window, Number: p.Number, SendError: why})
	}
	return out
}
