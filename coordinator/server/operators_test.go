// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// An operator whose terminal stands still holds up no agent, and so no run.
func TestASlowOperatorHoldsUpNobody(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		for _, a := range w.agents {
			a.answering(func(c *vipmovev1.Command) *vipmovev1.CommandResult {
				if c.GetProbe() == nil {
					return nil
				}
				for range 3000 { // far more than a stream takes that nobody reads
					a.tell(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_ReplyHeard{ReplyHeard: &vipmovev1.ReplyHeard{
						CommandId: c.GetCommandId(), Interface: "eth0", Reply: &vipmovev1.Reply{SenderMac: "02:00:00:00:00:aa", SenderIp: testVIP}}}})
				}
				return nil
			})
		}
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		if _, err := w.operator().Survey(ctx, &vipmovev1.SurveyRequest{Vip: testVIP, Rounds: 3}); err != nil { // and reads nothing
			t.Fatal(err)
		}
		w.wait(2 * time.Second)
		for _, a := range w.agents {
			a.answering(nil)
		}
		began := time.Now()
		if r, _ := w.watch(w.begin(options())); r.GetState() != "done" {
			t.Errorf("%s %s %s", r.GetState(), r.GetReasonCode(), r.GetReason())
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("plan and run took %s", took)
		}
	})
}

// Operators look one at a time, so that their looks together leave a run its share of the probe budget.
func TestOperatorsThatLookAtOnceTakeTurnsAndDisturbNoRun(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		id := w.begin(options())
		waited, done := make(chan bool, 5), make(chan error, 5)
		for range 5 {
			go func() {
				_, rows, err := w.survey(&vipmovev1.SurveyRequest{Vip: testVIP})
				waiting := false
				for _, e := range rows {
					waiting = waiting || e.GetProgress() == "waiting for another operator's look"
				}
				waited <- waiting
				done <- err
			}()
		}
		turns := 0
		for range 5 {
			if err := <-done; err != nil {
				t.Error(err)
			}
			turns += boolInt(<-waited)
		}
		if turns != 4 {
			t.Errorf("%d of five waited", turns)
		}
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		w.server.turn <- struct{}{}
		_, err := w.operator().TakeSnapshot(ctx, &vipmovev1.TakeSnapshotRequest{Survey: &vipmovev1.SurveyRequest{Vip: testVIP}})
		refused(t, err, codes.DeadlineExceeded)
		<-w.server.turn
		if r, _ := w.watch(id); r.GetState() != "done" {
			t.Errorf("%s %s %s", r.GetState(), r.GetReasonCode(), r.GetReason())
		}
		w.withinBudget(t)
	})
}

func TestASurveyWhoseOperatorLeftEnds(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(w.ctx)
		stream, err := w.operator().Survey(ctx, &vipmovev1.SurveyRequest{Vip: testVIP, Rounds: 10})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		w.wait(2 * time.Second)
		cancel()
		w.wait(time.Second)
		before := w.lan.probes()
		w.wait(time.Minute)
		if after := w.lan.probes(); after != before || before == 0 {
			t.Errorf("%d probes before it left, %d after", before, after)
		}
	})
}
