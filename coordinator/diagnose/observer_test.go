// SPDX-License-Identifier: Apache-2.0

package diagnose_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

// calm is n1, n2 and a witness on one segment, all of whom hear each other; nobody answers yet.
func calm() diagnose.Snapshot {
	n2 := plain()
	n2.k.Links[1].MAC = mac(2)
	n2.k.Addresses[1].Prefix = netip.MustParsePrefix("192.0.2.12/24")
	s := diagnose.Snapshot{VIP: vip, Nodes: []diagnose.Node{named("n1", plain()), named("n2", n2), {Name: "client", Role: diagnose.RoleWitness, Connected: true,
		Kernel: &bare(diagnose.Link{Name: "lan", MAC: mac(0xc1)}).at("lan", "192.0.2.1/24", 0).k}}}
	s.Rounds = []diagnose.Round{
		ask("n1", "eth0", "192.0.2.11", mac(2), mac(0xc1)), ask("n2", "eth0", "192.0.2.12", mac(1), mac(0xc1)), ask("client", "lan", "192.0.2.1", mac(1), mac(2)),
	}
	return s
}

// ask is a broadcast request in a round in which others ask too.
func ask(observer, nic, sender string, heard ...string) diagnose.Round {
	return diagnose.Round{Observer: observer, Interface: nic, VIP: vip, Kind: diagnose.Broadcast, SenderIP: netip.MustParseAddr(sender),
		Number: 1, Sent: true, HearingExpected: true, Heard: heard}
}

func answered(r *diagnose.Round, macs ...string) {
	for _, m := range macs {
		r.Replies = append(r.Replies, diagnose.Reply{SenderMAC: m, EthSource: m, SenderIP: vip})
	}
}

func view(t *testing.T, r diagnose.Report, name string) diagnose.ObserverView {
	t.Helper()
	i := slices.IndexFunc(r.Observers, func(v diagnose.ObserverView) bool { return v.Observer == name })
	if i < 0 {
		t.Fatalf("no row for observer %s in %+v", name, r.Observers)
	}
	return r.Observers[i]
}

func has(r diagnose.Report, code diagnose.Code, severity diagnose.Severity) bool {
	return slices.ContainsFunc(r.Findings, func(f diagnose.Finding) bool { return f.Code == code && f.Severity == severity })
}

func TestWhatAnObserversSilenceIsWorth(t *testing.T) {
	const first = 0 // n1's round
	for _, tt := range []struct {
		name    string
		change  func(*diagnose.Snapshot)
		state   diagnose.ObserverState
		verdict diagnose.Verdict // of nobody answering
		caveat  string           // in its row
	}{
		{"it hears the others", func(*diagnose.Snapshot) {}, diagnose.ObserverHears, diagnose.VerdictNone, ""},
		{"it hears nothing while others broadcast (C25)", func(s *diagnose.Snapshot) { s.Rounds[first].Heard = nil }, diagnose.ObserverBlind, diagnose.VerdictNone, "unknown, not evidence"},
		{"nobody else broadcast, so nothing shows that it hears", func(s *diagnose.Snapshot) {
			s.Rounds = s.Rounds[:1]
			s.Rounds[first].Heard, s.Rounds[first].HearingExpected = nil, false
		}, diagnose.ObserverBlind, diagnose.VerdictUnknown, "nothing shows"},
		{"its request never left (S4)", func(s *diagnose.Snapshot) {
			s.Rounds[first].Sent, s.Rounds[first].SendError, s.Rounds[first].Heard = false, "no buffer space available", nil
		}, diagnose.ObserverCannotProbe, diagnose.VerdictNone, "no buffer space"},
		{"it has no session", func(s *diagnose.Snapshot) { s.Nodes[0].Connected, s.Rounds = false, s.Rounds[1:] }, diagnose.ObserverAway, diagnose.VerdictNone, "not connected"},
		{"it was not asked", func(s *diagnose.Snapshot) { s.Rounds = s.Rounds[1:] }, diagnose.ObserverIdle, diagnose.VerdictNone, "not asked"},
		{"it was asked about another address", func(s *diagnose.Snapshot) { s.Rounds[first].VIP = netip.MustParseAddr("192.0.2.51") }, diagnose.ObserverIdle, diagnose.VerdictNone, "not asked"},
		{"it asked on another segment", func(s *diagnose.Snapshot) { s.Rounds[first].Interface = "eth1" }, diagnose.ObserverIdle, diagnose.VerdictNone, "not asked"},
		{"it lost frames", func(s *diagnose.Snapshot) { s.Rounds[first].Dropped = 1 }, diagnose.ObserverHears, diagnose.VerdictNone, "lost frames"},
		{"all of them lost frames", func(s *diagnose.Snapshot) {
			for i := range s.Rounds {
				s.Rounds[i].Truncated = true
			}
		}, diagnose.ObserverHears, diagnose.VerdictUnknown, "lost frames"},
		{"it only asked with 0.0.0.0, which never wakes proxy ARP", func(s *diagnose.Snapshot) {
			s.Rounds[first].Kind, s.Rounds[first].SenderIP = diagnose.ZeroSender, netip.IPv4Unspecified()
		}, diagnose.ObserverHears, diagnose.VerdictNone, "no broadcast request"},
		{"all asked from outside the segment", func(s *diagnose.Snapshot) {
			for i := range s.Rounds {
				s.Rounds[i].SenderIP = netip.MustParseAddr("203.0.113.9")
			}
		}, diagnose.ObserverHears, diagnose.VerdictUnknown, "without a 0.0.0.0 probe"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := calm()
			tt.change(&s)
			r := diagnose.Judge(s)
			v := view(t, r, "n1")
			if v.State != tt.state || r.Verdict != tt.verdict || !strings.Contains(v.Detail, tt.caveat) || (tt.caveat == "") != (v.Detail == "") {
				t.Errorf("state %s, verdict %s, detail %q; want %s, %s, %q", v.State, r.Verdict, v.Detail, tt.state, tt.verdict, tt.caveat)
			}
		})
	}
}

