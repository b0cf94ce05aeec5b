// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vipmove/vipmove/coordinator/handover"
	"github.com/vipmove/vipmove/coordinator/journal"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func TestARunGoesFromSevenToOne(t *testing.T) {
	inWorld(t, 7, func(t *testing.T, w *world) {
		id := w.begin(options())
		r, all := w.watch(id)
		if r.GetState() != "done" || r.GetReasonCode() != "" || !r.GetChanged() {
			t.Fatalf("%s: %s %s\n%s", r.GetState(), r.GetReasonCode(), r.GetReason(), states(r))
		}
		if got := w.lan.holders(); got != "" {
			t.Errorf("the address is still on %s", got)
		}
		if r.GetCanary() != "n2" || r.GetSurvivor() != "n7" { // n1 carries the client's frames
			t.Errorf("canary %s, survivor %s", r.GetCanary(), r.GetSurvivor())
		}
		if diff := cmp.Diff([]string{"n2", "n3", "n4", "n5", "n6", "n1", "n7"}, confirmedInOrder(all)); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		if r.GetVerdictBefore() != "contested" || r.GetVerdictAfter() != "single" || r.GetAfter().GetOwner() != "n7" || len(r.GetAfter().GetResponders()) != 1 {
			t.Errorf("before %s, after %s: %v", r.GetVerdictBefore(), r.GetVerdictAfter(), r.GetAfter())
		}
		if r.GetRequestsSent() == 0 || r.GetRequestsFailed() != 0 {
			t.Errorf("%d requests failed of %d", r.GetRequestsFailed(), r.GetRequestsSent())
		}
		for _, s := range r.GetSteps() {
			if s.GetAttempts() != 1 || s.GetRemovedAt().AsTime().After(s.GetVerifiedAt().AsTime()) || s.GetVerifiedAt().AsTime().After(s.GetConfirmedAt().AsTime()) {
				t.Errorf("step %v", s)
			}
			if n := w.agents[s.GetNode()].orders("remove"); n != 1 {
				t.Errorf("%s was told to remove %d times", s.GetNode(), n)
			}
		}
		w.soaked(t, r)
		w.recorded(t, id, r)
	})
}

// confirmedInOrder reads the order of confirms off the watched run.
func confirmedInOrder(all []*vipmovev1.Run) []string {
	var out []string
	for _, r := range all {
		for _, s := range r.GetSteps() {
			if s.GetState() == "confirmed" && !contains(out, s.GetNode()) {
				out = append(out, s.GetNode())
			}
		}
	}
	return out
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// soaked: the canary dwells longer than the others (I4).
func (w *world) soaked(t *testing.T, r *vipmovev1.Run) {
	t.Helper()
	for _, s := range r.GetSteps() {
		dwelt, want := s.GetConfirmedAt().AsTime().Sub(s.GetVerifiedAt().AsTime()), handover.DefaultDwell
		if s.GetNode() == r.GetCanary() {
			want = handover.DefaultCanarySoak
		}
		if dwelt < want || dwelt > want+time.Second {
			t.Errorf("%s was watched for %s, want %s", s.GetNode(), dwelt, want)
		}
	}
}

// recorded: what was shown is what the journal replays to (I9).
func (w *world) recorded(t *testing.T, id string, r *vipmovev1.Run) {
	t.Helper()
	events, err := journal.NewMemory(w.disk).Load(id)
	if err != nil {
		t.Fatal(err)
	}
	run, err := journal.Replay(events)
	if err != nil {
		t.Fatal(err)
	}
	if string(run.State) != r.GetState() || run.Revision != r.GetRevision() {
		t.Errorf("the journal has %s at revision %d, shown was %s at %d", run.State, run.Revision, r.GetState(), r.GetRevision())
	}
}

func TestAWatcherIsToldWhatIsBeingDone(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		r, all := w.watch(w.begin(options()))
		if r.GetDoing() != "" {
			t.Errorf("a run that has ended is %q", r.GetDoing())
		}
		seen := map[string]bool{}
		for i, x := range all {
			seen[x.GetDoing()] = true
			if i > 0 && (x.GetRevision() < all[i-1].GetRevision() || x.GetRequestsSent() < all[i-1].GetRequestsSent()) {
				t.Errorf("it went back from %v to %v", all[i-1], x)
			}
		}
		for _, want := range []string{"looking at n2 before its step", "verifying n2: listing, wire, requests",
			"watching n2 for 5s", "watching n1 for 2s", "looking at the wire for the final verdict"} {
			if !seen[want] {
				t.Errorf("nobody was told %q", want)
			}
		}
	})
}

func TestARunThatHasEndedCountsNoMoreRequests(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		id := w.begin(options())
		r, _ := w.watch(id)
		w.witness.lose(50)
		w.wait(5 * time.Second)
		if again := w.now(id); again.GetRequestsSent() != r.GetRequestsSent() || again.GetRequestsFailed() != 0 {
			t.Errorf("%d of %d failed at its end, %d of %d later", r.GetRequestsFailed(), r.GetRequestsSent(), again.GetRequestsFailed(), again.GetRequestsSent())
		}
	})
}

