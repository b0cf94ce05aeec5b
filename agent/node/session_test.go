// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/agent/wire"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func TestASessionFromHelloToConfirm(t *testing.T) {
	c, r := startCoordinator(t), world(t)
	r.run(func(cfg *Config) { cfg.Coordinators, cfg.ControlPlane = []string{c.address}, true })
	l := c.next()
	h := l.hello
	if h.GetNode() != testNode || h.GetRole() != vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT || !h.GetCanAct() || !h.GetControlPlane() ||
		h.GetVersion() != "v0" || h.GetBootId() == "" || h.GetPendingUndo() != nil {
		t.Errorf("hello %v", h)
	}
	until(t, "it is ready", func() bool { status, _ := r.get("/readyz"); return status == 200 })

	l.state(prepareOrder(l.fence(testRun), r.entry), prepared)
	l.state(removeOrder(l.fence(testRun), removeID), removed)
	if r.held() {
		t.Error("the address is still there")
	}
	if _, body := r.get("/metrics"); !strings.Contains(body, "vipmove_undo_pending 1") {
		t.Errorf("no undo is pending:\n%s", body)
	}
	l.state(confirmOrder(l.fence(testRun), removeID), confirmed)
	if refusal := l.do(removeOrder(l.fence("run2"), "other")).GetRefusal(); refusal.GetCode() != vipmovev1.Refusal_NOT_PREPARED {
		t.Errorf("refusal %v", refusal)
	}
	if _, body := r.get("/metrics"); !strings.Contains(body, `vipmove_refusals_total{refusal="NOT_PREPARED"} 1`) || !strings.Contains(body, "vipmove_undo_pending 0") {
		t.Errorf("metrics:\n%s", body)
	}
	if err := r.end(); err != nil || r.held() {
		t.Errorf("after the end: held %v, %v", r.held(), err)
	}
}

func TestTheTimerFiresByItselfAndTellsTheCoordinator(t *testing.T) {
	c, r := startCoordinator(t), world(t)
	r.run(func(cfg *Config) { cfg.Coordinators = []string{c.address} })
	l := c.next()
	l.state(prepareOrder(l.fence(testRun), r.entry), prepared)
	l.state(removeOrder(l.fence(testRun), removeID), removed)
	r.kernel.Advance(testTTL) // the machine slept: timers did not run, the boot clock did
	until(t, "the address is back", r.held)
	until(t, "the coordinator is told", func() bool {
		select {
		case what := <-l.changes:
			return strings.Contains(what, "put 192.0.2.50/32 on kube-ipvs0 back (expired)")
		default:
			return false
		}
	})
	l.state(confirmOrder(l.fence(testRun), removeID), restored)
}

func TestAHeadlessAgentPutsBackAndChangesNothingElseI13(t *testing.T) {
	c, r := startCoordinator(t), world(t)
	r.run(func(cfg *Config) { cfg.Coordinators = []string{c.address} })
	l := c.next()
	l.state(prepareOrder(l.fence(testRun), r.entry), prepared)
	l.state(removeOrder(l.fence(testRun), removeID), removed)
	c.server.Stop()
	<-l.ended
	until(t, "it notices", func() bool { status, _ := r.get("/readyz"); return status == 503 })
	r.kernel.Advance(testTTL)
	until(t, "the address is back", r.held)
	until(t, "it says why", func() bool { return strings.Contains(r.log.String(), "reason=headless") })
	if n := len(r.kernel.Deletes()); n != 1 {
		t.Errorf("%d deletes", n)
	}
}

func TestAnOrderWhoseSessionIsOverIsNotCarriedOutI13(t *testing.T) {
	s := newStory(t)
	s.expect(s.prepare(), prepared)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	n := &Node{cfg: Config{Log: slog.New(slog.DiscardHandler)}, steps: s.steps, queue: make(chan job, 2)}
	replies := make(chan *vipmovev1.CommandResult, 2)
	reply := func(r *vipmovev1.CommandResult) { replies <- r }
	inquire := inquireOrder(s.fence(), removeID)
	inquire.CommandId = "inquire"
	n.queue <- job{over, removeOrder(s.fence(), removeID), reply}
	n.queue <- job{t.Context(), inquire, reply}
	ctx, stop := context.WithCancel(t.Context())
	var worker sync.WaitGroup
	worker.Go(func() { _ = n.work(ctx) })
	s.expect(<-replies, notSeenBefore)
	stop()
	worker.Wait()
	s.wantHeld(true)
	s.wantDeletes(0)
}

func TestToldToStopItPutsBackWhatNobodyConfirmed(t *testing.T) {
	c, r := startCoordinator(t), world(t)
	dir := t.TempDir()
	r.run(func(cfg *Config) { cfg.Coordinators, cfg.StateDir = []string{c.address}, dir })
	l := c.next()
	l.state(prepareOrder(l.fence(testRun), r.entry), prepared)
	l.state(removeOrder(l.fence(testRun), removeID), removed)
	if err := r.end(); err != nil || !r.held() {
		t.Fatalf("held %v, %v", r.held(), err)
	}
	r.run(func(cfg *Config) { cfg.Coordinators, cfg.StateDir = []string{c.address}, dir })
	if a := c.next().state(inquireOrder(l.fence(testRun), removeID), restored); a.GetRestoreReason() != "shutdown" {
		t.Errorf("answer %v", a)
	}
}

