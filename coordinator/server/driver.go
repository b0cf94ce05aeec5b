// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vipmove/vipmove/coordinator/fleet"
	"github.com/vipmove/vipmove/coordinator/handover"
	"github.com/vipmove/vipmove/coordinator/journal"
)

// driver is the single loop that moves runs: an event is applied, made durable, shown, and only then are
// its effects carried out (I9). Effects run in goroutines of their own and come back as events.
type driver struct {
	journal journal.Journal
	fleet   *fleet.Fleet
	survey  *surveyor
	log     *slog.Logger
	now     func() time.Time
	events  chan envelope
	stopped chan struct{} // closed when Run has returned
	workers sync.WaitGroup

	mu      sync.Mutex // guards what follows; written by the loop only
	runs    map[string]*progress
	changed chan struct{}
}

// envelope brings an event to the loop.
type envelope struct {
	run   string
	event handover.Event
	from  *errand    // the effect that it is the outcome of; nil for an order and a take-over
	reply chan error // holds one; nil for events of the driver's own
}

const (
	// gatherWait bounds how long a take-over waits for observers to come back.
	gatherWait = 10 * time.Second
	// waiting bounds the outcomes that wait for a slow journal; then workers wait in turn.
	waiting = 64
)

func newDriver(j journal.Journal, f *fleet.Fleet, s *surveyor, log *slog.Logger, now func() time.Time) *driver {
	return &driver{journal: j, fleet: f, survey: s, log: log, now: now, events: make(chan envelope, waiting),
		stopped: make(chan struct{}), runs: map[string]*progress{}, changed: make(chan struct{})}
}

// load replays every run from the journal. It starts nothing. Whoever leads loads again once its term is
// raised: from then on nobody else appends.
func (d *driver) load() error {
	ids, err := d.journal.Runs()
	if err != nil {
		return fmt.Errorf("listing runs in the journal: %w", err)
	}
	runs := map[string]*progress{}
	for _, id := range ids {
		events, err := d.journal.Load(id)
		if err != nil {
			return fmt.Errorf("loading run %s: %w", id, err)
		}
		run, err := journal.Replay(events)
		if err != nil {
			return fmt.Errorf("loading run %s: %w", id, err)
		}
		runs[id] = newProgress(run)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs = runs
	return nil
}

// Run resumes what was under way and drives until ctx ends or this process may not act any more; nothing is
// sent after that.
func (d *driver) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer close(d.stopped)
	defer d.workers.Wait()
	defer cancel()
	if id := d.active(); id != "" {
		d.workers.Go(func() { d.resume(ctx, id) })
	}
	for {
		select {
		case e := <-d.events:
			if err := d.take(ctx, e); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// resume takes a run over. Beside the loop, so that an abort need not wait.
func (d *driver) resume(ctx context.Context, id string) {
	v, _, _ := d.view(id)
	d.gather(ctx, v.run)
	d.log.Info("resuming a run", "run", id, "state", string(v.run.State), "term", d.journal.Term())
	d.post(ctx, envelope{run: id, event: handover.Event{Kind: handover.Resumed, Term: d.journal.Term()}})
}

// gather gives observers a moment to come back after a take-over: a look with half of them away would
// undo a good step. Their undo outlives this wait.
func (d *driver) gather(ctx context.Context, run handover.Run) {
	ctx, cancel := context.WithTimeout(ctx, gatherWait)
	defer cancel()
	for _, s := range run.Steps {
		if err := d.fleet.Wait(ctx, s.Node); err != nil {
			d.log.Warn("resuming without an observer", "run", run.ID, "error", err)
		}
	}
	if !run.Plan.Options.NoWitness {
		if err := d.fleet.WaitRequests(ctx); err != nil {
			d.log.Warn("resuming without a witness", "run", run.ID, "error", err)
		}
	}
}

// take moves one run by one event. The error it returns is fatal: this process must not act any more.
func (d *driver) take(ctx context.Context, e envelope) error {
	p, err := d.admit(e)
	switch {
	case err != nil && e.reply != nil:
		e.reply <- err
		return nil
	case err != nil:
		d.log.Error("dropping an event", "kind", string(e.event.Kind), "error", err)
		return nil
	case e.from != nil && !p.finish(e.from):
		return nil
	}
	e.event.At = d.now()
	was := p.run
	next, effects, err := was.Apply(e.event)
	if err != nil && e.reply != nil {
		e.reply <- status.Error(codes.FailedPrecondition, err.Error())
		return nil
	}
	if err != nil {
		d.log.Error("stopping a run at an impossible move", "run", e.run, "error", err)
		e.event = handover.Event{Kind: handover.Broken, At: e.event.At, Detail: err.Error()}
		if next, effects, err = was.Apply(e.event); err != nil {
			return fmt.Errorf("stopping run %s: %w", e.run, err)
		}
	}
	if err := d.record(ctx, p, e); err != nil {
		if e.reply != nil {
			e.reply <- status.Error(codes.Unavailable, err.Error())
		}
		return err
	}
	d.publish(p, next)
	if e.reply != nil {
		e.reply <- nil
	}
	if was.State == handover.Running && next.State != handover.Running || next.Ended() {
		p.callOff() // a restore overtakes whatever was under way; its answer is the whole truth
	}
	for _, f := range effects {
		d.carryOut(ctx, p, f)
	}
	return nil
}

// admit finds the run of an event. One run moves at a time, and only the loop can tell.
func (d *driver) admit(e envelope) (*progress, error) {
	p := d.runs[e.run]
	if e.reply != nil {
		if busy := d.active(); busy != "" && busy != e.run {
			return nil, underWay(busy)
		}
	}
	switch {
	case p == nil && e.event.Kind != handover.Created:
		return nil, status.Errorf(codes.NotFound, "no run %q", e.run)
	case p == nil:
		p = newProgress(handover.New())
		p.marks = marksOf(d.fleet.Tallies())
	}
	return p, nil
}

func underWay(id string) error {
	return status.Errorf(codes.FailedPrecondition, "run %s is under way, and one run moves at a time: watch it with `vipmove watch %s` or end it with `vipmove abort %s`", id, id, id)
}

// record makes the event durable before anything follows from it. A full or slow disk holds the run; the
// agents' undo runs on without us. Superseded, or at the end of ctx, it gives up.
func (d *driver) record(ctx context.Context, p *progress, e envelope) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := d.journal.Append(e.run, p.run.Revision, e.event)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, journal.ErrSuperseded), errors.Is(err, journal.ErrConflict):
			return err
		}
		d.log.Error("waiting for the journal; nothing moves until it can be written", "run", e.run, "error", err)
		before := d.setDoing(p, "waiting for the journal: "+err.Error())
		pause(ctx, wait)
		d.setDoing(p, before)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// order hands an operator's event to the loop and waits until it is durable.
func (d *driver) order(ctx context.Context, run string, e handover.Event) error {
	reply := make(chan error, 1)
	gone := status.Error(codes.Unavailable, "this coordinator does not lead any more; ask again")
	select {
	case d.events <- envelope{run: run, event: e, reply: reply}:
	case <-d.stopped:
		return gone
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	select {
	case err := <-reply:
		return err
	case <-d.stopped:
		return gone
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// post hands an outcome to the loop.
func (d *driver) post(ctx context.Context, e envelope) {
	select {
	case d.events <- e:
	case <-ctx.Done():
	}
}
