// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vipmove/vipmove/coordinator/handover"
	"github.com/vipmove/vipmove/coordinator/journal"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func TestAnAddressThatCannotBeHadIsNamed(t *testing.T) {
	dir := t.TempDir()
	taken, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	served, err := Listen("unix:" + filepath.Join(dir, "served"))
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		taken.Addr().String():                  "address already in use (choose another address with --listen)",
		"nonsense":                             "missing port in address",
		"127.0.0.1:99999":                      "invalid port",
		"unix:" + filepath.Join(dir, "served"): "another process serves it",
		"unix:" + file:                         "there is a file that is no socket",
		"unix:" + dir + "/no/such/folder":      "no such file or directory",
	} {
		l, err := Listen(address)
		if err == nil {
			_ = l.Close()
			t.Errorf("%s could be had", address)
			continue
		}
		if !strings.HasPrefix(err.Error(), "listening on "+address+": ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "listen tcp") {
			t.Errorf("%s: %v\nwant %q", address, err, want)
		}
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "precious" {
		t.Errorf("the file that was no socket: %q %v", content, err)
	}
}

func TestASocketFileOfAProcessThatHasGoneIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false) // as a killed process leaves it
	_ = old.Close()
	l, err := Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

func TestCommandIDsAreOnesOwn(t *testing.T) {
	seen := map[string]bool{}
	for range 3 { // processes
		next := commandIDs()
		for range 100 {
			id := next()
			if seen[id] {
				t.Fatalf("%s twice", id)
			}
			seen[id] = true
		}
	}
}

func TestReadinessFollowsLeadership(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		s := w.server
		if err := s.Ready(); err != nil {
			t.Errorf("while it leads: %v", err)
		}
		if err := w.halt(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v", err)
		}
		if err := s.Ready(); err == nil {
			t.Error("ready after its end")
		}
	})
}

// A listener that fails takes the process down: agents on it would wait for ever.
func TestAListenerThatFailsEndsTheServer(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		ended := w.ended
		_ = w.listener.Close()
		err := <-ended
		w.mu.Lock()
		w.stop = nil
		w.mu.Unlock()
		if err == nil || !strings.Contains(err.Error(), "serving memory") {
			t.Errorf("Run = %v", err)
		}
	})
}

// What an operator asks of a coordinator that has ended is answered, not left waiting.
func TestAnOrderToADriverThatEndedIsRefused(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		d := w.server.driver
		if err := w.halt(); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		err := error(nil)
		for range cap(d.events) + 1 { // also when nobody empties the queue
			if err = d.order(t.Context(), "r1", handover.Event{Kind: handover.AbortAsked}); err == nil {
				t.Fatal("taken")
			}
		}
		if !strings.Contains(err.Error(), "does not lead any more") {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		d.post(ctx, envelope{})
	})
}

// Outcomes come faster than a journal that is stuck takes them: workers wait, the loop does not, and in the
// end all is taken.
func TestMoreOutcomesThanTheQueueHolds(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		id := w.begin(options())
		w.untilStep(id, "n2", "verified")
		stuck := true
		w.diskFails(func(handover.Event) (bool, error) {
			if stuck {
				return false, errors.New("no space left on device")
			}
			return false, nil
		})
		replies := make(chan error, 3*waiting)
		for range 3 * waiting {
			go func() { replies <- w.server.driver.order(w.ctx, id, handover.Event{Kind: handover.AbortAsked}) }()
		}
		w.wait(time.Minute)
		w.diskFails(nil)
		for range 3 * waiting {
			if err := <-replies; err != nil && !strings.Contains(err.Error(), "has ended") {
				t.Error(err)
			}
		}
		if r, _ := w.watch(id); r.GetState() != "rolled-back" || stepOf(r, "n2").GetState() != "restored" {
			t.Errorf("%s %s: %s", r.GetState(), r.GetReasonCode(), states(r))
		}
	})
}

// The journal forgets nothing, and the process keeps little: no snapshot outlives its judgement.
func TestManyRunsAreListedNewestFirst(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		var want []string
		for range 5 {
			id := w.begin(options())
			w.watch(id)
			if _, err := w.operator().RollbackRun(w.ctx, &vipmovev1.RollbackRunRequest{RunId: id}); err != nil {
				t.Fatal(err)
			}
			w.watch(id)
			want = append([]string{id}, want...)
		}
		for range 2 {
			list, err := w.operator().ListRuns(w.ctx, &vipmovev1.ListRunsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range list.GetRuns() {
				got = append(got, r.GetRunId())
				if r.GetState() != "rolled-back" {
					t.Errorf("%s is %s", r.GetRunId(), r.GetState())
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("listed %v, want %v", got, want)
			}
			kept := w.server.driver.runs
			w.restart()
			for _, id := range got { // the loop's own, which has ended
				if n := len(kept[id].errands); n != 0 {
					t.Errorf("%d effects of %s are kept", n, id)
				}
			}
		}
	})
}

// An event that is impossible where the run stands stops the run instead of being taken (one door).
func TestAnImpossibleMoveStopsTheRun(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		id := w.begin(options())
		w.untilStep(id, "n2", "verified")
		w.server.driver.post(w.ctx, envelope{run: id, event: handover.Event{Kind: "no such event", Node: "n2"}})
		r, _ := w.watch(id)
		if r.GetState() != "needs-decision" || r.GetReasonCode() != "INVARIANT_BROKEN" || stepOf(r, "n2").GetState() != "restored" {
			t.Errorf("%s %s %s: %s", r.GetState(), r.GetReasonCode(), r.GetReason(), states(r))
		}
		if e := w.server.driver.effect(w.ctx, w.server.driver.runs[id], handover.Run{}, handover.Effect{Kind: "new"}); e.Kind != handover.Broken {
			t.Errorf("an effect that nobody knows: %v", e)
		}
	})
}

// A record that another process wrote under the same number means that there are two: this one ends.
func TestAConflictInTheJournalEndsTheDriver(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		id := w.begin(options())
		w.untilStep(id, "n2", "verified")
		ended := w.ended
		w.diskFails(func(handover.Event) (bool, error) { return false, journal.ErrConflict })
		err := <-ended
		w.mu.Lock()
		w.stop = nil
		w.mu.Unlock()
		if !errors.Is(err, journal.ErrConflict) {
			t.Errorf("Run = %v", err)
		}
	})
}
