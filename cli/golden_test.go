// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

var update = flag.Bool("update", false, "write testdata/*.golden anew")

// golden compares got with testdata/NAME.golden.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("output differs from %s (run with -update where it is meant; -want +got):\n%s", path, diff)
	}
}

func draw(coloured bool, fn func(*printer)) string {
	var b bytes.Buffer
	fn(&printer{Buffer: &b, style: style{on: coloured}, zone: time.UTC})
	return b.String()
}

func TestOutputIsAsInTheGoldenFiles(t *testing.T) {
	empty := &vipmovev1.Judgement{Vip: testVIP, Verdict: "unknown", OwnerReason: "nobody could be asked"}
	unchanged := rolledBackRun()
	unchanged.Changed, unchanged.Steps[0].RemovedAt, unchanged.RequestsSent = false, nil, 0
	noSteps := refusedPlan()
	noSteps.Steps, noSteps.LeftAlone = nil, nil
	for name, fn := range map[string]func(*printer){
		"owners-contested":  func(p *printer) { p.judgement(contested()) },
		"owners-muted":      func(p *printer) { p.judgement(mutedContested()) },
		"owners-single":     func(p *printer) { p.judgement(single()) },
		"owners-unknown":    func(p *printer) { p.judgement(empty) },
		"owners-foreign":    func(p *printer) { p.judgement(foreign()) },
		"plan-runnable":     func(p *printer) { p.plan(runnablePlan(), "vipmove run 192.0.2.50 --plan 3f1c9e") },
		"plan-not-runnable": func(p *printer) { p.plan(refusedPlan(), "unused") },
		"plan-no-steps":     func(p *printer) { p.plan(noSteps, "unused") },
		"run-done":          func(p *printer) { p.run(doneRun()) },
		"run-caches-lag":    func(p *printer) { p.run(laggingRun()) },
		"run-rolled-back":   func(p *printer) { p.run(rolledBackRun()) },
		"run-unchanged":     func(p *printer) { p.run(unchanged) },
		"runs":              func(p *printer) { p.runs([]*vipmovev1.Run{doneRun(), laggingRun(), rolledBackRun(), runAt(2)}) },
		"runs-none":         func(p *printer) { p.runs(nil) },
		"nodes":             func(p *printer) { p.nodes(sevenNodes()) },
		"nodes-none":        func(p *printer) { p.nodes(&vipmovev1.ListNodesResponse{}) },
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, draw(false, fn)) })
	}
}

func TestLiveViewIsAsInTheGoldenFile(t *testing.T) {
	lines := liveRun(runAt(2), t0.Add(9*time.Second), style{}, time.UTC)
	golden(t, "live", strings.Join(lines, "\n")+"\n")
}

func TestPlainLinesOfARunAreAsInTheGoldenFile(t *testing.T) {
	var lines []string
	var before *vipmovev1.Run
	for _, r := range []*vipmovev1.Run{runAt(0), runAt(1), runAt(1), runAt(2), doneRun()} {
		lines = append(lines, runChanges(before, r)...)
		before = r
	}
	golden(t, "plain", strings.Join(lines, "\n")+"\n")
}

// Colours must change nothing but colours, or columns would not line up on a terminal.
func TestColoursChangeNothingElse(t *testing.T) {
	for name, fn := range map[string]func(*printer){
		"judgement": func(p *printer) { p.judgement(contested()) },
		"plan":      func(p *printer) { p.plan(refusedPlan(), "next") },
		"run":       func(p *printer) { p.run(rolledBackRun()) },
	} {
		plain, coloured := draw(false, fn), draw(true, fn)
		if !strings.Contains(coloured, "\x1b[") {
			t.Errorf("%s: nothing is coloured", name)
		}
		if diff := cmp.Diff(plain, withoutColours(coloured)); diff != "" {
			t.Errorf("%s: colours changed the text (-plain +coloured):\n%s", name, diff)
		}
		if strings.Contains(plain, "\x1b") {
			t.Errorf("%s: escape sequences although colours are off", name)
		}
	}
}

func withoutColours(s string) string {
	for {
		start := strings.Index(s, "\x1b[")
		if start < 0 {
			return s
		}
		end := strings.IndexByte(s[start:], 'm')
		s = s[:start] + s[start+end+1:]
	}
}

