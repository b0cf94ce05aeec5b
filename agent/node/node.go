// SPDX-License-Identifier: Apache-2.0

// Package node is the agent as it runs on a node: its session with the
// coordinator, the orders it obeys and those it refuses (guard), the undo of
// what nobody confirmed, the standing watch, and its metrics and health.
//
// The judgement is pure (policy.go, fence.go, guard.go, ledger.go); steps.go
// and its neighbours carry it out on a host.Kernel and a Store, one change at
// a time; the rest is the rim.
package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/agent/report"
	"github.com/vipmove/vipmove/agent/wire"
	"github.com/vipmove/vipmove/internal/daemon"
	"github.com/vipmove/vipmove/internal/session"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// goodbye bounds how long an agent that was told to stop tries to put back
// what nobody confirmed. Kubernetes kills after 30 s.
const goodbye = 20 * time.Second

// Config is all that an agent is told on its node. Kernel and Sockets are for
// tests; nil is the real thing.
type Config struct {
	Name         string
	Version      string
	ControlPlane bool
	Policy       Policy
	StateDir     string
	Listen       string // host:port of metrics and health
	Coordinators []string
	ServerName   string
	TLS          *tls.Config // nil: no TLS, for tests only
	Interfaces   []string    // NICs to listen on; none: see watchConfig
	Log          *slog.Logger

	Kernel  host.Kernel
	Sockets func(wire.NIC) wire.Sockets
	// Store replaces the records in StateDir in tests.
	Store Store
	// Rights replaces the look at this process's capabilities in tests.
	Rights func() string
	// OnListen is told the address of the HTTP port once it is open.
	OnListen func(net.Addr)
}

// Node is one agent. New opens and starts nothing.
type Node struct {
	cfg     Config
	kernel  *countingKernel
	view    *view
	watch   *watch
	looker  *report.Looker
	session *session.Session
	steps   *Steps // set by Run, before anything can ask for it
	bootID  string

	queue   chan job      // step orders, carried out one at a time in order
	slots   chan struct{} // a token for each order that looks
	looking sync.WaitGroup
	refused map[int32]*atomic.Uint64 // by Refusal.Code

	told     atomic.Pointer[vipmovev1.Hello] // the newest that the coordinator has
	standing chan struct{}                   // capacity 1: an undo fired by itself
}

// New checks the configuration.
func New(cfg Config) (*Node, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Kernel == nil {
		kernel, err := host.New(host.Options{Log: cfg.Log})
		if err != nil {
			return nil, err
		}
		cfg.Kernel = kernel
	}
	if cfg.Sockets == nil {
		cfg.Sockets = func(wire.NIC) wire.Sockets { return nil }
	}
	if cfg.Rights == nil {
		cfg.Rights = netAdmin
	}
	if cfg.OnListen == nil {
		cfg.OnListen = func(net.Addr) {}
	}
	bootID, err := cfg.Kernel.BootID()
	if err != nil {
		return nil, fmt.Errorf("starting the agent: %w", err)
	}
	n := &Node{
		cfg: cfg, kernel: &countingKernel{Kernel: cfg.Kernel}, view: newView(time.Now), bootID: bootID,
		queue: make(chan job, maxQueued), slots: make(chan struct{}, maxLooking),
		refused: map[int32]*atomic.Uint64{}, standing: make(chan struct{}, 1),
	}
	for number := range vipmovev1.Refusal_Code_name {
		n.refused[number] = &atomic.Uint64{}
	}
	n.looker = report.NewLooker(report.Config{
		Observer: cfg.Name, Kernel: n.kernel, Sockets: cfg.Sockets,
		OnRound: n.view.round, OnCapture: n.view.capture,
	})
	n.session = session.New(session.Config{
		Coordinators: cfg.Coordinators, ServerName: cfg.ServerName, TLS: cfg.TLS,
		Hello: n.firstHello, Boottime: n.kernel.BootTime, Log: cfg.Log,
	}, n)
	n.watch = newWatch(watchConfig{
		Kernel: n.kernel, Sockets: cfg.Sockets, Interfaces: cfg.Interfaces,
		View: n.view, Changed: n.changed, Log: cfg.Log,
	})
	return n, nil
}

