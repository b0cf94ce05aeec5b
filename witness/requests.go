// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"sync"
	"time"
)

const (
	// DefaultRate of requests, per second.
	DefaultRate = 50.0
	// MaxRate bounds what a mistyped rate can do to a service.
	MaxRate = 1000.0

	// spareSlots is what may be under way beyond rate × timeout.
	spareSlots = 8
	// maxBacklog: a program that was stopped for longer does not catch up.
	maxBacklog = time.Second
)

// RequestsConfig says how requests are sent. The zero value of every field
// gives a default.
type RequestsConfig struct {
	// Rate per second, at most MaxRate. Default: DefaultRate.
	Rate float64
	// Dial opens one new connection. Default: the kernel's, on the goroutine
	// of the request.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// OnFailure is called after each failed request, from many goroutines; it
	// must not block.
	OnFailure func(*RequestError)
	// Log gets a line when requests begin to fail and when they succeed again.
	Log *slog.Logger
}

// Requests sends real requests at a steady rate, each over a TCP connection of
// its own. The pace is open-loop: a request is sent when it is due, whether or
// not those before it were answered, so an outage is seen in its full length.
type Requests struct {
	target Target
	cfg    RequestsConfig

	mu      sync.Mutex
	ledger  Ledger
	mood    mood
	skipped uint64
}

// calmAfter successes in a row requests are said to succeed again.
const calmAfter = 20

// mood keeps the log to one line for each change, also while some requests
// fail and some do not.
type mood struct {
	failing bool
	streak  int // successes in a row
}

// turn notes an outcome and reports whether it changes the mood.
func (m *mood) turn(ok bool) bool {
	if !ok {
		turned := !m.failing
		*m = mood{failing: true}
		return turned
	}
	m.streak++
	if !m.failing || m.streak < calmAfter {
		return false
	}
	m.failing = false
	return true
}

// NewRequests starts nothing.
func NewRequests(t Target, cfg RequestsConfig) (*Requests, error) {
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("preparing requests: %w", err)
	}
	if cfg.Rate == 0 {
		cfg.Rate = DefaultRate
	}
	if !(cfg.Rate > 0 && cfg.Rate <= MaxRate) {
		return nil, fmt.Errorf("preparing requests: rate %v is not above 0 and up to %v a second", cfg.Rate, MaxRate)
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{KeepAlive: -1}).DialContext
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Requests{target: t, cfg: cfg}, nil
}

// Counts is the ledger as it stands now.
func (r *Requests) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger.Counts(time.Now())
}

// Skipped counts requests that were due and not sent, because this program was
// stopped or too many were under way. They are in no other count.
func (r *Requests) Skipped() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.skipped
}

// Run sends requests until ctx ends and those under way have ended, and returns
// ctx's error.
func (r *Requests) Run(ctx context.Context) error {
	interval := time.Duration(float64(time.Second) / r.cfg.Rate)
	slots := make(chan struct{}, int(math.Ceil(r.cfg.Rate*r.target.timeout().Seconds()))+spareSlots)
	var underWay sync.WaitGroup
	defer underWay.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for due := time.Now(); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		select {
		case slots <- struct{}{}:
			underWay.Go(func() {
				defer func() { <-slots }()
				r.once()
			})
		default:
			r.skip(1)
		}
		due = due.Add(interval)
		if behind := time.Since(due); behind > maxBacklog {
			missed := behind / interval
			r.skip(uint64(missed))
			due = due.Add(missed * interval)
		}
		timer.Reset(time.Until(due))
	}
}

func (r *Requests) skip(n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipped += n
}

// once sends one request and enters what came of it. It outlives Run's context
// by the target's timeout at most: a request cut short would count as failed.
func (r *Requests) once() {
	r.mu.Lock()
	r.ledger.Sent(time.Now())
	r.mu.Unlock()

	failure := r.request()

	r.mu.Lock()
	if failure == nil {
		r.ledger.Succeeded(time.Now())
	} else {
		r.ledger.Failed(failure)
	}
	turned := r.mood.turn(failure == nil)
	r.mu.Unlock()

	if failure != nil && r.cfg.OnFailure != nil {
		r.cfg.OnFailure(failure)
	}
	switch {
	case turned && failure != nil:
		r.cfg.Log.Warn("requests fail", "target", r.target, "failure", failure.Failure, "error", failure.Err)
	case turned:
		r.cfg.Log.Info("requests succeed again", "target", r.target)
	}
}

func (r *Requests) request() *RequestError {
	deadline := time.Now().Add(r.target.timeout())
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	conn, err := r.cfg.Dial(ctx, "tcp", r.target.Address.String())
	if err != nil {
		return connecting(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return failed(Local, fmt.Errorf("setting the deadline: %w", err))
	}
	return r.target.exchange(conn)
}
