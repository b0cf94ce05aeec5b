// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// report is a witness's counters, the second of its clock among them.
func report(second int, sent, failed uint64) *vipmovev1.Requests {
	return &vipmovev1.Requests{Witness: "somebody else", Sent: sent, Succeeded: sent - failed, Failed: failed, At: timestamppb.New(noon.Add(time.Duration(second) * time.Second))}
}

func TestRequestsBearTheNameOfTheCertificate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		b, a := w.join(witness("b")), w.join(witness("a"))
		b.counts(report(1, 10, 0))
		a.counts(report(1, 20, 0))
		a.counts(report(2, 30, 1))
		var got []string
		for _, q := range w.fleet.Requests() {
			got = append(got, q.GetWitness())
			q.Sent = 0 // a copy: nobody else sees this
		}
		if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" {
			t.Error(diff)
		}
		if q := w.fleet.Requests()[0]; q.GetSent() != 30 || q.GetFailed() != 1 {
			t.Errorf("newest counters of a: %v", q)
		}
	})
}

func TestAnAgentCannotSpeakAsAWitness(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.join(hello("n1"))
		p.counts(report(1, 10, 0))
		p.send(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_Hello{Hello: witness("n1")}})
		p.counts(report(2, 20, 0))
		if len(w.fleet.Requests()) != 0 || len(w.fleet.Tallies()) != 0 {
			t.Errorf("requests %v, tallies %v", w.fleet.Requests(), w.fleet.Tallies())
		}
	})
}

func TestCountersOfAWitnessThatLeftAreNotItsNewest(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.join(witness("client"))
		p.counts(report(1, 10, 0))
		p.close()
		synctest.Wait()
		if len(w.fleet.Requests()) != 0 {
			t.Errorf("a witness that is away: %v", w.fleet.Requests())
		}
		p = w.join(witness("client"))
		if len(w.fleet.Requests()) != 0 {
			t.Errorf("a witness that has not reported in this session: %v", w.fleet.Requests())
		}
		p.counts(report(9, 30, 2))
		if got := w.fleet.Tallies(); len(got) != 1 || got[0].Sent != 20 || got[0].Failed != 2 || !got[0].Connected {
			t.Errorf("what it sent while it was away counts: %+v", got)
		}
	})
}

func TestATallyAddsUpWhateverRestarts(t *testing.T) {
	tests := []struct {
		name                   string
		reports                []*vipmovev1.Requests
		sent, failed, reports2 uint64
	}{
		{"the first report is the base", []*vipmovev1.Requests{report(1, 500, 40)}, 0, 0, 1},
		{"each adds what is new", []*vipmovev1.Requests{report(1, 500, 40), report(2, 520, 40), report(3, 530, 41)}, 30, 1, 3},
		{"the same report twice", []*vipmovev1.Requests{report(1, 500, 0), report(2, 510, 0), report(2, 510, 0)}, 10, 0, 2},
		{"an idle witness reports all the same", []*vipmovev1.Requests{report(1, 500, 0), report(2, 500, 0)}, 0, 0, 2},
		{"the witness restarts", []*vipmovev1.Requests{report(1, 500, 40), report(2, 510, 41), report(3, 7, 2)}, 17, 3, 3},
		{"it restarts and had only failed before", []*vipmovev1.Requests{report(1, 5, 5), report(2, 9, 0)}, 9, 0, 2},
		{"it restarts with its clock behind", []*vipmovev1.Requests{report(100, 500, 40), report(3, 7, 2)}, 7, 2, 2},
		{"counters without a time", []*vipmovev1.Requests{{Sent: 1}, {Sent: 5}}, 0, 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got tally
			for _, q := range tt.reports {
				got.take(q, noon)
			}
			if got.sent != tt.sent || got.failed != tt.failed || got.reports != tt.reports2 {
				t.Errorf("sent %d failed %d reports %d, want %d %d %d", got.sent, got.failed, got.reports, tt.sent, tt.failed, tt.reports2)
			}
		})
	}
}

// A witness that is asked often enough loses nothing of what it counted, over any number of restarts.
func TestATallyIsWhatTheWitnessCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var got tally
		var sent, failed, allSent, allFailed uint64
		got.take(report(0, 0, 0), noon)
		for i := range rapid.IntRange(0, 30).Draw(t, "reports") {
			before := got
			// A restart that already sent more than the life before cannot be told from going on: this one has not.
			if sent > 0 && rapid.Bool().Draw(t, "restart") {
				sent, failed = rapid.Uint64Range(0, sent-1).Draw(t, "sent anew"), 0
				allSent += sent
			} else {
				more := rapid.Uint64Range(0, 50).Draw(t, "more")
				bad := rapid.Uint64Range(0, more).Draw(t, "bad")
				sent, failed, allSent, allFailed = sent+more, failed+bad, allSent+more, allFailed+bad
			}
			got.take(report(i+1, sent, failed), noon)
			if got.sent < before.sent || got.failed < before.failed || got.reports <= before.reports {
				t.Fatalf("fell from %+v to %+v", before, got)
			}
		}
		if got.sent != allSent || got.failed != allFailed {
			t.Fatalf("sent %d failed %d, want %d %d", got.sent, got.failed, allSent, allFailed)
		}
	})
}

func TestWaitRequestsReturnsWithTheFirstReport(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		wait := make(chan error, 1)
		go func() { wait <- w.fleet.WaitRequests(t.Context()) }()
		p := w.join(witness("client"))
		if len(wait) != 0 {
			t.Fatal("no witness has reported yet")
		}
		p.counts(report(1, 1, 0))
		if err := <-wait; err != nil {
			t.Error(err)
		}
		p.close()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.fleet.WaitRequests(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting for a witness's report") {
			t.Errorf("got %v", err)
		}
	})
}

func TestTheBootClockIsNeverAhead(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if b, ok := w.fleet.Boottime("n1"); ok {
			t.Errorf("boot clock of a node that never came: %v", b)
		}
		booted := time.Now().Add(-time.Hour) // what the node's own clock is, exactly
		p := w.join(hello("n1"))
		step := func(d time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			<-ctx.Done()
		}
		check := func(most time.Duration) {
			t.Helper()
			b, ok := w.fleet.Boottime("n1")
			behind := time.Since(booted) - b
			if !ok || behind < 0 || behind > most {
				t.Errorf("boot clock %v %v is %v behind, want 0 to %v", b, ok, behind, most)
			}
		}
		check(0)
		step(3 * time.Hour) // an idle session: the estimate goes on by our own clock
		check(0)
		m := &vipmovev1.ObserverMessage{Boottime: durationpb.New(time.Since(booted))}
		step(time.Second) // a second on the way
		p.send(m)
		synctest.Wait()
		check(time.Second)
		p.send(&vipmovev1.ObserverMessage{}) // one that does not tell leaves it as it was
		synctest.Wait()
		check(time.Second)
		p.close()
		synctest.Wait()
		if _, ok := w.fleet.Boottime("n1"); ok {
			t.Error("a node that is away has a boot clock")
		}
	})
}

// A node that booted counts from zero: the old clock would be ahead of it.
func TestTheBootClockIsThatOfThisSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.join(hello("n1"))
		p := w.dial()
		p.send(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_Hello{Hello: hello("n1")}}) // does not tell
		if _, err := p.rpc.Recv(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if b, ok := w.fleet.Boottime("n1"); ok {
			t.Errorf("boot clock %v of an earlier session", b)
		}
	})
}
