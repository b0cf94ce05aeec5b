// SPDX-License-Identifier: Apache-2.0

//go:build linux

package story

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vipmove/vipmove/internal/identity"
	"github.com/vipmove/vipmove/lab"
)

// logged counts the lines of a process's log that say so.
func (s *stage) logged(process, what string) int {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Dir(), "logs", process+".log"))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Count(string(text), what)
}

func TestBadInputIsRefusedClearlyAndChangesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, options{})
	before := s.all()
	good := s.plan()
	other, err := os.MkdirTemp(s.dir, "pki")
	if err != nil {
		t.Fatal(err)
	}
	if err := identity.Init(filepath.Join(other, "p")); err != nil {
		t.Fatal(err)
	}
	if _, err := identity.Issue(filepath.Join(other, "p"), identity.Identity{Role: identity.RoleOperator, Name: "eve"}, nil, nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	agent := s.credentials("n1")
	vip := s.VIP().String()
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"a VIP that is a node's own address", []string{"plan", "192.0.2.11"}, 3, "VIP_IS_NODE_ADDRESS"},
		{"a VIP on no segment", []string{"plan", "203.0.113.9"}, 3, "NO_SEGMENT"},
		{"a malformed VIP", []string{"plan", "192.0.2"}, 2, "192.0.2"},
		{"an IPv6 VIP, for now", []string{"plan", "2001:db8::50"}, 2, "IPv6"},
		{"a prefix", []string{"plan", "192.0.2.50/32"}, 2, "prefix"},
		{"owners of a prefix", []string{"owners", "192.0.2.50/32"}, 2, "prefix"},
		{"an unknown canary", []string{"plan", vip, "--canary", "n9"}, 3, "UNKNOWN_CANARY"},
		{"the survivor as canary", []string{"plan", vip, "--canary", s.Announcer()}, 3, "CANARY_IS_SURVIVOR"},
		{"a plan hash that no longer fits", []string{"run", vip, "--plan", strings.Repeat("0", 64)}, 3, "what changed"},
		{"a hash of other options", []string{"run", vip, "--plan", good.Hash, "--max-failed", "3"}, 3, "max-failed=3"},
		{"run without a plan", []string{"run", vip}, 2, "plan"},
		{"an unknown run", []string{"watch", "nope"}, 1, "nope"},
		{"no command of that name", []string{"own", vip}, 2, "own"},
		{"coordinator unreachable", []string{"nodes", "--coordinator", "unix:" + s.dir + "/none.sock"}, 1, "none.sock"},
		{"a certificate of another CA", []string{"nodes", "--pki", filepath.Join(other, "p")}, 7, "certificate"},
		{"an agent's certificate", []string{"nodes", "--ca", agent.CA, "--cert", agent.Cert, "--key", agent.Key}, 7, "operator"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := s.vipmove(c.args...)
			said := strings.ToLower(r.stdout + r.stderr)
			if r.code != c.code || !strings.Contains(said, strings.ToLower(c.says)) {
				t.Errorf("vipmove %s: exit %d, want %d and %q\n%s%s", strings.Join(c.args, " "), r.code, c.code, c.says, r.stdout, r.stderr)
			}
		})
	}
	if diff := cmp.Diff(before, s.all()); diff != "" {
		t.Errorf("something was changed (-want +got):\n%s", diff)
	}
	if runs, err := s.runs(); err != nil || len(runs) != 0 {
		t.Errorf("runs %v, %v", runs, err)
	}
}

func TestASecondCoordinatorOnTheJournalIsTurnedAway(t *testing.T) {
	t.Parallel()
	s := newStage(t, options{})
	c := s.credentials(lab.Coordinator)
	second := exec.Command(filepath.Join(bin, "vipmove-coordinator"), "--listen", "unix:"+s.dir+"/2.sock", "--http", "127.0.0.1:0",
		"--journal", filepath.Join(s.Dir(), "journal.db"), "--ca", c.CA, "--cert", c.Cert, "--key", c.Key)
	out, err := second.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "another process has this journal open") {
		t.Errorf("%v\n%s", err, out)
	}
	if r := s.vipmove("nodes"); r.code != 0 {
		t.Errorf("the first one suffered: exit %d\n%s", r.code, r.stderr)
	}
}

func TestNoAgentAtAllIsSaid(t *testing.T) {
	t.Parallel()
	s := newStage(t, options{without: []string{"n1", "n2", "n3"}, noWait: true})
	s.until("the coordinator answers", func() bool { return s.command(t.Context(), "nodes").code == 0 })
	if r := s.vipmove("plan", s.VIP().String()); r.code != 3 || !strings.Contains(r.stderr, "no agent is connected") {
		t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// An agent that was there and is away is unknown, not absent: no plan, unless it is left out by name.
func TestOneAgentAwayBlocksThePlanUnlessLeftOut(t *testing.T) { // I6
	t.Parallel()
	s := newStage(t, options{Config: lab.Config{Nodes: 4}})
	s.Process(lab.AgentProcess("n1")).Kill()
	s.until("its session is over", func() bool { return s.connected() == 4 })
	away := s.plan()
	if away.Runnable {
		t.Errorf("plan with an agent away is runnable: %+v", away)
	}
	left := s.plan("--without", "n1")
	if slices.ContainsFunc(left.Steps, func(p struct{ Node, Role string }) bool { return p.Node == "n1" }) {
		t.Errorf("n1 is left out and planned: %+v", left.Steps)
	}
}

// A node that hears no ARP at all proves nothing by its silence, neither as an observer nor as a responder.
func TestAnObserverThatHearsNothingIsBlindAndNoEvidence(t *testing.T) { // I6, C25
	t.Parallel()
	s := newStage(t, options{Config: lab.Config{Nodes: 4}})
	if err := s.Deafen("n1"); err != nil {
		t.Fatal(err)
	}
	var seen struct {
		Verdict    string
		Responders []struct{ Node string }
		Observers  []struct{ Observer, State string }
		Findings   []struct {
			Code  string
			Nodes []string
		}
	}
	s.ask(&seen, "owners", s.VIP().String())
	states := map[string]string{}
	for _, o := range seen.Observers {
		states[o.Observer] = o.State
	}
	if states["n1"] != "blind" || states["n2"] != "hears" || states["n3"] != "hears" {
		t.Errorf("observers %v, want n1 blind and the others hearing", states)
	}
	if seen.Verdict != "contested" || len(seen.Responders) != 3 {
		t.Errorf("verdict %s by %d responders, want contested by the three that hear requests", seen.Verdict, len(seen.Responders))
	}
	p := s.plan()
	// In a user namespace the kernel's ARP path cannot be read in full, so n1's silence is unknown there rather than unexplained.
	unexplained := slices.ContainsFunc(p.Preconditions, func(c struct {
		Code string
		Met  bool
	}) bool {
		return !c.Met && (c.Code == "UNEXPLAINED_ANSWER" || c.Code == "ARP_PATH_UNKNOWN")
	})
	if p.Runnable || !unexplained || p.Survivor != s.Announcer() {
		t.Errorf("a node that should answer and is not heard has to block, and only it: %+v", p)
	}
}
