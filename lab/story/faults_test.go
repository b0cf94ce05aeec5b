// SPDX-License-Identifier: Apache-2.0

//go:build linux

package story

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipmove/vipmove/lab"
)

// consistent holds what a run that ended says of its nodes against their kernels (I10).
func (s *stage) consistent(end run) {
	s.t.Helper()
	holders := s.holders()
	for _, step := range end.Steps {
		switch step.State {
		case "confirmed":
			if slices.Contains(holders, step.Node) {
				s.t.Errorf("%s is said to be confirmed and holds the address", step.Node)
			}
		case "pending", "restored", "refused":
			if !slices.Contains(holders, step.Node) {
				s.t.Errorf("%s is said to be %s and does not hold the address", step.Node, step.State)
			}
		default:
			s.t.Errorf("%s ended %s", step.Node, step.State)
		}
	}
}

// The coordinator is killed while the canary's removal is not confirmed, and started again: the run goes on
// from the journal, or the address is back; nothing is removed twice.
func TestACoordinatorKilledBetweenDeleteAndConfirmResumes(t *testing.T) { // I2 I7 I8 I9 I10
	t.Parallel()
	s := newStage(t, options{})
	wait := s.start("--canary-soak", "3s")
	s.until("the canary is clean", func() bool { return !s.holds("n1") })
	c := s.Process(lab.CoordinatorProcess)
	c.Kill()
	if got := s.holders(); len(got) < 2 {
		t.Errorf("two nodes in change: only %v hold the address", got)
	}
	s.must(s.StartCoordinator(t.Context()))
	wait() // the command waits for its coordinator to come back
	end := s.ended()
	if end.State != "done" && end.ReasonCode != "UNDO_EXPIRED" {
		t.Errorf("the run ended %s (%s %s): %s", end.State, end.ReasonCode, end.Reason, end.states())
	}
	s.consistent(end)
	if n := s.logged(lab.AgentProcess("n1"), `msg="carried out a removal"`); n > 1 {
		t.Errorf("n1 removed the address %d times", n)
	}
}

// The agent is killed as soon as its kernel lost the address, before or after its answer, and started again.
func TestAnAgentKilledBetweenDeleteAndAnswerTellsOrRestores(t *testing.T) { // I8 I9 I13
	t.Parallel()
	s := newStage(t, options{})
	before := s.all()
	wait := s.start("--ttl", "12s")
	s.until("the canary is clean", func() bool { return !s.holds("n1") })
	s.Process(lab.AgentProcess("n1")).Kill()
	s.must(s.StartAgent(t.Context(), "n1"))
	r := wait()
	end := s.ended()
	if r.code != 0 && r.code != 4 {
		t.Errorf("exit %d, run %s (%s %s): %s\n%s", r.code, end.State, end.ReasonCode, end.Reason, end.states(), r.stderr)
	}
	s.consistent(end)
	for _, c := range s.plan().Preconditions {
		if c.Code == "UNDO_PENDING" && !c.Met {
			t.Error("the undo is over and still counts as pending")
		}
	}
	if end.State == "rolled-back" {
		if diff := cmp.Diff(before, s.all()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// The coordinator stands still for longer than the undo lives: the agent puts the address back by itself,
// and a confirm that comes late changes nothing.
func TestACoordinatorThatStandsStillBeyondTheTTLConfirmsNothing(t *testing.T) { // I7 I13, expiry beats confirm
	t.Parallel()
	s := newStage(t, options{})
	before := s.all()
	wait := s.start("--ttl", "10s", "--canary-soak", "4s")
	s.until("the canary is clean", func() bool { return !s.holds("n1") })
	c := s.Process(lab.CoordinatorProcess)
	if err := c.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.until("the agent has put the address back by itself", func() bool { return s.holds("n1") })
	if err := c.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	wait()
	end := s.ended()
	if end.State != "rolled-back" || !strings.Contains(end.states(), "n1=restored") {
		t.Errorf("the run ended %s (%s %s): %s", end.State, end.ReasonCode, end.Reason, end.states())
	}
	if diff := cmp.Diff(before, s.all()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A whole node falls silent while it is in change: no second node is touched, and its own undo fires.
func TestANodeThatFallsSilentStopsTheRunBeforeTheNext(t *testing.T) { // C47, I6
	t.Parallel()
	s := newStage(t, options{})
	wait := s.start("--ttl", "10s", "--canary-soak", "3s")
	s.until("the canary is clean", func() bool { return !s.holds("n1") })
	a := s.Process(lab.AgentProcess("n1"))
	if err := a.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r := wait()
	end := s.ended()
	if r.code != 5 || end.State != "needs-decision" {
		t.Errorf("exit %d, run %s (%s %s): %s", r.code, end.State, end.ReasonCode, end.Reason, end.states())
	}
	if got := s.holders(); !slices.Contains(got, "n2") || !slices.Contains(got, "n3") {
		t.Errorf("another node was touched: holders %v", got)
	}
	if err := a.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.until("its own undo has fired", func() bool { return s.holds("n1") })
}

func TestAbortPutsTheOpenNodeBackAndKeepsTheConfirmed(t *testing.T) { // I10
	t.Parallel()
	s := newStage(t, options{})
	wait := s.start("--dwell", "20s")
	s.until("the second node is clean", func() bool { return len(s.holders()) == 1 })
	id := s.latest().RunID
	if r := s.vipmove("abort", id); r.code != 0 && r.code != 4 {
		t.Errorf("abort: exit %d\n%s", r.code, r.stderr)
	}
	r := wait()
	end := s.ended()
	if r.code != 4 || end.State != "rolled-back" || end.ReasonCode != "ABORTED" {
		t.Errorf("exit %d, run %s (%s): %s", r.code, end.State, end.ReasonCode, end.states())
	}
	if got := fmt.Sprint(len(s.holders())); got != "2" {
		t.Errorf("%s nodes hold the address, want 2: one confirmed, one put back", got)
	}
	s.consistent(end)
}