func TestAPlanThatNoLongerFitsIsRefusedWithWhatChanged(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		o := options()
		p := w.plan(o)
		w.lan.change(func() { w.lan.hosts["n1"].held = false })
		_, err := w.operator().StartRun(w.ctx, &vipmovev1.StartRunRequest{Options: o, PlanHash: p.GetHash()})
		refused(t, err, codes.FailedPrecondition, "the world is not as reviewed", "nothing was changed", "- node n1 boot=boot-n1 link=kube-ipvs0")
		if strings.Contains(status.Convert(err).Message(), "node n2") {
			t.Errorf("n2 did not change: %v", err)
		}
		_, err = w.operator().StartRun(w.ctx, &vipmovev1.StartRunRequest{Options: o, PlanHash: "feed"})
		refused(t, err, codes.FailedPrecondition, "not feed", "does not know that plan")
		o.Canary = "n3"
		_, err = w.operator().StartRun(w.ctx, &vipmovev1.StartRunRequest{Options: o, PlanHash: p.GetHash()})
		refused(t, err, codes.FailedPrecondition, "- canary n2", "+ canary n3")
		w.unchanged(t)
	})
}

// refused: an error of that code that says all of it.
func refused(t *testing.T, err error, code codes.Code, says ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("got %v, want %s", err, code)
	}
	for _, s := range says {
		if !strings.Contains(status.Convert(err).Message(), s) {
			t.Errorf("%q\ndoes not say %q", status.Convert(err).Message(), s)
		}
	}
}

// unchanged: no node was ordered to change anything.
func (w *world) unchanged(t *testing.T) {
	t.Helper()
	for name, a := range w.agents {
		for _, kind := range []string{"prepare", "remove", "restore"} {
			if n := a.orders(kind); n != 0 {
				t.Errorf("%s got %d orders to %s", name, n, kind)
			}
		}
	}
	if list, err := w.operator().ListRuns(w.ctx, &vipmovev1.ListRunsRequest{}); err != nil || len(list.GetRuns()) != 0 {
		t.Errorf("runs: %v %v", list.GetRuns(), err)
	}
}

func TestWhatStandsInTheWayIsListedAndNothingChanges(t *testing.T) {
	tests := []struct {
		name string
		harm func(w *world)
		edit func(o *vipmovev1.PlanOptions)
		want []string
	}{
		{"an agent is away", func(w *world) { w.agents["n3"].leave() }, nil, []string{"NODE_AWAY", "n3", "--without"}},
		{"no announcer runs", func(w *world) { w.lan.change(func() { w.lan.announcer = "" }) }, nil, []string{"NO_ANNOUNCER"}},
		{"nothing is stale", func(w *world) {
			w.lan.change(func() {
				for _, h := range w.lan.hosts {
					h.held = false
				}
			})
		}, nil, []string{"NOTHING_TO_REMOVE"}},
		{"no witness", func(w *world) { w.witness.leave() }, nil, []string{"NO_WITNESS", "--no-witness"}},
		{"requests fail", func(w *world) { w.witness.lose(100_000) }, nil, []string{"REQUESTS_FAIL"}},
		{"an agent may not act", func(w *world) {
			w.agents["n1"].mu.Lock()
			w.agents["n1"].cannot = "/etc/vipmove/pause is there"
			w.agents["n1"].mu.Unlock()
			w.agents["n1"].hangUp()
		}, nil, []string{"AGENT_CANNOT_ACT", "n1"}},
		{"unknown canary", nil, func(o *vipmovev1.PlanOptions) { o.Canary = "n9" }, []string{"UNKNOWN_CANARY", "n9"}},
		{"the survivor as canary", nil, func(o *vipmovev1.PlanOptions) { o.Canary = "n4" }, []string{"CANARY_IS_SURVIVOR"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, 4, func(t *testing.T, w *world) {
				if tt.harm != nil {
					tt.harm(w)
					w.wait(5 * time.Second)
				}
				o := options()
				if tt.edit != nil {
					tt.edit(o)
				}
				p := w.plan(o)
				if p.GetRunnable() {
					t.Error("the plan says that it can be run")
				}
				_, err := w.operator().StartRun(w.ctx, &vipmovev1.StartRunRequest{Options: o, PlanHash: p.GetHash()})
				refused(t, err, codes.FailedPrecondition, append(tt.want, "the preconditions are not met; nothing was changed")...)
				w.unchanged(t)
			})
		})
	}
}

