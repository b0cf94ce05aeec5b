// SPDX-License-Identifier: Apache-2.0

package diagnose_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

// muted is the story's segment with three nodes that hold the VIP. announcer, if not 0, sends a reply of its own to every ordinary
// request and is silent to the announcer question: it checks senders.
func muted(announcer int, edit func(*diagnose.Snapshot)) diagnose.Report {
	zero := func() diagnose.Sysctls {
		n := func() *int { return number(0) }
		return diagnose.Sysctls{ArpIgnore: n(), ArpFilter: n(), ProxyArp: n(), RpFilter: n(), RouteLocalnet: n(), AcceptLocal: n(), Forwarding: n()}
	}
	s := diagnose.Snapshot{VIP: vip}
	for i := 1; i <= 3; i++ {
		s.Nodes = append(s.Nodes, diagnose.Node{Name: fmt.Sprintf("n%d", i), Role: diagnose.RoleAgent, Connected: true, CanAct: true, Kernel: &diagnose.Kernel{
			BootID: "boot", All: zero(), IPForward: number(0), IPVS: diagnose.IPVS{State: diagnose.IPVSAbsent}, KubeProxy: diagnose.KubeProxy{State: diagnose.KubeProxyAbsent},
			Links: []diagnose.Link{
				{Name: "eth0", Index: 2, Type: "ether", MAC: mac(i), Up: true, Carrier: true, Flags: 0x43, Sysctls: zero()},
				{Name: "kube-ipvs0", Index: 3, Kind: "dummy", Type: "ether", Sysctls: zero()},
			},
			Addresses: []diagnose.Address{
				{Link: "eth0", LinkIndex: 2, Prefix: netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", 10+i))},
				{Link: "kube-ipvs0", LinkIndex: 3, Prefix: netip.MustParsePrefix("192.0.2.50/32")},
			},
		}})
	}
	reply := func(i int) diagnose.Reply {
		return diagnose.Reply{SenderMAC: mac(i), EthSource: mac(i), SenderIP: vip}
	}
	for o := 1; o <= 3; o++ {
		own := netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 10+o))
		all := diagnose.Round{Observer: fmt.Sprintf("n%d", o), Interface: "eth0", VIP: vip, Kind: diagnose.Broadcast, SenderIP: own, Number: 1, Sent: true,
			HearingExpected: true, Heard: []string{mac(o%3 + 1)}}
		for i := 1; i <= 3; i++ {
			if i == o {
				continue
			}
			all.Replies = append(all.Replies, reply(i))
			one := diagnose.Round{Observer: all.Observer, Interface: "eth0", VIP: vip, TargetMAC: mac(i), Number: 1, Sent: true}
			question, under := one, one
			question.Kind, question.SenderIP = diagnose.AnnouncerQuestion, netip.MustParseAddr("127.0.0.1")
			under.Kind, under.SenderIP, under.Muted = diagnose.Unicast, own, true
			if i == announcer {
				under.Replies = []diagnose.Reply{reply(i)}
			}
			s.Rounds = append(s.Rounds, question, under)
		}
		s.Rounds = append(s.Rounds, all)
	}
	if edit != nil {
		edit(&s)
	}
	return diagnose.Judge(s)
}

func responderOf(t *testing.T, r diagnose.Report, node string) diagnose.Responder {
	t.Helper()
	for _, x := range r.Responders {
		if x.Node == node {
			return x
		}
	}
	t.Fatalf("%s does not answer: %+v", node, r.Responders)
	return diagnose.Responder{}
}

func TestWhoGoesOnWithItsKernelMuteIsTheOwner(t *testing.T) {
	r := muted(2, nil)
	if r.Owner != "n2" || !strings.Contains(r.OwnerReason, "mute") {
		t.Errorf("owner %q: %s", r.Owner, r.OwnerReason)
	}
	n2 := responderOf(t, r, "n2")
	if n2.Muted != diagnose.RemainsAnswering || n2.Announcer != diagnose.AnnouncerBoth || !strings.Contains(n2.Reason, "heard by n1 and n3") {
		t.Errorf("n2: %+v", n2)
	}
	n1 := responderOf(t, r, "n1")
	if n1.Muted != diagnose.RemainsSilent || n1.Announcer != diagnose.AnnouncerKernel || !strings.Contains(n1.Reason, "stale") || !strings.Contains(n1.Reason, "silent with its kernel mute") {
		t.Errorf("n1: %+v", n1)
	}
}