// Run is the agent's life: records, then the HTTP port, then what an earlier
// process left open, and only then the coordinator. When ctx ends it puts back
// what nobody confirmed and returns nil. An error is why it could not live.
func (n *Node) Run(ctx context.Context) error {
	store, done, err := n.openStore()
	if err != nil {
		return err
	}
	defer done()
	n.steps, err = NewSteps(StepsConfig{
		Node: n.cfg.Name, Policy: n.cfg.Policy, Kernel: n.kernel, Store: store, Log: n.cfg.Log,
		Connected: n.session.Connected, Rights: n.cfg.Rights, OnRefusal: n.countRefusal, OnRestore: n.toldRestored,
	})
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{n})
	server, err := daemon.Endpoint{
		Flag: "--listen", Address: n.cfg.Listen, Metrics: registry, Ready: n.ready, Log: n.cfg.Log,
	}.Listen()
	if err != nil {
		return err
	}
	n.cfg.OnListen(server.Addr())

	// The port stays open until everything else is over: who looks sees why.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	var port errgroup.Group
	port.Go(func() error { return server.Run(serving) })
	err = n.live(ctx)
	stopServing()
	return errors.Join(err, ignoreEnd(port.Wait()))
}

// live runs everything that is not the port, and ends with an undo that is
// pending put back.
func (n *Node) live(ctx context.Context) error {
	n.steps.Recover(ctx)
	n.cfg.Log.Info("agent started", "node", n.cfg.Name, "version", n.cfg.Version, "boot", n.bootID, "act", n.cfg.Policy.Act)
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{n.steps.Run, n.work, n.watch.Run, n.session.Run} {
		group.Go(func() error { return run(ctx) })
	}
	err := ignoreEnd(group.Wait())
	n.looking.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	if !n.steps.restoreBeforeExit(last) {
		n.cfg.Log.Error("stopping with an undo pending: it is on disk and goes on with the next agent", "undo", n.steps.Pending().String())
	}
	n.cfg.Log.Info("agent stopped", "node", n.cfg.Name)
	return err
}

// ignoreEnd: that ctx ended is no error.
func ignoreEnd(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// openStore opens the records. A directory that cannot be had leaves the agent
// up, without any right to change; one that is in use is another agent.
func (n *Node) openStore() (Store, func(), error) {
	if n.cfg.Store != nil {
		return n.cfg.Store, func() {}, nil
	}
	disk, err := OpenDisk(n.cfg.StateDir)
	switch {
	case errors.Is(err, ErrStateInUse):
		return nil, nil, fmt.Errorf("%w (give each agent its own --state-dir)", err)
	case err != nil:
		return noStore{err}, func() {}, nil
	}
	return disk, func() { _ = disk.Close() }, nil
}

// ready says why this agent cannot do its work now.
func (n *Node) ready() error {
	var errs []error
	if !n.session.Connected() {
		why := n.session.LastError()
		if why == "" {
			why = "not yet connected"
		}
		errs = append(errs, fmt.Errorf("no session with a coordinator: %s", why))
	}
	if blocked := n.steps.Pending().GetBlocked(); blocked != "" {
		errs = append(errs, fmt.Errorf("an address cannot be put back: %s", blocked))
	}
	if r := n.steps.CannotAct(); r.GetCode() == vipmovev1.Refusal_STATE_NOT_DURABLE {
		errs = append(errs, fmt.Errorf("%s: %s", r.GetMessage(), r.GetNextStep()))
	}
	return errors.Join(errs...)
}

func (n *Node) countRefusal(code vipmovev1.Refusal_Code) {
	if c := n.refused[int32(code)]; c != nil {
		c.Add(1)
	}
}

// changed tells the coordinator, if there is one, that it may want to look.
func (n *Node) changed(what string) {
	n.session.Send(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_Changed{
		Changed: &vipmovev1.Changed{What: what},
	}})
}

func (n *Node) toldRestored(step Step) {
	select { // the records are held here: the worker says it
	case n.standing <- struct{}{}:
	default:
	}
	n.changed(fmt.Sprintf("put %s back (%s)", step.Entry, step.Reason))
}