// An observer whose machine has no inventory (a witness of an older version) still counts.
func TestObserverWithoutInventoryCounts(t *testing.T) {
	s := calm()
	s.Nodes[2].Kernel = nil
	answered(&s.Rounds[0], mac(2))
	answered(&s.Rounds[2], mac(2))
	r := diagnose.Judge(s)
	if r.Verdict != diagnose.VerdictSingle || view(t, r, "client").Interface != "lan" || has(r, diagnose.InventoryUnknown, diagnose.Refuse) {
		t.Errorf("verdict %s, row %+v", r.Verdict, view(t, r, "client"))
	}
	s.Nodes = s.Nodes[:2] // and one that the snapshot does not list at all
	if r = diagnose.Judge(s); r.Verdict != diagnose.VerdictSingle || view(t, r, "client").Replies[mac(2)] != 1 {
		t.Errorf("an observer that is not listed: verdict %s, row %+v", r.Verdict, view(t, r, "client"))
	}
}

// Only ordinary solicited requests make a verdict: not unicast, not the question, not another address.
func TestOnlyOrdinaryRequestsMakeAVerdict(t *testing.T) {
	s := calm()
	unicast := ask("n1", "eth0", "192.0.2.11", mac(2))
	unicast.Kind, unicast.TargetMAC = diagnose.Unicast, mac(2)
	answered(&unicast, mac(2))
	s.Rounds = append(s.Rounds, unicast)
	s.Rounds[0].Replies = []diagnose.Reply{{SenderMAC: mac(2), EthSource: mac(2), SenderIP: netip.MustParseAddr("192.0.2.12")}}
	if r := diagnose.Judge(s); r.Verdict != diagnose.VerdictNone || len(r.Responders) != 0 {
		t.Errorf("verdict %s with responders %+v, want none", r.Verdict, r.Responders)
	}
}

func TestRepliesAreCountedPerRequestAndTimed(t *testing.T) {
	s := calm()
	for _, after := range []time.Duration{900, 300, 1400} {
		s.Rounds[0].Replies = append(s.Rounds[0].Replies,
			diagnose.Reply{SenderMAC: strings.ToUpper(mac(2)), EthSource: mac(2), SenderIP: vip, After: after * time.Microsecond})
	}
	s.Rounds[2].Replies = []diagnose.Reply{{SenderMAC: mac(2), EthSource: mac(2), SenderIP: vip, After: time.Second}}
	r := diagnose.Judge(s)
	if len(r.Responders) != 1 || r.Responders[0].RepliesPerRequest != 3 || r.Responders[0].Fastest != 300*time.Microsecond || !slices.Equal(r.Responders[0].SeenBy, []string{"client", "n1"}) {
		t.Fatalf("responders %+v", r.Responders)
	}
	if v := view(t, r, "n1"); v.Replies[mac(2)] != 3 || v.Rounds != 1 {
		t.Errorf("row %+v", v)
	}
}
