// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// round is one call of Prober.Round.
type round struct {
	nic     NIC
	budget  *rate.Limiter
	as      binding
	hear    []netip.Addr
	onReply func(int, Reply)

	sock   socket
	intake intake // the receiving goroutine's, of which there is one at a time

	mu        sync.Mutex // guards collector: one goroutine sends, one receives
	collector *collector
}

func (r *round) start(sock socket, spans []span) {
	r.sock = sock
	r.intake.nic = r.nic
	r.intake.watched.Store(&spans)
}

// fly sends the requests of one wave and listens until the last window is
// over, ctx ends, or the NIC fails.
func (r *round) fly(ctx context.Context, wave []int) error {
	if err := r.sock.setReadDeadline(time.Time{}); err != nil {
		return r.fail("listening for ARP on", err)
	}
	ctx, abandon := context.WithCancelCause(ctx)
	defer abandon(nil)
	deaf := make(chan error, 1)
	go func() {
		err := r.listen()
		if err != nil {
			abandon(err)
		}
		deaf <- err
	}()
	askErr := r.ask(ctx, wave)
	waitErr := r.wait(ctx) // also for what was sent before askErr
	_ = r.sock.setReadDeadline(longAgo)
	listenErr := <-deaf
	if listenErr == nil {
		listenErr = waitErr
	}
	if err := r.land(listenErr); err != nil {
		return err
	}
	return askErr
}

// ask sends one request after the other, as the budget allows. A request that
// cannot be sent does not stop the others.
func (r *round) ask(ctx context.Context, wave []int) error {
	for _, i := range wave {
		asked := time.Now()
		if err := r.budget.Wait(ctx); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return fmt.Errorf("waiting for the probe budget of %s, %d ARP requests a second: %w", r.nic.Name, budgetRate, err)
		}
		waited := time.Since(asked)
		r.mu.Lock()
		request := r.collector.results[i].Request
		r.collector.results[i].Waited = waited
		r.mu.Unlock()
		err := r.send(i, request)
		r.mu.Lock()
		r.collector.results[i].Sent = err == nil
		if err != nil {
			r.collector.results[i].SendError = err.Error()
		}
		r.mu.Unlock()
	}
	return nil
}

// send hands one request to the NIC. Its window is open from before, and stays
// open after an error: that it went out all the same is possible.
func (r *round) send(i int, request Request) error {
	frame, err := Encode(request.frame(r.nic.MAC))
	if err != nil {
		return err
	}
	if err := r.sock.state(); err != nil {
		return r.fail("sending an ARP request on", err)
	}
	r.mu.Lock()
	r.collector.launch(i, time.Now())
	r.mu.Unlock()
	if err := r.sock.send(frame, request.destination()); err != nil {
		return r.fail("sending an ARP request on", err)
	}
	return nil
}

// wait returns when the last window of what was sent is over.
func (r *round) wait(ctx context.Context) error {
	r.mu.Lock()
	end := r.collector.end()
	r.mu.Unlock()
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("collecting answers on %s: %w", r.nic.Name, context.Cause(ctx))
	}
}

// listen files frames until the read deadline passes, then what is queued.
func (r *round) listen() error {
	buf := make([]byte, snapLength)
	for {
		n, m, err := r.sock.receive(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = drain(r.sock, buf, r.take)
		} else if err == nil {
			r.take(buf[:n], m)
			continue
		}
		if err != nil {
			return r.fail("listening for ARP on", err)
		}
		return nil
	}
}

func (r *round) take(b []byte, m Metadata) {
	f, ok := r.intake.accept(b, m)
	if !ok {
		return
	}
	r.mu.Lock()
	reply, request, heard := r.collector.take(f)
	r.mu.Unlock()
	if heard && r.onReply != nil {
		r.onReply(request, reply)
	}
}

// land closes the windows and says in every result what kept it from being
// complete: err, frames lost, a NIC that is not up any more.
func (r *round) land(err error) error {
	if err == nil {
		if state := r.sock.state(); state != nil {
			err = r.fail("listening for ARP on", state)
		}
	}
	dropped, dropErr := r.sock.dropped()
	listenError := errors.Join(err, dropErr)
	r.mu.Lock()
	defer r.mu.Unlock()
	text := ""
	if listenError != nil {
		text = listenError.Error()
	}
	r.collector.land(dropped, text)
	return err
}

func (r *round) fail(doing string, err error) error {
	return &NICError{Doing: doing, NIC: r.nic.Name, Err: err}
}
