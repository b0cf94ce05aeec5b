// SPDX-License-Identifier: Apache-2.0

// Package fleet holds the observers that are connected and the commands that are outstanding with them.
// It judges nothing: an answer that did not come is Lost, which is neither done nor not done.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// Errors that callers tell apart; both are neither success nor proof of anything on the node.
var (
	// ErrAway: the command was not sent: there is no session with that node, or the caller gave up before.
	ErrAway = errors.New("no session with this node")
	// ErrLost: the command was sent and its answer did not come: it was done, or it was not.
	ErrLost = errors.New("the answer was lost")
)

// Config of a Fleet.
type Config struct {
	// Welcome is asked for each new session: journal id, term, watched VIPs.
	Welcome func() *vipmovev1.Welcome
	// Joined is called (with no lock held) when a node says hello; an error turns it away. May be nil.
	Joined func(name string, role vipmovev1.ObserverRole) error
	// Left is called when a node's session ended and no other took its place. May be nil.
	Left func(name string)
	Log  *slog.Logger
	Now  func() time.Time
}

// Fleet is safe for use by any goroutine.
type Fleet struct {
	cfg Config

	mu      sync.Mutex
	members map[string]*member
	changed chan struct{} // closed and made anew whenever a session begins or ends, or a witness first reports
}

// New makes an empty fleet; sessions come in by Serve.
func New(cfg Config) *Fleet {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Fleet{cfg: cfg, members: map[string]*member{}, changed: make(chan struct{})}
}

// Remember adds a node that is known and has no session, so that its absence is seen.
func (f *Fleet) Remember(name string, role vipmovev1.ObserverRole) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.members[name] == nil {
		f.members[name] = &member{hello: &vipmovev1.Hello{Node: name, Role: role}}
	}
}

// Nodes lists every known observer by name, without its kernel's state.
func (f *Fleet) Nodes() []*vipmovev1.Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*vipmovev1.Node
	for name, m := range f.members {
		n := &vipmovev1.Node{
			Name: name, Role: m.hello.GetRole(), Connected: m.session != nil, Version: m.hello.GetVersion(),
			CanAct: m.hello.GetCanAct(), CannotActReason: m.hello.GetCannotActReason(), ControlPlane: m.hello.GetControlPlane(),
			PendingUndo: m.hello.GetPendingUndo(),
		}
		if !m.lastSeen.IsZero() {
			n.LastSeen = timestamppb.New(m.lastSeen)
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b *vipmovev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Requests lists the newest counters of every connected witness, by name, as the witness counts: since it
// started. For what happened between two moments take Tallies.
func (f *Fleet) Requests() []*vipmovev1.Requests {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests()
}

func (f *Fleet) requests() []*vipmovev1.Requests {
	var out []*vipmovev1.Requests
	for _, m := range f.members {
		if m.session != nil && m.requests != nil {
			out = append(out, proto.CloneOf(m.requests))
		}
	}
	slices.SortFunc(out, func(a, b *vipmovev1.Requests) int { return strings.Compare(a.Witness, b.Witness) })
	return out
}

// Connected reports whether there is a session with the node.
func (f *Fleet) Connected(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.connected(name)
}

func (f *Fleet) connected(name string) bool {
	m := f.members[name]
	return m != nil && m.session != nil
}

// Wait returns when there is a session with the node.
func (f *Fleet) Wait(ctx context.Context, name string) error {
	if err := f.waitUntil(ctx, func() bool { return f.connected(name) }); err != nil {
		return fmt.Errorf("waiting for node %s: %w", name, err)
	}
	return nil
}

// WaitRequests returns when some connected witness has reported its requests.
func (f *Fleet) WaitRequests(ctx context.Context) error {
	if err := f.waitUntil(ctx, func() bool { return len(f.requests()) > 0 }); err != nil {
		return fmt.Errorf("waiting for a witness's report: %w", err)
	}
	return nil
}

// waitUntil asks holds, with f.mu held, at every change.
func (f *Fleet) waitUntil(ctx context.Context, holds func() bool) error {
	for {
		f.mu.Lock()
		held, changed := holds(), f.changed
		f.mu.Unlock()
		if held {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Boottime estimates the node's CLOCK_BOOTTIME now, never ahead of it: from its newest message and the
// time since that message came in. Zero, false without a session, or where it never told.
func (f *Fleet) Boottime(name string) (time.Duration, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[name]
	if m == nil || m.session == nil || m.boottime == 0 {
		return 0, false
	}
	return m.boottime + f.cfg.Now().Sub(m.boottimeAt), true
}

// BootID is the node's boot id as its newest hello said.
func (f *Fleet) BootID(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.members[name]; m != nil {
		return m.hello.GetBootId()
	}
	return ""
}

// Do sends a command and waits for its answer. heard, when not nil, gets replies while a probe runs, on the
// goroutine that reads the session, so it must not block; never after Do returned.
// The error is ErrAway, ErrLost (wrapped, with the node), or nil; the result then may hold a refusal or an error of the node's own.
func (f *Fleet) Do(ctx context.Context, name string, c *vipmovev1.Command, heard func(*vipmovev1.ReplyHeard)) (*vipmovev1.CommandResult, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("ordering node %s: %w: %w", name, ErrAway, err)
	}
	f.mu.Lock()
	m := f.members[name]
	if m == nil || m.session == nil {
		f.mu.Unlock()
		return nil, fmt.Errorf("ordering node %s: %w", name, ErrAway)
	}
	s := m.session
	answer := s.expect(c.GetCommandId(), heard)
	f.mu.Unlock()
	defer s.forget(c.GetCommandId(), answer)
	select {
	case s.out <- &vipmovev1.CoordinatorMessage{Message: &vipmovev1.CoordinatorMessage_Command{Command: c}}:
	case <-s.ended:
		return nil, fmt.Errorf("ordering node %s: %w", name, ErrAway)
	case <-ctx.Done():
		return nil, fmt.Errorf("ordering node %s: %w: %w", name, ErrAway, ctx.Err())
	}
	select {
	case r := <-answer.result:
		return r, nil
	case <-s.ended:
		return nil, fmt.Errorf("waiting for the answer of node %s: %w: its session ended", name, ErrLost)
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the answer of node %s: %w: %w", name, ErrLost, ctx.Err())
	}
}

func (f *Fleet) signal() {
	close(f.changed)
	f.changed = make(chan struct{})
}
