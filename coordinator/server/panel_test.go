// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// scene is a snapshot of n nodes and the given witnesses, as it would be read.
func scene(t interface{ Fatal(...any) }, n int, witnesses ...string) diagnose.Snapshot {
	l := newLAN(n)
	for i, name := range witnesses {
		if name != "client" {
			l.add(name, 200+i, false)
		}
	}
	s := &vipmovev1.Snapshot{SchemaVersion: snapshot.SchemaVersion, Vip: testVIP}
	for i := 1; i <= n; i++ {
		name := fmt.Sprintf("n%d", i)
		s.Nodes = append(s.Nodes, &vipmovev1.Node{Name: name, Role: vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT, Connected: true, CanAct: true, Kernel: l.kernel(name)})
	}
	for _, name := range witnesses {
		k := l.kernel(name)
		k.Addresses = k.Addresses[:1]
		s.Nodes = append(s.Nodes, &vipmovev1.Node{Name: name, Role: vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS, Connected: true, Kernel: k})
	}
	for i := 1; i <= n; i++ { // heard by somebody on the segment
		r := &vipmovev1.Round{Observer: "n1", Interface: "eth0", Vip: testVIP, Kind: vipmovev1.ProbeKind_PROBE_KIND_BROADCAST, Sent: true, SenderIp: "192.0.2.11"}
		r.Replies = l.replies(l.hosts[fmt.Sprintf("n%d", i)], r.Kind)
		s.Rounds = append(s.Rounds, r)
	}
	snap, err := snapshot.FromProto(s)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

func TestWhoAsksTheWire(t *testing.T) {
	node := func(s *diagnose.Snapshot, name string) *diagnose.Node { return findNode(*s, name) }
	tests := []struct {
		name      string
		nodes     int
		witnesses []string
		edit      func(s *diagnose.Snapshot)
		q         query
		want      string // * asks the announcer question alone
	}{
		{"five agents at most, and witnesses beside them", 7, []string{"client"}, nil, query{}, "n1 n2 n3 n4 n5 client*"},
		{"two witnesses at most", 2, []string{"a", "b", "c"}, nil, query{}, "n1 n2 a* b*"},
		{"a witness asks everybody where there is but one agent", 1, []string{"client"}, nil, query{}, "n1 client"},
		{"three agents at a step", 7, []string{"client"}, nil, query{Step: "n4", Survivor: "n7"}, "n1 n2 n3 client*"},
		{"the node under the knife never", 7, nil, nil, query{Step: "n2", Survivor: "n7"}, "n1 n3 n4"},
		{"the survivor not before others", 4, []string{"client"}, nil, query{Step: "n4", Survivor: "n1"}, "n2 n3 n1 client*"},
		{"the survivor where nobody else is left", 2, []string{"client"}, nil, query{Step: "n1", Survivor: "n2"}, "n2 client"},
		{"the survivor under the knife", 3, nil, nil, query{Step: "n3", Survivor: "n3"}, "n1 n2"},
		{"nobody who is away", 3, nil, func(s *diagnose.Snapshot) { node(s, "n2").Connected = false }, query{}, "n1 n3"},
		{"nobody whose kernel is not known", 3, nil, func(s *diagnose.Snapshot) { node(s, "n1").Kernel = nil }, query{}, "n2 n3"},
		{"nobody who is on another segment", 3, nil, func(s *diagnose.Snapshot) {
			node(s, "n1").Kernel.Addresses[0].Prefix = netip.MustParsePrefix("198.51.100.11/24")
		}, query{}, "n2 n3"},
		{"never with the VIP as sender", 3, nil, func(s *diagnose.Snapshot) {
			node(s, "n1").Kernel.Addresses[0].Prefix = netip.MustParsePrefix(testVIP + "/24")
		}, query{}, "n2 n3"},
		{"nobody without an address of the segment's", 3, nil, func(s *diagnose.Snapshot) {
			s.Interface = "eth0"
			node(s, "n1").Kernel.Addresses = nil
		}, query{}, "n2 n3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := scene(t, tt.nodes, tt.witnesses...)
			if tt.edit != nil {
				tt.edit(&s)
			}
			seg, _ := diagnose.SegmentOf(s)
			var got []string
			for _, o := range choosePanel(s, seg, tt.q) {
				quiet := ""
				if o.quiet {
					quiet = "*"
				}
				got = append(got, o.name+quiet)
				if o.nic != "eth0" || !o.address.IsValid() || o.address.String() == testVIP {
					t.Errorf("%+v", o)
				}
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A sender that some node has no route to is not answered by it: that silence needs a 0.0.0.0 probe as well.
func TestAnObserverOutsideSomebodysSubnetAlsoAsksFromNowhere(t *testing.T) {
	s := scene(t, 3)
	findNode(s, "n3").Kernel.Addresses[0].Prefix = netip.MustParsePrefix("192.0.2.13/26") // has the VIP and n1 and n2
	seg, _ := diagnose.SegmentOf(s)
	for _, o := range choosePanel(s, seg, query{}) {
		if o.offLink {
			t.Errorf("%s is on everybody's link", o.name)
		}
	}
	findNode(s, "n1").Kernel.Addresses[0].Prefix = netip.MustParsePrefix("192.0.2.130/24") // n3 has no route to it
	for _, o := range choosePanel(s, seg, query{}) {
		if o.offLink != (o.name == "n1") {
			t.Errorf("%s off link: %v", o.name, o.offLink)
		}
	}
}

// Each responder is asked by two observers on other nodes, and no NIC has more to do than it must.
func TestTheAnnouncerQuestionIsShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, 39).Draw(t, "nodes") // the fortieth would have the VIP
		var witnesses []string
		if rapid.Bool().Draw(t, "witness") {
			witnesses = []string{"client"}
		}
		s := scene(t, nodes, witnesses...)
		seg, _ := diagnose.SegmentOf(s)
		panel := choosePanel(s, seg, query{})
		duty := shareQuestions(s, panel)
		asked := map[string]int{}
		most, least := 0, 1<<30
		for _, o := range panel {
			own := macOf(s, seg, o.name)
			if slices.Contains(duty[o.name], own) {
				t.Fatalf("%s asks itself", o.name)
			}
			for _, mac := range duty[o.name] {
				asked[mac]++
			}
			most, least = max(most, len(duty[o.name])), min(least, len(duty[o.name]))
		}
		for i := 1; i <= nodes; i++ {
			name := fmt.Sprintf("n%d", i)
			others := 0
			for _, o := range panel {
				others += boolInt(o.name != name)
			}
			if got, want := asked[macOf(s, seg, name)], min(questioners, others); got != want {
				t.Fatalf("%s is asked by %d observers, want %d", name, got, want)
			}
		}
		// A panel member cannot ask itself, so that one may have two less than another.
		if most-least > 2 {
			t.Fatalf("between %d and %d questions: %v", least, most, duty)
		}
	})
}

func TestAStrangerIsNotAskedTheQuestion(t *testing.T) {
	s := scene(t, 3)
	s.Rounds = append(s.Rounds, diagnose.Round{Observer: "n1", Interface: "eth0", VIP: s.VIP, Kind: diagnose.Broadcast, Sent: true,
		Replies: []diagnose.Reply{{SenderMAC: "02:00:00:00:00:63", EthSource: "02:00:00:00:00:63", SenderIP: s.VIP}}})
	seg, _ := diagnose.SegmentOf(s)
	for name, macs := range shareQuestions(s, choosePanel(s, seg, query{})) {
		if slices.Contains(macs, "02:00:00:00:00:63") {
			t.Errorf("%s asks a MAC that came from a frame alone", name)
		}
	}
}

// An observer that heard nothing, or could not ask, would prove nothing by what it does not hear.
func TestADeafObserverIsNotGivenQuestions(t *testing.T) {
	s := scene(t, 4)
	s.Rounds = append(s.Rounds,
		diagnose.Round{Observer: "n2", Interface: "eth0", VIP: s.VIP, Kind: diagnose.Broadcast, Sent: true, HearingExpected: true},
		diagnose.Round{Observer: "n3", Interface: "eth0", VIP: s.VIP, Kind: diagnose.Broadcast, SendError: "network is down"})
	seg, _ := diagnose.SegmentOf(s)
	duty := shareQuestions(s, choosePanel(s, seg, query{}))
	if len(duty["n2"]) != 0 || len(duty["n3"]) != 0 || len(duty["n1"]) != 3 || len(duty["n4"]) != 3 {
		t.Errorf("duty %v", duty)
	}
}

// What a NIC may send: five requests a second with a burst of ten; the segment, fifty a second.
func TestNobodySpendsMoreThanTheProbeBudget(t *testing.T) {
	inWorld(t, 7, func(t *testing.T, w *world) {
		if _, _, err := w.survey(&vipmovev1.SurveyRequest{Vip: testVIP, Rounds: 3}); err != nil {
			t.Fatal(err)
		}
		if r, _ := w.watch(w.begin(options())); r.GetState() != "done" {
			t.Fatal(r.GetState(), r.GetReason())
		}
		nics := w.withinBudget(t)
		if probes := w.lan.probes(); nics < 6 || probes < 7*2*3 {
			t.Errorf("%d probes on %d NICs: does this test still count them?", probes, nics)
		}
	})
}

// withinBudget holds all probes so far to the budget, and counts the NICs that sent any.
func (w *world) withinBudget(t *testing.T) int {
	t.Helper()
	w.lan.mu.Lock()
	defer w.lan.mu.Unlock()
	held, last, perSecond := map[string]float64{}, map[string]time.Time{}, map[int64]int{}
	for _, a := range w.lan.asked {
		if last[a.nic].IsZero() {
			held[a.nic] = 10
		} else {
			held[a.nic] = min(10, held[a.nic]+nicRate*a.at.Sub(last[a.nic]).Seconds())
		}
		last[a.nic] = a.at
		if held[a.nic] -= float64(a.n); held[a.nic] < 0 {
			t.Errorf("%s has to hold back %.1f requests at %s", a.nic, -held[a.nic], a.at)
		}
		perSecond[a.at.Unix()] += a.n
	}
	for second, n := range perSecond {
		if n > 50 {
			t.Errorf("%d requests on the segment in second %d", n, second)
		}
	}
	return len(last)
}

// What a probe asks for, by the fields that observers read.
func TestWhatARoundAsks(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		probes := make(chan *vipmovev1.Probe, 100)
		w.agents["n1"].answering(func(c *vipmovev1.Command) *vipmovev1.CommandResult {
			if p := c.GetProbe(); p != nil {
				probes <- p
			}
			return nil
		})
		if _, _, err := w.survey(&vipmovev1.SurveyRequest{Vip: testVIP, Window: durationpb.New(2 * time.Second)}); err != nil {
			t.Fatal(err)
		}
		round := <-probes
		if len(round.GetRequests()) != 1 || round.GetRequests()[0].GetKind() != vipmovev1.ProbeKind_PROBE_KIND_BROADCAST || round.GetRequests()[0].GetSenderIp() != "192.0.2.11" {
			t.Errorf("asked %v", round.GetRequests())
		}
		if round.GetInterface() != "eth0" || round.GetVip() != testVIP || round.GetWindow().AsDuration() != 2*time.Second || round.GetNumber() != 1 {
			t.Errorf("round %v", round)
		}
		if round.GetHearingAsk() != "192.0.2.12" || !slices.Equal(round.GetHearingAddresses(), []string{"192.0.2.11", "192.0.2.12", "192.0.2.13"}) {
			t.Errorf("hearing test: asks %s, listens for %v", round.GetHearingAsk(), round.GetHearingAddresses())
		}
		question := <-probes
		for _, q := range question.GetRequests() {
			if q.GetKind() != vipmovev1.ProbeKind_PROBE_KIND_ANNOUNCER_QUESTION || q.GetSenderIp() != "127.0.0.1" || q.GetTargetMac() == "" {
				t.Errorf("question %v", q)
			}
		}
		if question.GetWindow().AsDuration() != defaultQuestionWindow || len(probes) != 0 {
			t.Errorf("window %s, %d more probes", question.GetWindow().AsDuration(), len(probes))
		}
	})
}
