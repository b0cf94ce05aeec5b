// SPDX-License-Identifier: Apache-2.0

// Package server is the coordinator: sessions of observers, the operator's calls, and the driver loop.
package server

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/vipmove/vipmove/coordinator/fleet"
	"github.com/vipmove/vipmove/coordinator/journal"
	"github.com/vipmove/vipmove/internal/session"
	"github.com/vipmove/vipmove/internal/version"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// watchEvery is how often a watcher of a run is told the request counters although nothing else changed.
const watchEvery = 500 * time.Millisecond

// Config of a Server. Zero fields but the first three have defaults.
type Config struct {
	Journal   journal.Journal
	Listeners []net.Listener // gRPC; Run closes them
	TLS       *tls.Config
	Watched   []string // VIPs that agents watch from the start
	Log       *slog.Logger
	Now       func() time.Time
	// Window is how long replies to a probe are collected (1.2 s), QuestionWindow how long answers to the
	// announcer question are (0.5 s).
	Window, QuestionWindow time.Duration
}

func (c *Config) setDefaults() {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Window <= 0 {
		c.Window = defaultWindow
	}
	if c.QuestionWindow <= 0 {
		c.QuestionWindow = defaultQuestionWindow
	}
}

// Server is one coordinator process.
type Server struct {
	cfg      Config
	fleet    *fleet.Fleet
	survey   *surveyor
	driver   *driver
	reviewed reviewed
	starting sync.Mutex
	turn     chan struct{} // holds a token while an operator looks: one at a time
	now      func() time.Time
	leading  atomic.Bool

	mu    sync.Mutex
	known map[string]bool // agents that the journal has
}

// New loads the journal. It starts nothing.
func New(cfg Config) (*Server, error) {
	cfg.setDefaults()
	s := &Server{cfg: cfg, now: cfg.Now, turn: make(chan struct{}, 1), known: map[string]bool{}}
	s.fleet = fleet.New(fleet.Config{Welcome: s.welcome, Joined: s.joined, Log: cfg.Log, Now: cfg.Now})
	s.survey = &surveyor{fleet: s.fleet, ids: commandIDs(), fence: s.lookFence, now: cfg.Now, window: cfg.Window, questionWindow: cfg.QuestionWindow}
	s.driver = newDriver(cfg.Journal, s.fleet, s.survey, cfg.Log, cfg.Now)
	nodes, err := cfg.Journal.Nodes()
	if err != nil {
		return nil, fmt.Errorf("listing known nodes in the journal: %w", err)
	}
	for name, role := range nodes {
		s.known[name] = true
		s.fleet.Remember(name, vipmovev1.ObserverRole(vipmovev1.ObserverRole_value[role]))
	}
	if err := s.driver.load(); err != nil {
		return nil, err
	}
	return s, nil
}

// commandIDs makes ids that no other process makes again.
func commandIDs() func() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails, crypto/rand
	prefix := hex.EncodeToString(b[:])
	var n atomic.Uint64
	return func() string { return fmt.Sprintf("%s-%d", prefix, n.Add(1)) }
}

// Run raises the term, serves and drives until ctx ends. An error other than ctx's is fatal to the process:
// above all journal.ErrSuperseded, after which it must not act.
func (s *Server) Run(ctx context.Context) error {
	term, err := s.cfg.Journal.RaiseTerm()
	if err != nil {
		return err
	}
	if err := s.driver.load(); err != nil {
		return err
	}
	s.cfg.Log.Info("leading", "journal", s.cfg.Journal.ID(), "term", term)
	g := s.grpc()
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range s.cfg.Listeners {
		group.Go(func() error {
			if err := g.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				return fmt.Errorf("serving %s: %w", l.Addr(), err)
			}
			return nil
		})
	}
	driven := make(chan struct{})
	group.Go(func() error {
		defer close(driven)
		return s.driver.Run(ctx)
	})
	s.leading.Store(true)
	<-ctx.Done()
	s.leading.Store(false)
	<-driven // before the sessions end: that would be taken for answers that the nodes lost
	g.Stop()
	return group.Wait()
}

func (s *Server) grpc() *grpc.Server {
	keepalive, enforcement := session.ServerKeepalive()
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(s.cfg.TLS)), grpc.KeepaliveParams(keepalive), grpc.KeepaliveEnforcementPolicy(enforcement),
		grpc.ConnectionTimeout(10*time.Second), grpc.ReadBufferSize(4<<10), grpc.WriteBufferSize(4<<10), grpc.WaitForHandlers(true))
	vipmovev1.RegisterObserversServer(g, &observers{Server: s})
	vipmovev1.RegisterControlServer(g, &control{Server: s})
	return g
}

// Ready tells why this coordinator cannot lead; nil when it does.
func (s *Server) Ready() error {
	if !s.leading.Load() {
		return errors.New("not leading yet")
	}
	return nil
}

func (s *Server) welcome() *vipmovev1.Welcome {
	return &vipmovev1.Welcome{JournalId: s.cfg.Journal.ID(), Term: s.cfg.Journal.Term(), Protocol: session.Protocol,
		WatchedVips: s.cfg.Watched, Version: version.Version}
}

// joined makes a node known for good, so that its later absence is seen. One that is known costs no write: it
// can come back while the disk is full.
func (s *Server) joined(name string, role vipmovev1.ObserverRole) error {
	if role != vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[name] {
		return nil
	}
	if err := s.cfg.Journal.RememberNode(name, role.String()); err != nil {
		return err
	}
	s.known[name] = true
	return nil
}

// observers serves agents and witnesses.
type observers struct {
	vipmovev1.UnimplementedObserversServer
	*Server
}

// Session implements Observers.
func (o *observers) Session(stream fleet.Stream) error {
	return o.fleet.Serve(stream, session.Protocol, func(h *vipmovev1.Hello) error { return observes(stream.Context(), h) })
}
