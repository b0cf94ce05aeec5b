// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/internal/session"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// patience bounds every wait of these tests; nothing takes nearly that long.
const patience = 20 * time.Second

// coordinator is the other end of one agent's session, as little of it as the
// tests need.
type coordinator struct {
	vipmovev1.UnimplementedObserversServer
	t       testing.TB
	address string // unix:PATH
	server  *grpc.Server
	welcome *vipmovev1.Welcome
	joined  chan *line

	mu     sync.Mutex
	orders int
}

// line is one session.
type line struct {
	c        *coordinator
	hello    *vipmovev1.Hello
	down     chan *vipmovev1.CoordinatorMessage
	results  chan *vipmovev1.CommandResult
	changes  chan string
	heard    chan *vipmovev1.ReplyHeard
	boottime chan time.Duration // the newest, capacity 1
	ended    chan struct{}
}

func startCoordinator(t testing.TB) *coordinator {
	t.Helper()
	// A short path: a socket's may have 107 bytes.
	dir, err := os.MkdirTemp("", "vm")
	if err != nil {
		t.Fatal(err)
	}
	c := &coordinator{
		t: t, address: "unix:" + filepath.Join(dir, "s"), joined: make(chan *line, 16),
		welcome: &vipmovev1.Welcome{JournalId: journal, Term: 1, Protocol: session.Protocol, WatchedVips: []string{vip.String()}},
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	parameters, policy := session.ServerKeepalive()
	c.server = grpc.NewServer(grpc.KeepaliveParams(parameters), grpc.KeepaliveEnforcementPolicy(policy))
	vipmovev1.RegisterObserversServer(c.server, c)
	var serving sync.WaitGroup
	serving.Go(func() { _ = c.server.Serve(listener) })
	t.Cleanup(func() {
		c.server.Stop()
		serving.Wait()
		os.RemoveAll(dir)
	})
	return c
}

// Session holds one session until the agent or the test ends it.
func (c *coordinator) Session(s grpc.BidiStreamingServer[vipmovev1.ObserverMessage, vipmovev1.CoordinatorMessage]) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	l := &line{
		c: c, hello: first.GetHello(), down: make(chan *vipmovev1.CoordinatorMessage, 64),
		results: make(chan *vipmovev1.CommandResult, 64), changes: make(chan string, 256), heard: make(chan *vipmovev1.ReplyHeard, 256),
		boottime: make(chan time.Duration, 1), ended: make(chan struct{}),
	}
	defer close(l.ended)
	l.boottime <- first.GetBoottime().AsDuration()
	if err := s.Send(&vipmovev1.CoordinatorMessage{Message: &vipmovev1.CoordinatorMessage_Welcome{Welcome: c.welcome}}); err != nil {
		return err
	}
	c.joined <- l
	ctx, cancel := context.WithCancel(s.Context())
	var writer sync.WaitGroup
	writer.Go(func() { l.write(ctx, s) })
	defer writer.Wait()
	defer cancel()
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		l.take(m)
	}
}

func (l *line) write(ctx context.Context, s grpc.BidiStreamingServer[vipmovev1.ObserverMessage, vipmovev1.CoordinatorMessage]) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-l.down:
			if s.Send(m) != nil {
				return
			}
		}
	}
}

func (l *line) take(m *vipmovev1.ObserverMessage) {
	select {
	case <-l.boottime:
	default:
	}
	l.boottime <- m.GetBoottime().AsDuration()
	switch b := m.GetMessage().(type) {
	case *vipmovev1.ObserverMessage_Result:
		l.results <- b.Result
	case *vipmovev1.ObserverMessage_Changed:
		select {
		case l.changes <- b.Changed.GetWhat():
		default:
		}
	case *vipmovev1.ObserverMessage_ReplyHeard:
		l.heard <- b.ReplyHeard
	}
}

// next waits for an agent to join.
func (c *coordinator) next() *line {
	c.t.Helper()
	select {
	case l := <-c.joined:
		return l
	case <-time.After(patience):
		c.t.Fatal("no agent joined")
		return nil
	}
}

// send sends a command without waiting.
func (l *line) send(command *vipmovev1.Command) string {
	l.c.mu.Lock()
	l.c.orders++
	if command.CommandId == "" {
		command.CommandId = fmt.Sprintf("order%d", l.c.orders)
	}
	l.c.mu.Unlock()
	l.down <- &vipmovev1.CoordinatorMessage{Message: &vipmovev1.CoordinatorMessage_Command{Command: command}}
	return command.CommandId
}

// do sends a command and waits for its result; nil: the session ended first.
func (l *line) do(command *vipmovev1.Command) *vipmovev1.CommandResult {
	l.c.t.Helper()
	id := l.send(command)
	late := time.After(patience)
	for {
		select {
		case r := <-l.results:
			if r.GetCommandId() == id {
				return r
			}
		case <-l.ended:
			return nil
		case <-late:
			l.c.t.Fatalf("no answer to %v", command)
		}
	}
}

// state does a command and holds its answer to a state.
func (l *line) state(command *vipmovev1.Command, want vipmovev1.StepAnswer_State) *vipmovev1.StepAnswer {
	l.c.t.Helper()
	r := l.do(command)
	if r.GetStep().GetState() != want || r.GetRefusal() != nil {
		l.c.t.Fatalf("answer to %v is %v, want %v", command.GetOrder(), r, want)
	}
	return r.GetStep()
}

// fence is valid for five seconds from the agent's newest message on.
func (l *line) fence(run string) *vipmovev1.Fence {
	now := <-l.boottime
	l.boottime <- now
	return &vipmovev1.Fence{
		JournalId: journal, Term: 1, RunId: run, PlanHash: testHash, Step: testNode, Node: testNode,
		BootId: l.hello.GetBootId(), DeadlineBoottime: durationpb.New(now + patience),
	}
}