func TestOrdersThatLookRunBesideEachOtherAndOneThatChanges(t *testing.T) {
	c, r := startCoordinator(t), world(t)
	r.other.Answer(wire.KernelAnswers(vip), wire.AnnouncerAnswers(vip))
	r.run(func(cfg *Config) { cfg.Coordinators = []string{c.address} })
	l := c.next()
	until(t, "it listens", func() bool {
		_, body := r.get("/metrics")
		return strings.Contains(body, `vipmove_observer_up{interface="eth0"} 1`)
	})
	probe := l.send(&vipmovev1.Command{Order: &vipmovev1.Command_Probe{Probe: &vipmovev1.Probe{
		Interface: "eth0", Vip: vip.String(), Window: durationpb.New(500 * time.Millisecond),
		Requests: []*vipmovev1.ProbeRequest{{Kind: vipmovev1.ProbeKind_PROBE_KIND_BROADCAST}},
	}}})
	capture := l.send(&vipmovev1.Command{Order: &vipmovev1.Command_Capture{Capture: &vipmovev1.Capture{
		Interface: "eth0", Vip: vip.String(), Duration: durationpb.New(500 * time.Millisecond),
	}}})
	read := l.send(&vipmovev1.Command{Order: &vipmovev1.Command_ReadKernel{ReadKernel: &vipmovev1.ReadKernel{Vips: []string{vip.String()}}}})
	change := l.send(prepareOrder(l.fence(testRun), r.entry))
	got := map[string]*vipmovev1.CommandResult{}
	var order []string
	for range 4 {
		select {
		case result := <-l.results:
			got[result.GetCommandId()] = result
			order = append(order, result.GetCommandId())
		case <-time.After(patience):
			t.Fatalf("only %v answered", order)
		}
	}
	if n := len(got[probe].GetProbe().GetRounds()[0].GetReplies()); n != 2 {
		t.Errorf("%d replies, want the two of one station", n)
	}
	if got[read].GetKernel() == nil || !got[capture].GetCapture().GetOutgoing().GetCaptured() || got[change].GetStep().GetState() != prepared {
		t.Errorf("answers %v", got)
	}
	if late := order[2:]; late[0] != probe && late[1] != probe {
		t.Errorf("the answers came in the order %v: the probe held the others up", order)
	}
	for range 2 {
		if h := <-l.heard; h.GetCommandId() != probe || h.GetReply().GetSenderMac() != mac2.String() {
			t.Errorf("shown live: %v", h)
		}
	}
	until(t, "the view is in the metrics", func() bool {
		_, body := r.get("/metrics")
		return strings.Contains(body, `vipmove_vip_owner{interface="eth0",owner="other",vip="192.0.2.50"} 1`)
	})
}

func TestTheStandingWatchHintsAtChanges(t *testing.T) {
	c, r := startCoordinator(t), world(t)
	r.run(func(cfg *Config) { cfg.Coordinators = []string{c.address} })
	l := c.next()
	until(t, "it listens for the VIP", func() bool {
		_, body := r.get("/metrics")
		return strings.Contains(body, `vipmove_observer_up{interface="eth0"} 1`) && strings.Contains(body, `vip="192.0.2.50"`)
	})
	told := func(part string) func() bool {
		return func() bool {
			select {
			case what := <-l.changes:
				return strings.Contains(what, part)
			default:
				return false
			}
		}
	}
	if err := r.other.Send(announcement(vip, mac2)); err != nil {
		t.Fatal(err)
	}
	until(t, "an announcement is told", told("02:00:00:00:00:02 announced 192.0.2.50 on eth0"))
	r.kernel.Drop(testDummy, r.entry.Prefix)
	until(t, "an address that goes is told", told("192.0.2.50 is gone"))
	r.kernel.LoseHints()
	until(t, "lost hints are told", told("notifications of the kernel were lost"))
	if result := l.do(&vipmovev1.Command{Order: &vipmovev1.Command_Watch{Watch: &vipmovev1.Watch{Vips: []string{"192.0.2.51", "2001:db8::1", "x"}}}}); !strings.Contains(result.GetError(), "only IPv4") {
		t.Errorf("watching nonsense: %v", result)
	}
	until(t, "the labels follow", func() bool {
		_, body := r.get("/metrics")
		return strings.Contains(body, `vip="192.0.2.51"`) && !strings.Contains(body, `vip="192.0.2.50"`)
	})
	// A NIC that goes down is said to be blind, and comes back by itself.
	r.port.Fail(wire.ErrDown)
	until(t, "a NIC that is down is not up", func() bool {
		_, body := r.get("/metrics")
		return strings.Contains(body, `vipmove_observer_up{interface="eth0"} 0`)
	})
	r.port.Fail(nil)
	r.kernel.RenameLink("eth0", "eth0") // a link hint
	until(t, "it listens again", func() bool {
		_, body := r.get("/metrics")
		return strings.Contains(body, `vipmove_observer_up{interface="eth0"} 1`)
	})
}

func TestOrdersForSomebodyElseAreAnswered(t *testing.T) {
	c, r := startCoordinator(t), world(t)
	r.run(func(cfg *Config) { cfg.Coordinators = []string{c.address} })
	l := c.next()
	for name, command := range map[string]*vipmovev1.Command{
		"ask a witness":       {Order: &vipmovev1.Command_SendRequests{SendRequests: &vipmovev1.SendRequests{}}},
		"does not know":       {},
		"reading the kernel:": {Order: &vipmovev1.Command_ReadKernel{ReadKernel: &vipmovev1.ReadKernel{Vips: []string{"x"}}}},
	} {
		if result := l.do(command); !strings.Contains(result.GetError(), name) {
			t.Errorf("%v, want an error that says %q", result, name)
		}
	}
}
