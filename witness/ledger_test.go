// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// after is noon and so many milliseconds.
func after(ms int64) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }

func TestLedgerTellsAnOutageAsAStory(t *testing.T) {
	var l Ledger
	if diff := cmp.Diff(Counts{}, l.Counts(noon)); diff != "" {
		t.Errorf("empty (-want +got):\n%s", diff)
	}
	l.Sent(after(0))
	if c := l.Counts(after(30)); c.OpenGap != 30*time.Millisecond || c.LongestGap != 0 {
		t.Errorf("no success yet: %+v, want an open gap since the first request", c)
	}
	l.Succeeded(after(50))
	l.Sent(after(100))
	l.Succeeded(after(150))
	l.Sent(after(200))
	l.Failed(failed(Refused, errors.New("connection refused")))
	l.Sent(after(300))
	l.Failed(failed(Reset, errors.New("connection reset by peer")))
	want := Counts{
		Sent: 4, Succeeded: 2, Failed: 2, ByType: map[Failure]uint64{Refused: 1, Reset: 1},
		LongestGap: 100 * time.Millisecond, OpenGap: 200 * time.Millisecond,
		LastSuccess: after(150), LastError: "reset: connection reset by peer",
	}
	if diff := cmp.Diff(want, l.Counts(after(350))); diff != "" {
		t.Errorf("during the outage (-want +got):\n%s", diff)
	}
	l.Sent(after(400))
	l.Succeeded(after(420))
	want.Sent, want.Succeeded, want.LastSuccess = 5, 3, after(420)
	want.LongestGap, want.OpenGap = 270*time.Millisecond, 10*time.Millisecond
	if diff := cmp.Diff(want, l.Counts(after(430))); diff != "" {
		t.Errorf("after it (-want +got):\n%s", diff)
	}
}

func TestCountsAreACopy(t *testing.T) {
	var l Ledger
	l.Sent(noon)
	l.Failed(failed(Cut, errors.New("x")))
	before := l.Counts(noon)
	l.Sent(noon)
	l.Failed(failed(Cut, errors.New("x")))
	if before.ByType[Cut] != 1 {
		t.Error("counts changed after they were taken")
	}
}

// The ledger against the plainest way to say what it measures.
func TestLedgerAgreesWithAListOfEventsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Ledger
		var sent, failures uint64
		var first time.Time
		var successes []time.Time
		now := noon
		open := 0
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "pass")))
			if open == 0 || rapid.Bool().Draw(t, "send") {
				if sent == 0 {
					first = now
				}
				sent++
				open++
				l.Sent(now)
				continue
			}
			open--
			if rapid.Bool().Draw(t, "good") {
				successes = append(successes, now)
				l.Succeeded(now)
			} else {
				failures++
				l.Failed(failed(rapid.SampledFrom(Failures).Draw(t, "type"), errors.New("x")))
			}
		}
		now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "last")))
		c := l.Counts(now)

		var longest, openGap time.Duration
		for i := 1; i < len(successes); i++ {
			longest = max(longest, successes[i].Sub(successes[i-1]))
		}
		switch {
		case len(successes) > 0:
			openGap = now.Sub(successes[len(successes)-1])
		case sent > 0:
			openGap = now.Sub(first)
		}
		var byType uint64
		for _, n := range c.ByType {
			byType += n
		}
		if c.Sent != sent || c.Failed != failures || c.Succeeded != uint64(len(successes)) ||
			c.LongestGap != longest || c.OpenGap != openGap || byType != failures {
			t.Fatalf("counts = %+v\nwant %d sent, %d succeeded, %d failed, longest %s, open %s",
				c, sent, len(successes), failures, longest, openGap)
		}
		if len(c.ByType) > len(Failures) {
			t.Fatalf("%d types", len(c.ByType))
		}
	})
}

func TestSuccessesThatArriveOutOfOrderOpenNoGap(t *testing.T) {
	var l Ledger
	l.Sent(after(0))
	l.Sent(after(1))
	l.Succeeded(after(100))
	l.Succeeded(after(90))
	if c := l.Counts(after(120)); c.OpenGap != 20*time.Millisecond || c.LongestGap != 0 {
		t.Errorf("counts = %+v, want the later success to stand", c)
	}
}

func TestLossBoundIsWhatTheTablesSay(t *testing.T) {
	for _, tt := range []struct {
		failed, sent uint64
		percent      string
	}{
		{0, 0, "100.000"},
		{0, 1, "95.000"},
		{0, 40, "7.216"},
		{0, 100, "2.951"},
		{0, 1000, "0.299"},
		{0, 6000, "0.050"},
		{1, 10, "39.416"},
		{1, 40, "11.319"},
		{5, 10, "77.756"},
		{9, 10, "99.488"},
		{10, 10, "100.000"},
		{11, 10, "100.000"},
		{3, 6000, "0.129"},
	} {
		if got := fmt.Sprintf("%.3f", 100*LossBound(tt.failed, tt.sent)); got != tt.percent {
			t.Errorf("LossBound(%d, %d) = %s %%, want %s %%", tt.failed, tt.sent, got, tt.percent)
		}
	}
}

// atMost is P(at most k of n are lost) at loss rate p, summed up.
func atMost(k, n uint64, p float64) float64 {
	sum := 0.0
	lgN, _ := math.Lgamma(float64(n) + 1)
	for i := uint64(0); i <= k; i++ {
		lgI, _ := math.Lgamma(float64(i) + 1)
		lgR, _ := math.Lgamma(float64(n-i) + 1)
		sum += math.Exp(lgN - lgI - lgR + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
	}
	return sum
}

func TestLossBoundLeavesFivePercentByDirectSumProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(1, 5000).Draw(t, "sent")
		k := rapid.Uint64Range(0, n-1).Draw(t, "failed")
		bound := LossBound(k, n)
		if bound <= float64(k)/float64(n) || bound > 1 {
			t.Fatalf("LossBound(%d, %d) = %v, want it above the rate seen", k, n, bound)
		}
		if left := atMost(k, n, bound); math.Abs(left-0.05) > 1e-6 {
			t.Fatalf("at LossBound(%d, %d) = %v the chance to see no more is %v, want 5 %%", k, n, bound, left)
		}
		if more := LossBound(k+1, n); more < bound {
			t.Fatalf("one failure more lowers the bound from %v to %v", bound, more)
		}
		if longer := LossBound(k, n+1); longer > bound {
			t.Fatalf("one success more raises the bound from %v to %v", bound, longer)
		}
	})
}

func TestLossBoundOfAVeryLongRun(t *testing.T) {
	const n = 1_000_000_000
	for _, k := range []uint64{1, 1000, n / 2, n - 1} {
		rate := float64(k) / n
		bound := LossBound(k, n)
		if bound < rate || bound > rate+6*math.Sqrt(float64(k)+1)/n+1e-4 || math.IsNaN(bound) {
			t.Errorf("LossBound(%d, %d) = %v", k, uint64(n), bound)
		}
	}
}
