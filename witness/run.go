// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/agent/report"
	"github.com/vipmove/vipmove/internal/session"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// reportEvery is how often the counts go to the coordinator; a failure goes at
// once.
const reportEvery = 200 * time.Millisecond

// Options of a witness.
type Options struct {
	// Name of this witness, as in its certificate.
	Name string
	// Version of this program.
	Version string
	// Coordinators, TLS and ServerName are those of session.Config.
	Coordinators []string
	TLS          *tls.Config
	ServerName   string
	// Target of the requests, and Rate a second. Default: DefaultRate.
	Target Target
	Rate   float64
	// Kernel of this host; it is only read. Default: the real one.
	Kernel host.Kernel
	// Enter runs fn inside another network namespace, where the witness is to
	// ask and to listen; the session stays outside. Default: here.
	Enter func(fn func() error) error
	// Log gets a line for each change of state.
	Log *slog.Logger
}

// Run is a witness until ctx ends: it sends requests, streams their counts to
// the coordinator, and carries out the orders that look. Orders that change
// something are refused. It returns ctx's error, or what is wrong with the
// options.
func Run(ctx context.Context, o Options) error {
	w, err := newObserver(o)
	if err != nil {
		return fmt.Errorf("starting witness %s: %w", o.Name, err)
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 3)
	for _, part := range []func(context.Context) error{w.requests.Run, w.stream, w.session.Run} {
		parts.Go(func() { ended <- part(ctx) })
	}
	err = <-ended
	cancel()
	parts.Wait()
	w.orders.Wait()
	return err
}

// observer is a running witness.
type observer struct {
	opts     Options
	bootID   string
	requests *Requests
	looker   *report.Looker
	session  *session.Session
	failure  chan struct{} // a request failed since the last report
	slots    chan struct{} // orders under way
	orders   sync.WaitGroup
}

func newObserver(o Options) (*observer, error) {
	if o.Name == "" {
		return nil, errors.New("it has no name")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Enter == nil {
		o.Enter = func(fn func() error) error { return fn() }
	}
	if o.Kernel == nil {
		kernel, err := host.New(host.Options{Log: o.Log})
		if err != nil {
			return nil, err
		}
		o.Kernel = kernel
	}
	bootID, err := o.Kernel.BootID()
	if err != nil {
		return nil, err
	}
	w := &observer{opts: o, bootID: bootID, failure: make(chan struct{}, 1), slots: make(chan struct{}, maxOrders)}
	w.requests, err = NewRequests(o.Target, RequestsConfig{Rate: o.Rate, Dial: w.dial, Log: o.Log, OnFailure: w.failed})
	if err != nil {
		return nil, err
	}
	w.looker = report.NewLooker(report.Config{Observer: o.Name, Kernel: o.Kernel})
	w.session = session.New(session.Config{
		Coordinators: o.Coordinators,
		ServerName:   o.ServerName,
		TLS:          o.TLS,
		Hello:        w.hello,
		Boottime:     o.Kernel.BootTime,
		Log:          o.Log,
	}, w)
	return w, nil
}

func (w *observer) hello() *vipmovev1.Hello {
	return &vipmovev1.Hello{
		Node:            w.opts.Name,
		Role:            vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS,
		Version:         w.opts.Version,
		BootId:          w.bootID,
		CannotActReason: neverActs,
	}
}

// dial opens the connection of one request.
func (w *observer) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = w.opts.Enter(func() (err error) {
		conn, err = (&net.Dialer{KeepAlive: -1}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// failed wakes stream.
func (w *observer) failed(*RequestError) {
	select {
	case w.failure <- struct{}{}:
	default: // it is awake
	}
}

// stream sends the counts at a steady pace, and at once after a failure. What
// finds no session is dropped: counts only grow, and the next report has all.
func (w *observer) stream(ctx context.Context) error {
	pace := time.NewTicker(reportEvery)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pace.C:
		case <-w.failure:
		}
		if w.session.Connected() {
			w.session.Send(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_Requests{Requests: w.counts()}})
		}
	}
}

// counts is the message of the counts as they stand now.
func (w *observer) counts() *vipmovev1.Requests {
	c := w.requests.Counts()
	m := &vipmovev1.Requests{
		Witness:      w.opts.Name,
		Target:       w.opts.Target.String(),
		Sent:         c.Sent,
		Succeeded:    c.Succeeded,
		Failed:       c.Failed,
		FailedByType: make(map[string]uint64, len(c.ByType)),
		LongestGap:   durationpb.New(c.LongestGap),
		OpenGap:      durationpb.New(c.OpenGap),
		At:           timestamppb.Now(),
		NeighbourMac: w.neighbour(),
		LastError:    c.LastError,
	}
	for failure, n := range c.ByType {
		m.FailedByType[string(failure)] = n
	}
	if !c.LastSuccess.IsZero() {
		m.LastSuccess = timestamppb.New(c.LastSuccess)
	}
	return m
}

// neighbour is the MAC that this kernel has for the VIP; empty also where the
// table cannot be read: unknown.
func (w *observer) neighbour() (mac string) {
	err := w.opts.Enter(func() (err error) {
		mac, err = neighbourMAC(w.opts.Target.Address.Addr())
		return err
	})
	if err != nil {
		w.opts.Log.Debug("cannot read the neighbour entry", "error", err)
	}
	return mac
}
