// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"sync"
	"time"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// member is one known observer. Fields are guarded by Fleet.mu.
type member struct {
	hello      *vipmovev1.Hello
	session    *session // nil: away
	lastSeen   time.Time
	boottime   time.Duration // the node's CLOCK_BOOTTIME, of this session …
	boottimeAt time.Time     // … when this came in
	requests   *vipmovev1.Requests
	tally      tally
}

// session is one open stream. out is written by one goroutine; ended closes once.
type session struct {
	out   chan *vipmovev1.CoordinatorMessage
	ended chan struct{}
	once  sync.Once

	mu       sync.Mutex
	expected map[string]*expectation
}

type expectation struct {
	result chan *vipmovev1.CommandResult // holds one

	mu    sync.Mutex
	heard func(*vipmovev1.ReplyHeard) // nil: nobody listens, or not any more
}

// outgoing bounds the commands that wait for one slow stream; then Do waits in turn.
const outgoing = 64

func newSession() *session {
	return &session{
		out: make(chan *vipmovev1.CoordinatorMessage, outgoing), ended: make(chan struct{}),
		expected: map[string]*expectation{},
	}
}

func (s *session) end() { s.once.Do(func() { close(s.ended) }) }

func (s *session) expect(id string, heard func(*vipmovev1.ReplyHeard)) *expectation {
	e := &expectation{result: make(chan *vipmovev1.CommandResult, 1), heard: heard}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expected[id] = e
	return e
}

// forget ends an expectation; heard is not called any more once it returned.
func (s *session) forget(id string, e *expectation) {
	s.mu.Lock()
	if s.expected[id] == e {
		delete(s.expected, id)
	}
	s.mu.Unlock()
	e.deafen()
}

func (e *expectation) deafen() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = nil
}

func (e *expectation) hear(h *vipmovev1.ReplyHeard) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.heard != nil {
		e.heard(h)
	}
}

func (s *session) expectation(id string) *expectation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expected[id]
}

// deliver hands a result to whoever waits for it; one that nobody waits for any more is dropped.
func (s *session) deliver(r *vipmovev1.CommandResult) {
	e := s.expectation(r.GetCommandId())
	if e == nil {
		return
	}
	select {
	case e.result <- r:
	default: // said twice
	}
}

func (s *session) hear(h *vipmovev1.ReplyHeard) {
	if e := s.expectation(h.GetCommandId()); e != nil {
		e.hear(h)
	}
}