func TestAMuteIsNoPartOfWhoAnswersAsThingsAre(t *testing.T) {
	with := muted(2, nil)
	without := muted(2, func(s *diagnose.Snapshot) { s.Rounds = slicesWithout(s.Rounds) })
	if with.Verdict != without.Verdict || len(with.Responders) != 3 || len(without.Responders) != 3 {
		t.Errorf("verdict %s with, %s without", with.Verdict, without.Verdict)
	}
	for i := range with.Observers {
		if with.Observers[i].Rounds != without.Observers[i].Rounds || with.Observers[i].Replies[mac(1)] != without.Observers[i].Replies[mac(1)] {
			t.Errorf("observer with %+v, without %+v", with.Observers[i], without.Observers[i])
		}
	}
	if without.Owner != "" || responderOf(t, without, "n2").Muted != "" {
		t.Errorf("without a mute: owner %q", without.Owner)
	}
}

func slicesWithout(rounds []diagnose.Round) []diagnose.Round {
	var out []diagnose.Round
	for _, r := range rounds {
		if !r.Muted {
			out = append(out, r)
		}
	}
	return out
}

// Silence under a mute counts only where it was heard by somebody who hears, and all the while (I6).
func TestAMuteProvesNoOwnerWhileAnotherIsNotExcluded(t *testing.T) {
	on := func(target int, change func(*diagnose.Round)) func(*diagnose.Snapshot) {
		return func(s *diagnose.Snapshot) {
			for i := range s.Rounds {
				if s.Rounds[i].Muted && s.Rounds[i].TargetMAC == mac(target) {
					change(&s.Rounds[i])
				}
			}
		}
	}
	for name, edit := range map[string]func(*diagnose.Snapshot){
		"the mute of n1 did not hold":    on(1, func(r *diagnose.Round) { r.Sent, r.SendError = false, "the mute ended before the round did" }),
		"n1's agent refused":             on(1, func(r *diagnose.Round) { r.Sent, r.SendError = false, "MUTE_UNSUPPORTED" }),
		"frames were lost":               on(1, func(r *diagnose.Round) { r.Dropped = 1 }),
		"n1 was not muted":               on(1, func(r *diagnose.Round) { r.Muted, r.Kind = false, diagnose.Unicast }),
		"a reply for another address":    on(2, func(r *diagnose.Round) { r.Replies[0].SenderIP = netip.MustParseAddr("192.0.2.51") }),
		"a reply of another MAC":         on(2, func(r *diagnose.Round) { r.Replies[0].SenderMAC = mac(9) }),
		"two remain":                     on(1, func(r *diagnose.Round) { r.Replies = []diagnose.Reply{{SenderMAC: mac(1), SenderIP: vip}} }),
		"the question was not put to n3": func(s *diagnose.Snapshot) { dropQuestions(s, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			if r := muted(2, edit); r.Owner != "" || r.OwnerReason == "" {
				t.Errorf("owner %q: %s", r.Owner, r.OwnerReason)
			}
		})
	}
	two := muted(2, on(1, func(r *diagnose.Round) { r.Replies = []diagnose.Reply{{SenderMAC: mac(1), SenderIP: vip}} }))
	found := false
	for _, f := range two.Findings {
		found = found || f.Code == diagnose.TwoAnnouncers
	}
	if !found {
		t.Errorf("two announcers remain and nobody says so: %+v", two.Findings)
	}
}

func dropQuestions(s *diagnose.Snapshot, target int) {
	var kept []diagnose.Round
	for _, r := range s.Rounds {
		if r.Kind != diagnose.AnnouncerQuestion || r.TargetMAC != mac(target) {
			kept = append(kept, r)
		}
	}
	s.Rounds = kept
}

func TestNobodyRemainsWhereKernelsAloneAnswer(t *testing.T) {
	r := muted(0, nil)
	for _, x := range r.Responders {
		if x.Muted != diagnose.RemainsSilent || x.Announcer != diagnose.AnnouncerKernel {
			t.Errorf("%+v", x)
		}
	}
	if r.Owner != "" {
		t.Errorf("owner %q", r.Owner)
	}
}