func TestWithoutAnyAgentNothingCanBeSeen(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.agents["n1"].leave()
		w.agents["n2"].leave()
		w.wait(time.Second)
		c := w.operator()
		_, err := c.MakePlan(w.ctx, &vipmovev1.MakePlanRequest{Options: options()})
		refused(t, err, codes.FailedPrecondition, "no agent is connected")
		_, err = c.TakeSnapshot(w.ctx, &vipmovev1.TakeSnapshotRequest{Survey: &vipmovev1.SurveyRequest{Vip: testVIP}})
		refused(t, err, codes.FailedPrecondition, "no agent is connected")
	})
}

func TestOneRunMovesAtATime(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		c := w.operator()
		first := w.begin(options())
		w.watch(first)
		if _, err := c.RollbackRun(w.ctx, &vipmovev1.RollbackRunRequest{RunId: first}); err != nil {
			t.Fatal(err)
		}
		w.watch(first)
		id := w.begin(options())
		_, err := c.StartRun(w.ctx, &vipmovev1.StartRunRequest{Options: options(), PlanHash: w.now(id).GetPlanHash()})
		refused(t, err, codes.FailedPrecondition, "run "+id+" is under way", "vipmove watch "+id, "vipmove abort "+id)
		_, err = c.RollbackRun(w.ctx, &vipmovev1.RollbackRunRequest{RunId: first})
		refused(t, err, codes.FailedPrecondition, "run "+id+" is under way")
		_, err = c.AbortRun(w.ctx, &vipmovev1.AbortRunRequest{RunId: "r0"})
		refused(t, err, codes.NotFound, `no run "r0"`, first, id)
		if r, _ := w.watch(id); r.GetState() != "done" {
			t.Errorf("the run that was asked about ended %s", r.GetState())
		}
		_, err = c.AbortRun(w.ctx, &vipmovev1.AbortRunRequest{RunId: id})
		refused(t, err, codes.FailedPrecondition, "use rollback")
	})
}

// A rollback that is ordered while another run is being planned begins first, and the plan has to wait: only
// the loop can tell which run moves.
func TestARollbackBesideAStartLeavesOneOfThem(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		c := w.operator()
		first := w.begin(options())
		w.watch(first)
		w.lan.change(func() { w.lan.hosts["n1"].held = true }) // something for a second run to do
		p := w.plan(options())
		start := make(chan error, 1)
		go func() {
			_, err := c.StartRun(w.ctx, &vipmovev1.StartRunRequest{Options: options(), PlanHash: p.GetHash()})
			start <- err
		}()
		w.wait(time.Second) // it is looking
		w.agents["n3"].failing(once("restore", 1, deaf))
		if _, err := c.RollbackRun(w.ctx, &vipmovev1.RollbackRunRequest{RunId: first}); err != nil {
			t.Fatal(err)
		}
		refused(t, <-start, codes.FailedPrecondition, "run "+first+" is under way")
		w.watch(first)
		if list, err := c.ListRuns(w.ctx, &vipmovev1.ListRunsRequest{}); err != nil || len(list.GetRuns()) != 1 {
			t.Errorf("%d runs, %v", len(list.GetRuns()), err)
		}
	})
}

func TestTwoStartsAtOnce(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.plan(options())
		results := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := w.operator().StartRun(w.ctx, &vipmovev1.StartRunRequest{Options: options(), PlanHash: p.GetHash()})
				results <- err
			}()
		}
		one, other := <-results, <-results
		if one == nil {
			one, other = other, one
		}
		if other != nil {
			t.Fatal(other)
		}
		refused(t, one, codes.FailedPrecondition, "another run is being started")
	})
}

// An operator who gives up while the plan is made starts nothing; one who gives up once the run is in the
// journal has a run that goes on. There is nothing between.
func TestAStartWhoseCallerGaveUpIsWholeOrNothing(t *testing.T) {
	begun := func(w *world) string {
		w.wait(2 * time.Minute)
		var out []string
		for _, id := range w.server.driver.ids() {
			out = append(out, w.now(id).GetState())
		}
		return strings.Join(out, " ")
	}
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.plan(options())
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		_, err := w.operator().StartRun(ctx, &vipmovev1.StartRunRequest{Options: options(), PlanHash: p.GetHash()})
		refused(t, err, codes.DeadlineExceeded)
		if got := begun(w); got != "" {
			t.Errorf("a start that was given up left a run that is %s", got)
		}
	})
	inWorld(t, 3, func(t *testing.T, w *world) {
		p := w.plan(options())
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		tries := 0
		w.diskFails(func(e handover.Event) (bool, error) {
			if e.Kind != handover.Created || tries == 3 {
				return false, nil
			}
			tries++ // the server knows by then that its caller gave up
			cancel()
			return false, errors.New("slow disk")
		})
		_, err := w.operator().StartRun(ctx, &vipmovev1.StartRunRequest{Options: options(), PlanHash: p.GetHash()})
		refused(t, err, codes.Canceled)
		if got := begun(w); got != "done" {
			t.Errorf("a run that was made is %q", got)
		}
	})
}
