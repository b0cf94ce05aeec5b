// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// hole is a connection that loses everything from the moment it is opened up,
// with neither FIN nor RST: a path that died.
type hole struct {
	net.Conn
	mu   sync.Mutex
	open bool
	lost chan struct{} // closed when the owner of this end gave up
	gone sync.Once
}

func (h *hole) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = true
}

func (h *hole) losing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

func (h *hole) Write(b []byte) (int, error) {
	if h.losing() {
		return len(b), nil
	}
	return h.Conn.Write(b)
}

func (h *hole) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	for err == nil && h.losing() {
		n, err = h.Conn.Read(b)
	}
	return n, err
}

func (h *hole) Close() error {
	if h.losing() {
		h.gone.Do(func() { close(h.lost) })
		return nil // the peer hears nothing of it
	}
	return h.Conn.Close()
}

func TestC47HalfOpenStreamIsNoticedByBothSidesWithin20s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken *hole
		n := network{wrap: func(c net.Conn) net.Conn {
			broken = &hole{Conn: c, lost: make(chan struct{})}
			return broken
		}}
		var serverNoticed time.Time
		c := &coordinator{session: welcoming(welcome(), func(h *vipmovev1.Hello, s serverStream) error {
			err := holding(h, s)
			serverNoticed = time.Now()
			return err
		})}
		c.start(t, n.listen("a:1"))
		o := &observer{}
		s := New(config(&n, "a:1"), o)
		stop := run(t, s)
		synctest.Wait()
		if !s.Connected() {
			t.Fatalf("not connected: %s", s.LastError())
		}
		n.drop("a:1")
		broken.lose()
		from := time.Now()
		<-broken.lost
		if after := time.Since(from); after >= 20*time.Second {
			t.Errorf("the observer noticed after %s, want less than 20 s", after)
		}
		pass(20*time.Second - time.Since(from))
		synctest.Wait()
		if serverNoticed.IsZero() {
			t.Error("the coordinator did not notice within 20 s")
		}
		if _, ended := o.heard(); len(ended) != 1 || s.Connected() {
			t.Errorf("connected %t, ends %v: want one session ended", s.Connected(), ended)
		}
		stop()
		broken.Conn.Close()
	})
}

func TestC47AnIdleDayBringsNoTooManyPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n network
		(&coordinator{session: welcoming(welcome(), holding)}).start(t, n.listen("a:1"))
		o := &observer{}
		s := New(config(&n, "a:1"), o)
		run(t, s)
		pass(24 * time.Hour)
		synctest.Wait()
		if _, ended := o.heard(); len(ended) != 0 || !s.Connected() {
			t.Errorf("connected %t, %d sessions ended, want one that lives", s.Connected(), len(ended))
		}
	})
}

func TestSendNeverBlocksAndSaysWhenTheQueueIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n network
		var reply func(*vipmovev1.CommandResult)
		o := &observer{command: func(_ context.Context, _ *vipmovev1.Command, r func(*vipmovev1.CommandResult)) { reply = r }}
		c := &coordinator{session: welcoming(welcome(), func(_ *vipmovev1.Hello, s serverStream) error {
			if err := s.Send(command("1")); err != nil {
				return err
			}
			<-s.Context().Done() // reads nothing
			return nil
		})}
		c.start(t, n.listen("a:1"))
		s := New(config(&n, "a:1"), o)
		run(t, s)
		synctest.Wait()

		large := &vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_Changed{
			Changed: &vipmovev1.Changed{What: strings.Repeat("x", 8<<10)},
		}}
		taken := 0
		for s.Send(large) {
			if taken++; taken > 10*queueLength {
				t.Fatalf("%d messages of 8 KiB were taken and nobody reads", taken)
			}
		}
		synctest.Wait() // the writer has taken what the stream holds
		for s.Send(large) {
			taken++
		}
		if taken < queueLength {
			t.Errorf("%d messages were taken, want %d at least", taken, queueLength)
		}
		if large.GetBoottime() != nil {
			t.Error("Send changed the caller's message")
		}

		// A result is not dropped in silence: the session ends, so the coordinator asks again.
		reply(&vipmovev1.CommandResult{CommandId: "1"})
		synctest.Wait()
		if _, ended := o.heard(); len(ended) != 1 || !strings.Contains(ended[0].Error(), errQueueFull.Error()) {
			t.Errorf("ends = %v, want one: %v", ended, errQueueFull)
		}
	})
}

func TestAReplyAfterItsSessionEndedDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n network
		var results []string
		sessions := 0
		c := &coordinator{session: welcoming(welcome(), func(h *vipmovev1.Hello, s serverStream) error {
			if sessions++; sessions == 1 {
				return s.Send(command("old"))
			}
			for {
				m, err := s.Recv()
				if err != nil {
					return err
				}
				results = append(results, m.GetResult().GetCommandId())
			}
		})}
		c.start(t, n.listen("a:1"))
		var late func(*vipmovev1.CommandResult)
		var during context.Context
		o := &observer{command: func(ctx context.Context, _ *vipmovev1.Command, r func(*vipmovev1.CommandResult)) {
			during, late = ctx, r
		}}
		s := New(config(&n, "a:1"), o)
		run(t, s)
		pass(time.Minute)
		if !s.Connected() || during.Err() == nil {
			t.Fatalf("connected %t, the old command's context %v", s.Connected(), during.Err())
		}
		for range 2 * queueLength {
			late(&vipmovev1.CommandResult{CommandId: "old"})
		}
		synctest.Wait()
		if len(results) != 0 || !s.Connected() {
			t.Errorf("results %v, connected %t: want none, and the new session untouched", results, s.Connected())
		}
	})
}

func TestEverySweepWaitsALittleLongerUpToTheCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n network
		cfg := config(&n, "a:1")
		cfg.Rand = func() float64 { return math.Nextafter(1, 0) } // the longest wait of all
		run(t, New(cfg, &observer{}))
		pass(time.Minute)
		// 0.2+0.4+0.8+1.6 s, then 2 s each: 4 waits and 28 more in a minute.
		if got := len(n.attempts()); got < 32 || got > 34 {
			t.Errorf("%d attempts in a minute at the longest waits, want 33", got)
		}
	})
}

func TestACoordinatorThatDropsEverySessionAtOnceIsNotHammered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n network
		c := &coordinator{session: welcoming(welcome(), func(*vipmovev1.Hello, serverStream) error { return nil })}
		c.start(t, n.listen("a:1"))
		cfg := config(&n, "a:1")
		cfg.Rand = func() float64 { return 0.5 }
		run(t, New(cfg, &observer{}))
		pass(time.Minute)
		if got := len(n.attempts()); got > 70 {
			t.Errorf("%d sessions in a minute, want the backoff to grow", got)
		}
	})
}

func TestBackoffIsJitteredAndCappedProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := time.Duration(rapid.Int64Range(1, int64(time.Second)).Draw(t, "min"))
		most := time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "max"))
		r := rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "rand")
		b := backoff{min: least, max: most, rand: func() float64 { return r }}
		before := time.Duration(0)
		for i := range 80 {
			got := b.next()
			if got < 0 || got > most || got < before {
				t.Fatalf("wait %d = %s after %s, cap %s", i, got, before, most)
			}
			before = got
		}
		if want := time.Duration(r * float64(most)); before != want {
			t.Fatalf("the last wait = %s, want %s: the ceiling did not reach the cap", before, want)
		}
		b.reset()
		if got := b.next(); got > least {
			t.Fatalf("after reset %s, want at most %s", got, least)
		}
	})
}
