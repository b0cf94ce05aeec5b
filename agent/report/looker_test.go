// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/agent/wire"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

var vip = addr("192.0.2.50")

// station is one host on the segment, with its kernel and its Looker.
type station struct {
	port   *wire.Port
	kernel *host.Fake
	looker *Looker
	mac    string
	rounds int
	own    int
}

// lan is n1, n2, n3 … on one segment, addresses 192.0.2.11 and on.
func lan(t *testing.T, n int) []*station {
	t.Helper()
	segment := wire.NewSegment()
	var all []*station
	for i := range n {
		s := &station{kernel: host.NewFake(), mac: "02:00:00:00:00:0" + string(rune('1'+i))}
		index := s.kernel.AddNIC("eth0", s.mac)
		own := netip.AddrFrom4([4]byte{192, 0, 2, byte(11 + i)})
		s.kernel.Hold("eth0", host.Address{Prefix: netip.PrefixFrom(own, 24)})
		mac, err := wire.ParseMAC(s.mac)
		if err != nil {
			t.Fatal(err)
		}
		s.port = segment.Join(wire.NIC{Name: "eth0", Index: index, MAC: mac})
		s.port.Answer(wire.KernelAnswers(own))
		s.looker = NewLooker(Config{
			Observer: "n" + string(rune('1'+i)), Kernel: s.kernel,
			Sockets:   func(wire.NIC) wire.Sockets { return s.port },
			OnRound:   func(_ wire.NIC, _ netip.Addr, r []wire.Result) { s.rounds += len(r) },
			OnCapture: func(_ wire.NIC, _ netip.Addr, own []wire.Frame) { s.own += len(own) },
		})
		all = append(all, s)
	}
	return all
}

func broadcast() *vipmovev1.Probe {
	return &vipmovev1.Probe{
		Interface: "eth0", Vip: vip.String(), Number: 3,
		Requests: []*vipmovev1.ProbeRequest{{Kind: vipmovev1.ProbeKind_PROBE_KIND_BROADCAST}},
	}
}

func senders(r *vipmovev1.Round) []string {
	var list []string
	for _, reply := range r.GetReplies() {
		list = append(list, reply.GetSenderMac())
	}
	slices.Sort(list)
	return list
}

func TestARoundTellsEveryResponderAndShowsThemAsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lan(t, 3)
		l[1].port.Answer(wire.KernelAnswers(vip))
		l[2].port.Answer(wire.KernelAnswers(vip), wire.AnnouncerAnswers(vip))
		var shown []string
		answer := l[0].looker.Probe(t.Context(), broadcast(), func(h *vipmovev1.ReplyHeard) {
			if h.GetInterface() != "eth0" || h.GetKind() != vipmovev1.ProbeKind_PROBE_KIND_BROADCAST {
				t.Errorf("shown as %v", h)
			}
			shown = append(shown, h.GetReply().GetSenderMac())
		})
		if len(answer.GetRounds()) != 1 {
			t.Fatalf("%d rounds", len(answer.GetRounds()))
		}
		r := answer.GetRounds()[0]
		// A kernel and a user-space announcer on n3 are two replies with one MAC.
		want := []string{l[1].mac, l[2].mac, l[2].mac}
		if diff := cmp.Diff(want, senders(r)); diff != "" {
			t.Errorf("replies (-want +got):\n%s", diff)
		}
		slices.Sort(shown)
		if diff := cmp.Diff(want, shown); diff != "" {
			t.Errorf("shown live (-want +got):\n%s", diff)
		}
		if !r.GetSent() || r.GetSendError() != "" || r.GetTruncated() || r.GetObserver() != "n1" || r.GetNumber() != 3 ||
			r.GetSenderIp() != "192.0.2.11" || r.GetWindow().AsDuration() != wire.DefaultWindow {
			t.Errorf("round %v", r)
		}
		if l[0].rounds != 1 {
			t.Errorf("OnRound heard of %d results", l[0].rounds)
		}
	})
}

func TestTheAnnouncerQuestionNamesTheAnnouncerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lan(t, 3)
		l[1].port.Answer(wire.KernelAnswers(vip))
		l[2].port.Answer(wire.AnnouncerAnswers(vip))
		question := func(mac string) *vipmovev1.ProbeRequest {
			return &vipmovev1.ProbeRequest{Kind: vipmovev1.ProbeKind_PROBE_KIND_ANNOUNCER_QUESTION, TargetMac: mac, SenderIp: "127.0.0.1"}
		}
		answer := l[0].looker.Probe(t.Context(), &vipmovev1.Probe{
			Interface: "eth0", Vip: vip.String(), Requests: []*vipmovev1.ProbeRequest{
				question(l[1].mac), question(l[2].mac),
				{Kind: vipmovev1.ProbeKind_PROBE_KIND_UNICAST, TargetMac: l[1].mac, SenderIp: "192.0.2.11"},
				{Kind: vipmovev1.ProbeKind_PROBE_KIND_ZERO_SENDER},
			},
		}, nil)
		got := map[string][]string{}
		for _, r := range answer.GetRounds() {
			got[r.GetKind().String()+" "+r.GetTargetMac()+" from "+r.GetSenderIp()] = senders(r)
		}
		want := map[string][]string{
			"PROBE_KIND_ANNOUNCER_QUESTION " + l[1].mac + " from 127.0.0.1": nil,
			"PROBE_KIND_ANNOUNCER_QUESTION " + l[2].mac + " from 127.0.0.1": {l[2].mac},
			"PROBE_KIND_UNICAST " + l[1].mac + " from 192.0.2.11":           {l[1].mac},
			"PROBE_KIND_ZERO_SENDER  from 0.0.0.0":                          {l[1].mac, l[2].mac},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("answers (-want +got):\n%s", diff)
		}
	})
}

