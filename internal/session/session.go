// SPDX-License-Identifier: Apache-2.0

// Package session holds the one outbound stream that an agent or a witness
// keeps with its coordinator: it dials, says hello, passes commands on in
// order, sends results and reports, and starts over with a jittered, capped
// backoff whenever the stream ends.
package session

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// Protocol is the major version of the wire contract (Hello.protocol,
// Welcome.protocol). Peers of different majors turn each other away.
const Protocol int32 = 1

const (
	defaultMinBackoff = 200 * time.Millisecond
	defaultMaxBackoff = 2 * time.Second

	// queueLength bounds the messages that wait to be written to one stream.
	queueLength = 256
)

// Config says whom to dial and how. The zero value of every field that has a
// default gives that default.
type Config struct {
	// Coordinators are tried in order, one per attempt: host:port or unix:PATH.
	Coordinators []string
	// ServerName is the name that the coordinator's certificate must carry.
	ServerName string
	// TLS is used as it is but for ServerName. nil dials without TLS, for tests only.
	TLS *tls.Config
	// Hello makes this observer's first message, anew for every attempt. Its
	// protocol is filled in here.
	Hello func() *vipmovev1.Hello
	// Boottime reads this host's CLOCK_BOOTTIME. Default: the kernel's.
	Boottime func() time.Duration
	// MinBackoff and MaxBackoff bound the full-jitter wait between attempts:
	// uniform in [0, min(MaxBackoff, MinBackoff·2ⁿ)). Default 200 ms and 2 s.
	MinBackoff, MaxBackoff time.Duration
	// Rand returns a number in [0, 1). Default: math/rand/v2.
	Rand func() float64
	// Log gets one line per state change. Default: discarded.
	Log *slog.Logger

	// dial replaces the network in tests.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Handler is what an observer does with its session. All its methods are
// called from the goroutine of Run, so never two at once.
type Handler interface {
	// Welcome is the coordinator's first message. An error ends this session
	// (for example another journal id) and is what LastError then says; the
	// session is tried again with backoff.
	Welcome(*vipmovev1.Welcome) error
	// Command is called in the order in which commands arrive and must not
	// block for long: the handler starts its own work. ctx ends with this
	// session. reply queues the result on this same session, from any
	// goroutine, never blocks, and does nothing once the session is over: the
	// coordinator asks again by command id.
	Command(ctx context.Context, c *vipmovev1.Command, reply func(*vipmovev1.CommandResult))
	// Disconnected is called once for every session whose Welcome was
	// accepted, after it ended.
	Disconnected(err error)
}

// Session is one observer's line to its coordinator. Run owns it; the other
// methods may be called from any goroutine at any time.
type Session struct {
	cfg     Config
	handler Handler

	mu        sync.Mutex
	current   *stream // nil while there is none
	connected bool    // current's Welcome was accepted
	lastErr   string
}

// New returns a session that does nothing until Run.
func New(cfg Config, h Handler) *Session {
	cfg.setDefaults()
	return &Session{cfg: cfg, handler: h}
}

// Run holds the session, dialling again after every end, until ctx ends. It
// returns ctx's error, or at once an error when the configuration names no
// coordinator or no Hello.
func (s *Session) Run(ctx context.Context) error {
	switch {
	case len(s.cfg.Coordinators) == 0:
		return errors.New("starting the session: no coordinator address given")
	case s.cfg.Hello == nil:
		return errors.New("starting the session: no hello given")
	}
	wait := backoff{min: s.cfg.MinBackoff, max: s.cfg.MaxBackoff, rand: s.cfg.Rand}
	for attempt := 0; ; attempt++ {
		address := s.cfg.Coordinators[attempt%len(s.cfg.Coordinators)]
		began := time.Now()
		welcomed, err := s.attempt(ctx, address)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.failed(address, welcomed, err)
		if welcomed {
			attempt = -1 // the first address of the list is the preferred one
			if time.Since(began) >= s.cfg.MaxBackoff {
				wait.reset()
			}
		}
		if err := sleep(ctx, wait.next()); err != nil {
			return err
		}
	}
}

// Send queues a message for the coordinator and never blocks. It reports false
// when there is no session or its queue is full: the message is then dropped.
// The boot time is stamped when the message is written; m itself is not
// changed and may be sent again.
func (s *Session) Send(m *vipmovev1.ObserverMessage) bool {
	s.mu.Lock()
	current := s.current
	s.mu.Unlock()
	return current != nil && current.enqueue(m)
}

// Connected reports whether a session is open and its Welcome was accepted.
func (s *Session) Connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connected
}

// LastError says why there is no session, a sentence that names the
// coordinator's address; empty while connected and before the first attempt
// ended.
func (s *Session) LastError() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastErr
}

// failed notes the end of an attempt and logs it unless the same was said last.
func (s *Session) failed(address string, welcomed bool, err error) {
	s.mu.Lock()
	repeated := s.lastErr == err.Error()
	s.lastErr = err.Error()
	s.mu.Unlock()
	switch {
	case welcomed:
		s.cfg.Log.Warn("lost coordinator", "address", address, "error", err)
	case !repeated:
		s.cfg.Log.Warn("cannot reach coordinator", "address", address, "error", err)
	}
}

// sleep waits for d or for the end of ctx, whose error it returns.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
