// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func inState(state string, changed bool) *vipmovev1.Run {
	r := runAt(1)
	r.State, r.Changed = state, changed
	return r
}

func TestARunsEndIsTheExitCode(t *testing.T) {
	for _, c := range []struct {
		end  *vipmovev1.Run
		code int
	}{
		{doneRun(), exitDone},
		{inState("rolled-back", false), exitPreconditions},
		{inState("rolled-back", true), exitRolledBack},
		{inState("needs-decision", true), exitNeedsPerson},
		{inState("needs-decision", false), exitNeedsPerson},
		{inState("paused", true), exitNeedsPerson},
	} {
		fake := &fakeControl{runID: "R7", watches: [][]*vipmovev1.Run{{inState("planned", false), runAt(0), runAt(1), inState("aborting", true), c.end}}}
		env := fake.serve(t)
		r := command(t, env, "run", testVIP, "--plan", "3f1c9e")
		r.want(t, c.code, "run R7 started for 192.0.2.50", "n1 confirmed")
		if want := draw(false, func(p *printer) { p.run(c.end) }); r.stdout != want {
			t.Errorf("%s: stdout is not the run's end:\n%s", c.end.GetState(), r.stdout)
		}
		r = command(t, env, "watch", "R7", "-o", "json")
		r.want(t, c.code)
		if got := r.oneObject(t)["state"]; got != c.end.GetState() {
			t.Errorf("JSON has state %v, want %s", got, c.end.GetState())
		}
	}
}

func TestWatchingOutlivesACoordinatorThatRestarts(t *testing.T) {
	fake := &fakeControl{lose: unavailable, watches: [][]*vipmovev1.Run{{runAt(0)}, nil, {runAt(1)}, {runAt(2), doneRun()}}}
	r := command(t, fake.serve(t), "watch", "R7")
	r.want(t, exitDone, "lost the coordinator at unix:", "the run goes on there", "run R7 is done")
	if got := len(fake.requests()); got != 4 {
		t.Errorf("asked %d times, want 4", got)
	}
	if n := strings.Count(r.stderr, "n1 confirmed"); n != 1 {
		t.Errorf("n1's confirm is told %d times, want once:\n%s", n, r.stderr)
	}
}

func TestAStreamThatEndsEarlyIsNotTheRunsEnd(t *testing.T) {
	fake := &fakeControl{watches: [][]*vipmovev1.Run{{runAt(0)}, {doneRun()}}}
	command(t, fake.serve(t), "watch", "R7").want(t, exitDone, "lost the coordinator")
}

func TestWatchingGivesUpOnACoordinatorThatStaysAway(t *testing.T) {
	fake := &fakeControl{err: unavailable}
	env := fake.serve(t)
	minutes := 0
	r := commandWith(t, t.Context(), env, func(a *app) {
		a.now = func() time.Time { minutes++; return t0.Add(time.Duration(minutes) * time.Minute) }
	}, "watch", "R7")
	r.want(t, exitFailure, "watching run R7: no coordinator reached")
	r.noData(t)
}

func TestARunThatIsNotKnownIsNotWaitedFor(t *testing.T) {
	fake := &fakeControl{err: status.Error(codes.NotFound, "no run R9")}
	command(t, fake.serve(t), "watch", "R9").want(t, exitFailure, "watching run R9: no run R9")
	if got := len(fake.requests()); got != 1 {
		t.Errorf("asked %d times, want once", got)
	}
}

func TestInterruptStopsWatchingOnly(t *testing.T) {
	fake := &fakeControl{runID: "R7", watches: [][]*vipmovev1.Run{{runAt(0)}}, hold: true}
	env := fake.serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-fake.holding; cancel() }()
	r := commandIn(t, ctx, env, "run", testVIP, "--plan", "3f1c9e")
	r.want(t, exitFailure, "stopped watching: run R7 goes on", "`vipmove watch R7`", "`vipmove abort R7`")
	r.noData(t)
	for _, m := range fake.requests() {
		if _, ok := m.(*vipmovev1.AbortRunRequest); ok {
			t.Error("an interrupt ordered an abort")
		}
	}
}