func TestObserversHearEachOtherOrSayThatTheyDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lan(t, 3)
		hearing := []string{"192.0.2.1"} // an address that is nobody's here
		answers := make([]*vipmovev1.ProbeAnswer, 3)
		l[2].port.FailSend(errors.New("no buffer space available"))
		var all sync.WaitGroup
		for i, s := range l {
			all.Go(func() {
				<-time.After(time.Duration(i) * hearingLead / 3) // orders never come at the same time
				order := broadcast()
				order.HearingAddresses, order.HearingAsk = hearing, "192.0.2.1"
				answers[i] = s.looker.Probe(t.Context(), order, nil)
			})
		}
		all.Wait()
		for i, want := range [][]string{{l[1].mac}, {l[0].mac}, {l[0].mac, l[1].mac}} {
			r := answers[i].GetRounds()
			if len(r) != 1 {
				t.Fatalf("n%d: %d rounds, the hearing request is one of them", i+1, len(r))
			}
			slices.Sort(r[0].Heard)
			if diff := cmp.Diff(want, r[0].GetHeard()); diff != "" {
				t.Errorf("n%d heard (-want +got):\n%s", i+1, diff)
			}
		}
		if r := answers[2].GetRounds()[0]; r.GetSent() || !strings.Contains(r.GetSendError(), "no buffer space") {
			t.Errorf("a request that did not leave: %v", r)
		}
	})
}

// TestTheHearingRequestNeverSpoilsTheRound: what could only be refused is left out.
func TestTheHearingRequestNeverSpoilsTheRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, ask := range map[string]string{"own address": "192.0.2.11", "the VIP itself": vip.String(), "none": ""} {
			l := lan(t, 2)
			l[1].port.Answer(wire.KernelAnswers(vip))
			order := broadcast()
			order.HearingAsk = ask
			r := l[0].looker.Probe(t.Context(), order, nil).GetRounds()
			if len(r) != 1 || !r[0].GetSent() || len(r[0].GetReplies()) != 1 {
				t.Errorf("%s: rounds %v", name, r)
			}
		}
	})
}

func TestASensorThatCannotAskSaysSoForEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			spoil func(*station, *vipmovev1.Probe)
			says  string
		}{
			"no such NIC":         {func(_ *station, p *vipmovev1.Probe) { p.Interface = "eth7" }, "eth7"},
			"no address at all":   {func(s *station, _ *vipmovev1.Probe) { s.kernel.Drop("eth0", pre("192.0.2.11/24")) }, "no IPv4 address"},
			"somebody's address":  {func(_ *station, p *vipmovev1.Probe) { p.Requests[0].SenderIp = "192.0.2.12" }, "no address of this NIC"},
			"the VIP as sender":   {func(_ *station, p *vipmovev1.Probe) { p.Requests[0].SenderIp = vip.String() }, "no address of this NIC"},
			"no sender":           {func(_ *station, p *vipmovev1.Probe) { p.Requests[0].SenderIp = "x" }, "sender address"},
			"no VIP":              {func(_ *station, p *vipmovev1.Probe) { p.Vip = "" }, "address to ask for"},
			"IPv6":                {func(_ *station, p *vipmovev1.Probe) { p.Vip = "2001:db8::50" }, "2001:db8::50"},
			"no MAC":              {func(_ *station, p *vipmovev1.Probe) { p.Requests[0].TargetMac = "x" }, "MAC"},
			"no kind":             {func(_ *station, p *vipmovev1.Probe) { p.Requests[0].Kind = 0 }, "kind"},
			"an unknown kind":     {func(_ *station, p *vipmovev1.Probe) { p.Requests[0].Kind = 99 }, "kind"},
			"no hearing address":  {func(_ *station, p *vipmovev1.Probe) { p.HearingAddresses = []string{"x"} }, "hearing"},
			"no hearing question": {func(_ *station, p *vipmovev1.Probe) { p.HearingAsk = "x" }, "hearing"},
			"NIC down":            {func(s *station, _ *vipmovev1.Probe) { s.port.Fail(wire.ErrDown) }, "down"},
			"links unreadable": {func(s *station, _ *vipmovev1.Probe) {
				s.kernel.Break("links and addresses", host.ErrInterrupted)
			}, "could not be listed"},
		} {
			s, order := lan(t, 1)[0], broadcast()
			tt.spoil(s, order)
			r := s.looker.Probe(t.Context(), order, nil).GetRounds()
			if len(r) != 1 || r[0].GetSent() || !strings.Contains(r[0].GetSendError(), tt.says) {
				t.Errorf("%s: rounds %v, want one that says %q", name, r, tt.says)
			}
		}
	})
}

