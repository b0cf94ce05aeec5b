// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/coordinator/fleet/fleettest"
	"github.com/vipmove/vipmove/coordinator/journal"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// Every order that changes a node says who orders what, for which boot, and until when on the node's own
// clock; no later than five seconds from then (I5, I7).
func TestEveryChangingOrderIsFenced(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		var mu sync.Mutex
		got := map[string]*vipmovev1.Command{}
		ids := map[string]bool{}
		a := w.agents["n1"]
		a.answering(func(c *vipmovev1.Command) *vipmovev1.CommandResult {
			f, _ := fenceOf(c)
			if f == nil {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			if left := f.GetDeadlineBoottime().AsDuration() - a.boottime(); left <= 0 || left > commandLife {
				t.Errorf("%s has %s left", kindOf(c), left)
			}
			if ids[c.GetCommandId()] {
				t.Errorf("command id %s twice", c.GetCommandId())
			}
			ids[c.GetCommandId()] = true
			c = proto.CloneOf(c)
			if c.GetRemove() == nil {
				c.CommandId = "" // one of the coordinator's own
			}
			got[kindOf(c)] = c
			return nil
		})
		o := options()
		o.Ttl = durationpb.New(20 * time.Second)
		o.Overrides = []string{"MANAGER_RUNNING"}
		id := w.begin(o)
		r, _ := w.watch(id)
		if _, err := w.operator().RollbackRun(w.ctx, &vipmovev1.RollbackRunRequest{RunId: id}); err != nil {
			t.Fatal(err)
		}
		w.watch(id)
		mu.Lock()
		defer mu.Unlock()
		fence := &vipmovev1.Fence{JournalId: "memory", Term: 1, RunId: id, PlanHash: r.GetPlanHash(), Step: id + "/n1", Node: "n1", BootId: "boot-n1"}
		remove := stepOf(r, "n1").GetCommandId()
		want := map[string]*vipmovev1.Command{
			"prepare": {Order: &vipmovev1.Command_Prepare{Prepare: &vipmovev1.Prepare{Fence: fence, Entry: staleAddress(), Vip: testVIP, Overrides: []string{"MANAGER_RUNNING"}}}},
			"remove":  {CommandId: remove, Order: &vipmovev1.Command_Remove{Remove: &vipmovev1.Remove{Fence: fence, Ttl: durationpb.New(20 * time.Second)}}},
			"extend":  {Order: &vipmovev1.Command_Extend{Extend: &vipmovev1.Extend{Fence: fence, RemoveCommandId: remove, Ttl: durationpb.New(20 * time.Second)}}},
			"confirm": {Order: &vipmovev1.Command_Confirm{Confirm: &vipmovev1.Confirm{Fence: fence, RemoveCommandId: remove}}},
			"restore": {Order: &vipmovev1.Command_Restore{Restore: &vipmovev1.Restore{Fence: fence, RemoveCommandId: remove, Rollback: true}}},
		}
		if diff := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(&vipmovev1.Fence{}, "deadline_boottime")); diff != "" {
			t.Errorf("orders to n1 (-want +got):\n%s", diff)
		}
	})
}

// While a node is watched its undo must not fire, however long that takes.
func TestTheUndoIsExtendedForAsLongAsTheNodeIsWatched(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		o := options()
		o.Ttl, o.CanarySoak = durationpb.New(shortestTTL), durationpb.New(2*time.Minute)
		r, _ := w.watch(w.begin(o))
		if r.GetState() != "done" {
			t.Errorf("%s %s %s", r.GetState(), r.GetReasonCode(), r.GetReason())
		}
		if n := w.agents["n2"].orders("extend"); n < 2*60/10 || n > 2*60/3 {
			t.Errorf("extended %d times in two minutes, the TTL is %s", n, shortestTTL)
		}
	})
}

// What another process wrote between the loading and the lead is seen: whoever leads loads once more.
func TestWhoeverLeadsKnowsWhatTheLastOneWrote(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		l := fleettest.Listen()
		early, err := New(Config{Journal: journal.NewMemory(w.disk), Listeners: []net.Listener{l}, TLS: w.serverTLS()})
		if err != nil {
			t.Fatal(err)
		}
		id := w.begin(options())
		w.watch(id)
		if err := w.halt(); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(w.ctx)
		ended := make(chan error, 1)
		go func() { ended <- early.Run(ctx) }()
		w.until("it leads", func() bool { return early.Ready() == nil })
		if v, _, ok := early.driver.view(id); !ok || v.run.State != "done" {
			t.Errorf("it knows of the run: %v, %s", ok, v.run.State)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A probe of many questions takes longer than its window: the NIC's own budget holds them back.
func TestAProbeHasTheTimeThatItsBudgetTakes(t *testing.T) {
	many := &vipmovev1.Probe{Requests: make([]*vipmovev1.ProbeRequest, 49), Window: durationpb.New(time.Second)}
	if got := budgetWait(many); got != 10*time.Second {
		t.Errorf("49 requests and the hearing test take %s, want 10s", got)
	}
	inWorld(t, 3, func(t *testing.T, w *world) {
		w.agents["n1"].answering(func(c *vipmovev1.Command) *vipmovev1.CommandResult {
			if c.GetProbe() != nil { // held back, and slow besides
				w.wait(budgetWait(c.GetProbe()) + answerSlack - 10*time.Millisecond)
			}
			return nil
		})
		j, _, err := w.survey(&vipmovev1.SurveyRequest{Vip: testVIP})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range j.GetObservers() {
			if o.GetState() != "hears" && o.GetObserver() != "client" {
				t.Errorf("%v", o)
			}
		}
	})
}
