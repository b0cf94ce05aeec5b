// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// Stream is the coordinator's end of Observers.Session.
type Stream = grpc.BidiStreamingServer[vipmovev1.ObserverMessage, vipmovev1.CoordinatorMessage]

// Serve runs one observer's session to its end. allow holds the hello against who the peer proved to be.
// A second session of the same node ends the first: the peer of a half-open stream comes back that way.
func (f *Fleet) Serve(stream Stream, protocol int32, allow func(*vipmovev1.Hello) error) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return status.Error(codes.InvalidArgument, "the first message of a session has to be a hello")
	}
	if hello.GetProtocol() != protocol {
		return status.Errorf(codes.FailedPrecondition, "observer %s speaks protocol %d, this coordinator speaks %d: use one release for both", hello.GetNode(), hello.GetProtocol(), protocol)
	}
	if err := allow(hello); err != nil {
		f.cfg.Log.Warn("turned away an observer", "node", hello.GetNode(), "error", err)
		return err
	}
	if f.cfg.Joined != nil {
		if err := f.cfg.Joined(hello.GetNode(), hello.GetRole()); err != nil {
			return status.Errorf(codes.Unavailable, "letting node %s join: %v", hello.GetNode(), err)
		}
	}
	if err := stream.Send(&vipmovev1.CoordinatorMessage{Message: &vipmovev1.CoordinatorMessage_Welcome{Welcome: f.cfg.Welcome()}}); err != nil {
		return err
	}
	s := f.join(hello, first)
	defer f.leave(hello.GetNode(), s)
	return f.converse(stream, hello.GetNode(), s)
}

// converse writes commands from this goroutine and reads in another, which the stream's end ends.
func (f *Fleet) converse(stream Stream, node string, s *session) error {
	received := make(chan error, 1)
	go func() { received <- f.receive(stream, node, s) }()
	for {
		select {
		case m := <-s.out:
			if err := stream.Send(m); err != nil {
				return err
			}
		case err := <-received:
			return err
		case <-s.ended:
			return status.Errorf(codes.Aborted, "another session of node %s began", node)
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (f *Fleet) receive(stream Stream, node string, s *session) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading from node %s: %w", node, err)
		}
		f.note(node, s, m)
		switch msg := m.GetMessage().(type) {
		case *vipmovev1.ObserverMessage_Result:
			s.deliver(msg.Result)
		case *vipmovev1.ObserverMessage_ReplyHeard:
			s.hear(msg.ReplyHeard)
		}
	}
}

// note keeps what every message tells: that the node lives, its clock, a witness's counters.
func (f *Fleet) note(node string, s *session, m *vipmovev1.ObserverMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	mem := f.members[node]
	if mem == nil || mem.session != s {
		return // of a session that was replaced
	}
	f.take(mem, m)
	switch msg := m.GetMessage().(type) {
	case *vipmovev1.ObserverMessage_Requests:
		f.count(node, mem, msg.Requests)
	case *vipmovev1.ObserverMessage_Hello: // the agent's standing changed: pending undo, rights
		was := mem.hello
		mem.hello = msg.Hello
		mem.hello.Node, mem.hello.Role = node, was.GetRole() // by its certificate, whatever it says now
	}
}

func (f *Fleet) take(mem *member, m *vipmovev1.ObserverMessage) {
	mem.lastSeen = f.cfg.Now()
	if m.GetBoottime() != nil {
		mem.boottime, mem.boottimeAt = m.GetBoottime().AsDuration(), mem.lastSeen
	}
}

// count takes a witness's report. Only a witness's: an agent is a node of the cluster, whose own view of the
// VIP is short-circuited.
func (f *Fleet) count(node string, mem *member, q *vipmovev1.Requests) {
	if mem.hello.GetRole() != vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS {
		return
	}
	first := mem.requests == nil
	mem.requests = q
	mem.requests.Witness = node // by its certificate, whatever it says
	mem.tally.take(q, mem.lastSeen)
	if first {
		f.signal()
	}
}

func (f *Fleet) join(hello *vipmovev1.Hello, first *vipmovev1.ObserverMessage) *session {
	s := newSession()
	f.mu.Lock()
	m := f.members[hello.GetNode()]
	if m == nil {
		m = &member{}
		f.members[hello.GetNode()] = m
	}
	old := m.session
	m.hello, m.session, m.requests = hello, s, nil
	m.boottime = 0 // the node may have booted since: an old clock could be ahead
	f.take(m, first)
	f.signal()
	f.mu.Unlock()
	if old != nil {
		old.end()
	}
	f.cfg.Log.Info("observer joined", "node", hello.GetNode(), "role", hello.GetRole().String(), "version", hello.GetVersion())
	return s
}

func (f *Fleet) leave(node string, s *session) {
	s.end()
	f.mu.Lock()
	m := f.members[node]
	current := m != nil && m.session == s
	if current {
		m.session = nil
		f.signal()
	}
	f.mu.Unlock()
	if !current {
		return
	}
	f.cfg.Log.Info("observer left", "node", node)
	if f.cfg.Left != nil {
		f.cfg.Left(node)
	}
}
