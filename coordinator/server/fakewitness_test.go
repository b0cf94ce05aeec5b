// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// fakeWitness sends requests to whichever node its neighbour entry names, and reports five times a second.
type fakeWitness struct {
	*fakeObserver

	mu          sync.Mutex
	counts      *vipmovev1.Requests
	lastSuccess time.Time
	failNext    uint64 // requests that fail although the node serves
	stalled     bool   // it sends and reports nothing
	sticky      bool   // its entry stays as it is while requests succeed, as a kernel's does
	heedless    bool   // and takes nothing from announcements
}

const (
	reportPause = 200 * time.Millisecond
	perReport   = 20
)

func newFakeWitness(w *world) *fakeWitness {
	q := &fakeWitness{counts: &vipmovev1.Requests{}, lastSuccess: time.Now()}
	q.fakeObserver = &fakeObserver{world: w, name: "client", role: vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS, carry: q.carryOut,
		hello: func() *vipmovev1.Hello {
			return helloOf("client", vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS, w.lan.host("client").boot)
		}}
	return q
}

func (q *fakeWitness) carryOut(ctx context.Context, c *vipmovev1.Command, say func(*vipmovev1.ReplyHeard)) *vipmovev1.CommandResult {
	switch o := c.GetOrder().(type) {
	case *vipmovev1.Command_ReadKernel:
		return &vipmovev1.CommandResult{Answer: &vipmovev1.CommandResult_Kernel{Kernel: q.world.lan.kernel(q.name)}}
	case *vipmovev1.Command_Probe:
		return q.probe(ctx, o.Probe, say)
	case *vipmovev1.Command_SendRequests:
		a := &vipmovev1.SendRequestsAnswer{Sent: o.SendRequests.GetCount()}
		if q.world.lan.serves(o.SendRequests.GetTargetMac()) {
			a.Succeeded = a.GetSent()
		} else {
			a.LastError = "connection refused"
		}
		return &vipmovev1.CommandResult{Answer: &vipmovev1.CommandResult_SendRequests{SendRequests: a}}
	}
	return &vipmovev1.CommandResult{Error: "a witness changes nothing"}
}

// work sends requests and reports until ctx ends.
func (q *fakeWitness) work(ctx context.Context) {
	for ctx.Err() == nil {
		pause(ctx, reportPause)
		q.mu.Lock()
		stalled := q.stalled
		if !stalled {
			q.request()
		}
		m := &vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_Requests{Requests: &vipmovev1.Requests{
			Sent: q.counts.Sent, Succeeded: q.counts.Succeeded, Failed: q.counts.Failed, LastError: q.counts.LastError,
			NeighbourMac: q.counts.NeighbourMac, OpenGap: durationpb.New(time.Since(q.lastSuccess)), LongestGap: durationpb.New(reportPause), At: timestamppb.Now()}}}
		q.mu.Unlock()
		if !stalled {
			q.tell(m)
		}
	}
}

func (q *fakeWitness) request() {
	if !(q.sticky && q.counts.NeighbourMac != "") && !q.current(q.counts.NeighbourMac) {
		q.counts.NeighbourMac = q.world.lan.resolve()
	}
	serves := q.world.lan.serves(q.counts.NeighbourMac)
	for range perReport {
		q.counts.Sent++
		if serves && q.failNext == 0 {
			q.counts.Succeeded++
			q.lastSuccess = time.Now()
			continue
		}
		q.counts.Failed++
		q.counts.LastError = "timeout"
		q.failNext -= min(1, q.failNext)
	}
}

// current: the neighbour entry is confirmed by whoever has it.
func (q *fakeWitness) current(mac string) bool {
	l := q.world.lan
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.hosts {
		if h.mac == mac {
			return h.held || h.name == l.announcer
		}
	}
	return false
}

func (q *fakeWitness) lose(n uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failNext += n
}

// sticks has the entry stay as it is; heedless: announcements notwithstanding.
func (q *fakeWitness) sticks(heedless bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sticky, q.heedless = true, heedless
}

func (q *fakeWitness) learn(mac string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.heedless {
		q.counts.NeighbourMac = mac
	}
}

func (q *fakeWitness) stall(stalled bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stalled = stalled
}

// restart is a new process: it counts from zero.
func (q *fakeWitness) restart() {
	q.mu.Lock()
	q.counts, q.lastSuccess = &vipmovev1.Requests{NeighbourMac: q.counts.NeighbourMac}, time.Now()
	q.mu.Unlock()
	q.hangUp()
}