func TestTimeoutStopsWatchingOnly(t *testing.T) {
	fake := &fakeControl{watches: [][]*vipmovev1.Run{{runAt(0)}}, hold: true}
	r := command(t, fake.serve(t), "watch", "R7", "--timeout", "100ms")
	r.want(t, exitTimedOut, "stopped watching after 100ms (--timeout)", "run R7 goes on")
}

func TestAStartWhoseAnswerIsLostMayHaveStarted(t *testing.T) {
	fake := &fakeControl{err: unavailable}
	command(t, fake.serve(t), "run", testVIP, "--plan", "3f1c9e").want(t, exitFailure, "it may have started: see `vipmove status`")
}

func TestAbortAndRollbackWaitForTheirEnd(t *testing.T) {
	for _, c := range []struct {
		line    string
		ordered *vipmovev1.Run
		watch   []*vipmovev1.Run
		code    int
		watched bool
	}{
		{"abort R7", inState("aborting", true), []*vipmovev1.Run{inState("aborting", true), inState("rolled-back", true)}, exitDone, true},
		{"abort R7", inState("rolled-back", false), nil, exitDone, false},
		{"abort R7", inState("paused", true), []*vipmovev1.Run{inState("paused", true), inState("aborting", true), inState("rolled-back", true)}, exitDone, true},
		{"abort R7", inState("aborting", true), []*vipmovev1.Run{inState("needs-decision", true)}, exitNeedsPerson, true},
		{"rollback R7", doneRun(), []*vipmovev1.Run{doneRun(), inState("aborting", true), inState("rolled-back", true)}, exitDone, true},
		{"rollback R7", inState("aborting", true), []*vipmovev1.Run{inState("needs-decision", true)}, exitNeedsPerson, true},
	} {
		fake := &fakeControl{ordered: c.ordered, watches: [][]*vipmovev1.Run{c.watch}}
		r := command(t, fake.serve(t), append(strings.Fields(c.line), "-o", "json")...)
		r.want(t, c.code)
		end := c.ordered
		if c.watched {
			end = c.watch[len(c.watch)-1]
		}
		if got := r.oneObject(t)["state"]; got != end.GetState() {
			t.Errorf("%s: ended in state %v, want %s", c.line, got, end.GetState())
		}
		if watched := len(fake.requests()) > 1; watched != c.watched {
			t.Errorf("%s: watched %v, want %v", c.line, watched, c.watched)
		}
	}
}

func TestAnAbortThatIsRefusedSaysWhy(t *testing.T) {
	fake := &fakeControl{err: status.Error(codes.FailedPrecondition, "run R7 ended already")}
	env := fake.serve(t)
	for _, line := range []string{"abort R7", "rollback R7"} {
		command(t, env, strings.Fields(line)...).want(t, exitPreconditions, "run R7 ended already")
	}
}

func TestPlainLinesTellEveryChangeOnce(t *testing.T) {
	r := runAt(2)
	if lines := runChanges(r, proto.Clone(r).(*vipmovev1.Run)); len(lines) != 0 {
		t.Errorf("nothing changed, but: %q", lines)
	}
	// A node may hold the address on two links: two steps, told apart.
	twin := proto.Clone(r).(*vipmovev1.Run)
	second := proto.Clone(twin.GetSteps()[3]).(*vipmovev1.RunStep)
	second.Address.Link = "nodelocaldns"
	twin.Steps = append(twin.Steps, second)
	after := proto.Clone(twin).(*vipmovev1.Run)
	after.Steps[len(after.Steps)-1].State = "applied"
	if lines := runChanges(twin, after); len(lines) != 1 || lines[0] != "n5 applied" {
		t.Errorf("one step changed, but: %q", lines)
	}
}