func TestOneProberPerNICKeepsTheBudget(t *testing.T) {
	l := lan(t, 1)[0]
	nic := l.port.NIC()
	first := l.looker.prober(nic)
	if l.looker.prober(nic) != first {
		t.Error("two probers for one NIC")
	}
	changed := nic
	changed.MAC[5]++
	if l.looker.prober(changed) == first || len(l.looker.probers) != 1 {
		t.Error("a NIC with another MAC is the same NIC, or both are kept")
	}
}

func TestACaptureTellsOwnRepliesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lan(t, 2)
		l[1].port.Answer(wire.KernelAnswers(vip))
		var captured *vipmovev1.CaptureAnswer
		var capture sync.WaitGroup
		capture.Go(func() {
			captured = l[1].looker.Capture(t.Context(), &vipmovev1.Capture{
				Interface: "eth0", Vip: vip.String(), Duration: durationpb.New(3 * time.Second),
			})
		})
		synctest.Wait()
		l[0].looker.Probe(t.Context(), broadcast(), nil)
		capture.Wait()
		out := captured.GetOutgoing()
		if !out.GetCaptured() || out.GetError() != "" || out.GetNode() != "n2" || len(out.GetReplies()) != 1 {
			t.Fatalf("captured %v", out)
		}
		if r := out.GetReplies()[0]; r.GetSenderMac() != l[1].mac || r.GetTargetMac() != l[0].mac || r.GetSenderIp() != vip.String() {
			t.Errorf("reply %v", r)
		}
		if l[1].own != 1 {
			t.Errorf("OnCapture heard of %d replies", l[1].own)
		}
	})
}

func TestACaptureThatWasNotWholeProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := &vipmovev1.Capture{Interface: "eth0", Vip: vip.String(), Duration: durationpb.New(time.Second)}
		s := lan(t, 1)[0]
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if out := s.looker.Capture(ctx, order).GetOutgoing(); out.GetCaptured() || out.GetError() == "" {
			t.Errorf("called off: %v", out)
		}
		s.port.Fail(wire.ErrDown)
		if out := s.looker.Capture(t.Context(), order).GetOutgoing(); out.GetCaptured() || !strings.Contains(out.GetError(), "down") {
			t.Errorf("NIC down: %v", out)
		}
		for _, bad := range []*vipmovev1.Capture{
			{Interface: "eth0", Vip: "x", Duration: durationpb.New(time.Second)},
			{Interface: "eth0", Vip: vip.String()},
			{Interface: "eth0", Vip: vip.String(), Duration: durationpb.New(time.Hour)},
			{Interface: "eth7", Vip: vip.String(), Duration: durationpb.New(time.Second)},
		} {
			if out := lan(t, 1)[0].looker.Capture(t.Context(), bad).GetOutgoing(); out.GetCaptured() || out.GetError() == "" {
				t.Errorf("%v: %v", bad, out)
			}
		}
	})
}

func TestReadingTheKernelStampsTheWallClock(t *testing.T) {
	s := lan(t, 1)[0]
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s.looker.cfg.Now = func() time.Time { return at }
	k, err := s.looker.ReadKernel(t.Context(), &vipmovev1.ReadKernel{Vips: []string{vip.String()}})
	if err != nil || !k.GetReadAt().AsTime().Equal(at) || len(k.GetLinks()) != 2 {
		t.Errorf("%v, %v", k, err)
	}
	if _, err := s.looker.ReadKernel(t.Context(), &vipmovev1.ReadKernel{Vips: []string{"x"}}); err == nil {
		t.Error("an address that is none: no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.looker.ReadKernel(ctx, &vipmovev1.ReadKernel{}); !errors.Is(err, context.Canceled) {
		t.Errorf("ctx ended: %v", err)
	}
}

func TestOnlyEthernetCanBeASensor(t *testing.T) { // CASES.md S5
	for _, l := range []host.Link{
		{Name: "ib0", Type: "infiniband", MAC: "00:11:22:33:44:55:66:77:88:99:aa:bb:cc:dd:ee:ff:00:11:22:33"},
		{Name: "odd0", Type: "ether", MAC: ""},
		{Name: "lo", Type: "loopback", MAC: "00:00:00:00:00:00"},
	} {
		if nic, err := NIC(l); !errors.Is(err, wire.ErrNotEthernet) || !strings.Contains(err.Error(), l.Name) {
			t.Errorf("%s: %v, %v", l.Name, nic, err)
		}
	}
}
