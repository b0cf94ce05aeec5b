// SPDX-License-Identifier: Apache-2.0

//go:build linux

package story

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vipmove/vipmove/lab"
)

func TestSevenMachinesAnswerThenOne(t *testing.T) { // I1 I2 I3 I4 I5
	t.Parallel()
	s := newStage(t, options{Config: lab.Config{Nodes: 7}})
	before := s.all()

	first, heard, err := s.FirstReply(context.Background(), time.Second)
	if err != nil || !heard {
		t.Fatalf("a first-reply tool hears nobody: %v", err)
	}
	t.Logf("a first-reply tool hears one: %s", s.NodeOf(first.MAC))
	answering := s.answering()
	if len(answering) != 7 || answering[s.Announcer()] != 2 {
		t.Fatalf("by the independent prober answer %v, want seven, %s twice", answering, s.Announcer())
	}

	var seen struct {
		Verdict, Owner string
		Responders     []struct {
			Node, Interface, Mac, Announcer, Reason string
			SeenBy                                  []string
			RepliesPerRequest                       int
			AnswersQuestion                         bool
		}
	}
	s.ask(&seen, "owners", s.VIP().String())
	if seen.Verdict != "contested" || seen.Owner != s.Announcer() || len(seen.Responders) != 7 {
		t.Errorf("owners: verdict %s, owner %q, %d responders; want contested, %s, 7", seen.Verdict, seen.Owner, len(seen.Responders), s.Announcer())
	}
	for _, r := range seen.Responders {
		survivor := r.Node == s.Announcer()
		if r.Interface != lab.Uplink || r.Reason == "" || len(r.SeenBy) < 2 || r.AnswersQuestion != survivor || (r.RepliesPerRequest == 2) != survivor {
			t.Errorf("responder %+v", r)
		}
	}

	wait := s.start()
	r := wait()
	end := s.ended()
	if r.code != 0 || end.State != "done" {
		t.Fatalf("the run ended %s (%s %s), exit %d\n%s", end.State, end.ReasonCode, end.Reason, r.code, r.stderr)
	}
	if end.RequestsFailed != "0" || end.RequestsSent == "0" {
		t.Errorf("%s of %s requests failed", end.RequestsFailed, end.RequestsSent)
	}
	if got := s.answering(); !cmp.Equal(got, map[string]int{s.Announcer(): 1}) {
		t.Errorf("after the run answer %v, want %s once", got, s.Announcer())
	}
	after := s.all()
	if diff := cmp.Diff(s.withoutVIP(before), after); diff != "" {
		t.Errorf("more than the VIP's /32 changed (-want +got):\n%s", diff)
	}
	order := slices.Clone(end.Steps)
	slices.SortFunc(order, func(a, b struct {
		Node, State, Detail string
		RemovedAt           *time.Time
		ConfirmedAt         *time.Time
	}) int {
		return a.RemovedAt.Compare(*b.RemovedAt)
	})
	if order[6].Node != s.Announcer() {
		t.Errorf("the survivor was not last: %v", end.states())
	}
	for i := 1; i < len(order); i++ {
		if order[i].RemovedAt.Before(*order[i-1].ConfirmedAt) {
			t.Errorf("%s was changed before %s was confirmed", order[i].Node, order[i-1].Node)
		}
	}
	t.Run("and rollback puts every address back as it was", func(t *testing.T) {
		if r := s.vipmove("rollback", end.RunID); r.code != 0 && r.code != 4 {
			t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		s.ended()
		if diff := cmp.Diff(before, s.all()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestARunIsUndoneWhereRequestsDieWithTheAddress(t *testing.T) {
	t.Parallel()
	s := newStage(t, options{Config: lab.Config{ServeNeedsAddress: true}})
	before := s.all()
	r := s.start()()
	end := s.ended()
	if r.code != 4 || end.State != "rolled-back" {
		t.Errorf("exit %d, run %s (%s %s)\n%s", r.code, end.State, end.ReasonCode, end.Reason, r.stderr)
	}
	if diff := cmp.Diff(before, s.all()); diff != "" {
		t.Errorf("an address did not come back as it was (-want +got):\n%s", diff)
	}
	if !strings.Contains(r.stderr+r.stdout, end.ReasonCode) || end.ReasonCode == "" {
		t.Errorf("the command does not say why: %q\n%s", end.ReasonCode, r.stderr)
	}
}

func TestNothingIsRemovedWhereNothingElseAnswers(t *testing.T) { // I1
	t.Parallel()
	s := newStage(t, options{Config: lab.Config{NoAnnouncer: true}})
	p := s.plan()
	if p.Runnable || !slices.ContainsFunc(p.Preconditions, func(c struct {
		Code string
		Met  bool
	}) bool {
		return c.Code == "NO_ANNOUNCER" && !c.Met
	}) {
		t.Errorf("plan %+v", p)
	}
	r := s.vipmove(slices.Concat([]string{"run", s.VIP().String(), "--plan", p.Hash}, quick)...)
	if r.code != 3 || len(s.holders()) != 3 {
		t.Errorf("exit %d, holders %v\n%s", r.code, s.holders(), r.stderr)
	}
	named := s.plan("--owner", "n2")
	if named.Runnable {
		t.Error("--owner alone proves nothing and made the plan runnable")
	}
}

func TestAnAddressThatComesBackStopsTheRunAndTheRestIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newStage(t, options{})
	wait := s.start("--canary-soak", "20s")
	s.until("the canary is clean", func() bool { return !s.holds("n1") })
	s.until("its step is verified", func() bool { return strings.Contains(s.latest().states(), "n1=verified") })
	node, err := s.Host("n1")
	if err != nil {
		t.Fatal(err)
	}
	if err := node.AddAddress(lab.Dummy, s.HostVIP()); err != nil {
		t.Fatal(err)
	}
	r := wait()
	end := s.ended()
	if r.code != 5 || end.ReasonCode != "ADDRESS_CAME_BACK" {
		t.Errorf("exit %d, run %s (%s)\n%s", r.code, end.State, end.ReasonCode, r.stderr)
	}
	if got := fmt.Sprint(s.holders()); got != "[n1 n2 n3]" {
		t.Errorf("holders %s", got)
	}
}