// Unknown is never absent (I6): silence to an observer that cannot hear must not read as 0.
func TestABlindObserversSilenceIsAQuestionMark(t *testing.T) {
	for _, state := range []string{"blind", "cannot-probe", "away", "not-asked", "", "a-later-state"} {
		o := &vipmovev1.ObserverView{Observer: "n7", State: state}
		if got := heardCell(o, &vipmovev1.Responder{Node: "n1", Mac: mac(1)}); got != "?" {
			t.Errorf("observer %q that heard nothing shows %q, want ?", state, got)
		}
	}
	o := &vipmovev1.ObserverView{Observer: "n7", State: "hears"}
	if got := heardCell(o, &vipmovev1.Responder{Node: "n1", Mac: mac(1)}); got != "0" {
		t.Errorf("a hearing observer that heard nothing shows %q, want 0", got)
	}
}

// foreign has a MAC of no agent, one node with two NICs, and an ARP sender that is not the Ethernet source.
func foreign() *vipmovev1.Judgement {
	j := single()
	j.Verdict, j.Owner, j.OwnerReason = "foreign", "", "several announcers answer"
	j.Responders = append(j.Responders,
		&vipmovev1.Responder{Node: "n4", Interface: "eth1", Mac: mac(14), Announcer: "kernel", RepliesPerRequest: 1, SeenBy: []string{"n1"}},
		&vipmovev1.Responder{Mac: "02:aa:aa:aa:aa:aa", Announcer: "foreign", RepliesPerRequest: 1, SeenBy: []string{"n1"}, Mismatched: true})
	j.Observers = []*vipmovev1.ObserverView{{
		Observer: "n1", Interface: "eth0", State: "hears", Rounds: 3, Replies: map[string]uint32{mac(4): 3, mac(14): 3, "02:aa:aa:aa:aa:aa": 2},
	}}
	return j
}

func sevenNodes() *vipmovev1.ListNodesResponse {
	r := &vipmovev1.ListNodesResponse{Requests: []*vipmovev1.Requests{{
		Witness: "client", Target: "http://192.0.2.50/", Sent: 1200, Failed: 3, FailedByType: map[string]uint64{"timeout": 2, "reset": 1},
		LongestGap: durationpb.New(40 * time.Millisecond), OpenGap: durationpb.New(3 * time.Millisecond), NeighbourMac: mac(4), LastError: "timeout after 1s",
	}}}
	for i := 1; i <= 3; i++ {
		r.Nodes = append(r.Nodes, &vipmovev1.Node{
			Name: node(i), Role: vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT, Connected: true, CanAct: true, Version: "v0.1.0", ControlPlane: i == 1,
		})
	}
	r.Nodes[1].Connected, r.Nodes[1].LastSeen = false, at(0)
	r.Nodes[1].PendingUndo = &vipmovev1.PendingUndo{RunId: "R7", Address: staleAddress(), DeadlineBoottime: durationpb.New(100 * time.Second), Blocked: "no CAP_NET_ADMIN"}
	r.Nodes[1].Kernel = &vipmovev1.KernelState{Boottime: durationpb.New(88 * time.Second), Incomplete: []string{"addresses: dump interrupted five times"}}
	r.Nodes[2].CanAct, r.Nodes[2].CannotActReason = false, "observe only"
	r.Nodes = append(r.Nodes, &vipmovev1.Node{Name: "client", Role: vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS, Connected: true, Version: "v0.1.0"}, &vipmovev1.Node{Name: "n9"})
	return r
}

func TestARunThatIsDoneWhileCachesLagIsDone(t *testing.T) {
	if got := runExit(laggingRun()); got != exitDone {
		t.Errorf("exit code %d, want %d", got, exitDone)
	}
	if lines := runChanges(runAt(6), laggingRun()); !strings.Contains(lines[len(lines)-1], "run R7 is done, caches lag") {
		t.Errorf("plain lines %q", lines)
	}
	if lines := liveRun(laggingRun(), t0, style{}, time.UTC); !strings.Contains(lines[0], "done, caches lag") {
		t.Errorf("live view %q", lines[0])
	}
}
