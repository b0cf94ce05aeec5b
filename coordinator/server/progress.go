// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"slices"

	"github.com/vipmove/vipmove/coordinator/handover"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// progress is a run with what only this process knows of it.
type progress struct {
	// Written by the loop, guarded by driver.mu for all others.
	run     handover.Run
	doing   string
	marks   marks                // request counters when the run began, or went on after an end
	counted delta                // requests of the stretches before marks
	step    map[string]marks     // request counters when the node's step began
	after   *vipmovev1.Judgement // the final look
	last    *sight               // its evidence, for the announcement that follows

	errands map[string]*errand // effects under way, by node and kind; the loop's alone
}

// errand is one effect under way. Its fields are the loop's.
type errand struct {
	key    string
	cancel context.CancelFunc
	off    bool // called off: its outcome is of no run any more
}

// view is a run as readers see it.
type view struct {
	run    handover.Run
	doing  string
	after  *vipmovev1.Judgement
	totals delta // requests during the run, as far as this process saw it
}

func newProgress(run handover.Run) *progress {
	return &progress{run: run, step: map[string]marks{}, errands: map[string]*errand{}}
}

// begin notes an effect that starts. A newer one of the same kind at the same node takes the older one's place.
func (p *progress) begin(f handover.Effect, cancel context.CancelFunc) *errand {
	e := &errand{key: f.Node + "/" + string(f.Kind), cancel: cancel}
	if old := p.errands[e.key]; old != nil {
		old.callOff()
	}
	p.errands[e.key] = e
	return e
}

// finish takes an effect's outcome in; false: it was called off meanwhile and says nothing any more.
func (p *progress) finish(e *errand) bool {
	if p.errands[e.key] == e {
		delete(p.errands, e.key)
	}
	return !e.off
}

// callOff ends every effect under way: what is still wanted is ordered anew.
func (p *progress) callOff() {
	for _, e := range p.errands {
		e.callOff()
	}
	clear(p.errands)
}

func (e *errand) callOff() {
	e.off = true
	e.cancel()
}

// publish shows what has become durable.
func (d *driver) publish(p *progress, next handover.Run) {
	tallies, now := d.fleet.Tallies(), d.now()
	d.mu.Lock()
	was := p.run
	switch {
	case next.Ended() && !was.Ended(): // an ended run counts nothing any more
		p.counted = p.counted.plus(p.marks.since(tallies, now))
	case was.Ended() && !next.Ended():
		p.marks = marksOf(tallies)
	}
	if next.Ended() {
		p.doing = ""
	}
	p.run = next
	d.runs[next.ID] = p
	d.wake()
	d.mu.Unlock()
	d.logMoves(was, next)
}

func (d *driver) logMoves(was, is handover.Run) {
	if was.State != is.State {
		d.log.Info("run changed state", "run", is.ID, "from", string(was.State), "to", string(is.State), "code", string(is.Code), "reason", is.Reason)
	}
	for i, s := range is.Steps {
		if i < len(was.Steps) && was.Steps[i].State != s.State {
			d.log.Info("step changed state", "run", is.ID, "node", s.Node, "from", string(was.Steps[i].State), "to", string(s.State), "detail", s.Detail)
		}
	}
}

// wake tells every watcher that something changed; d.mu is held.
func (d *driver) wake() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// setDoing says what is being done for a run, and what that was before. A run that has ended does nothing.
func (d *driver) setDoing(p *progress, what string) (before string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before = p.doing
	if p.doing != what && !p.run.Ended() {
		p.doing = what
		d.wake()
	}
	return before
}

func (d *driver) setAfter(p *progress, j *vipmovev1.Judgement) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.after = j
}

func (d *driver) setLastLook(p *progress, v *sight) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p.last = v
}

func (d *driver) lastLook(p *progress) *sight {
	d.mu.Lock()
	defer d.mu.Unlock()
	return p.last
}

func (d *driver) stepBegins(p *progress, node string) marks {
	began := marksOf(d.fleet.Tallies())
	d.mu.Lock()
	defer d.mu.Unlock()
	p.step[node] = began
	return began
}

func (d *driver) stepMarks(p *progress, node string) marks {
	d.mu.Lock()
	m := p.step[node]
	d.mu.Unlock()
	if m == nil {
		return d.stepBegins(p, node) // after a take-over: from now on
	}
	return m
}

// totals are the requests during a run.
func (d *driver) totals(p *progress) delta {
	tallies := d.fleet.Tallies()
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.run.Ended() {
		return p.counted
	}
	return p.counted.plus(p.marks.since(tallies, d.now()))
}

// ids lists the runs, oldest first.
func (d *driver) ids() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for id := range d.runs {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// active is the run that has not ended, if any: one at a time.
func (d *driver) active() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, p := range d.runs {
		if !p.run.Ended() {
			return id
		}
	}
	return ""
}

// view is a copy of a run for readers, and the channel that closes at the next change of any run.
func (d *driver) view(id string) (view, <-chan struct{}, bool) {
	d.mu.Lock()
	p, changed := d.runs[id], d.changed
	if p == nil {
		d.mu.Unlock()
		return view{}, changed, false
	}
	v := view{run: p.run, doing: p.doing, after: p.after}
	d.mu.Unlock()
	v.totals = d.totals(p)
	return v, changed, true
}
