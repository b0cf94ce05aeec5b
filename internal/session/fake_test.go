// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

type serverStream = grpc.BidiStreamingServer[vipmovev1.ObserverMessage, vipmovev1.CoordinatorMessage]

// coordinator is a gRPC server whose answer to a session is one function.
type coordinator struct {
	vipmovev1.UnimplementedObserversServer
	session func(serverStream) error
}

func (c *coordinator) Session(s serverStream) error { return c.session(s) }

// start serves c on l with the keepalive that both sides agree on.
func (c *coordinator) start(t *testing.T, l net.Listener, options ...grpc.ServerOption) *grpc.Server {
	t.Helper()
	parameters, policy := ServerKeepalive()
	options = append(options, grpc.KeepaliveParams(parameters), grpc.KeepaliveEnforcementPolicy(policy))
	server := grpc.NewServer(options...)
	vipmovev1.RegisterObserversServer(server, c)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l) // ends by Stop
	}()
	t.Cleanup(func() { server.Stop(); <-served })
	return server
}

// welcoming reads the hello, welcomes, then does what next says.
func welcoming(w *vipmovev1.Welcome, next func(*vipmovev1.Hello, serverStream) error) func(serverStream) error {
	return func(s serverStream) error {
		first, err := s.Recv()
		if err != nil {
			return err
		}
		if err := s.Send(&vipmovev1.CoordinatorMessage{Message: &vipmovev1.CoordinatorMessage_Welcome{Welcome: w}}); err != nil {
			return err
		}
		return next(first.GetHello(), s)
	}
}

func welcome() *vipmovev1.Welcome {
	return &vipmovev1.Welcome{JournalId: "j1", Term: 3, Protocol: Protocol, Version: "v0"}
}

// holding keeps the session open until the observer's end of it ends.
func holding(_ *vipmovev1.Hello, s serverStream) error {
	for {
		if _, err := s.Recv(); err != nil {
			return err
		}
	}
}

func command(id string) *vipmovev1.CoordinatorMessage {
	return &vipmovev1.CoordinatorMessage{Message: &vipmovev1.CoordinatorMessage_Command{
		Command: &vipmovev1.Command{CommandId: id},
	}}
}

// network is what the dialer sees: listeners by address, refusal for the rest.
type network struct {
	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
	dialled   []string
	wrap      func(net.Conn) net.Conn
}

var errRefused = errors.New("connection refused")

func (n *network) listen(address string) *bufconn.Listener {
	l := bufconn.Listen(64 << 10)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners == nil {
		n.listeners = make(map[string]*bufconn.Listener)
	}
	n.listeners[address] = l
	return l
}

func (n *network) drop(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.listeners, address)
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dialled = append(n.dialled, address)
	l, wrap := n.listeners[address], n.wrap
	n.mu.Unlock()
	if l == nil {
		return nil, errRefused
	}
	conn, err := l.DialContext(ctx)
	if err == nil && wrap != nil {
		conn = wrap(conn)
	}
	return conn, err
}

func (n *network) attempts() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.dialled...)
}

// observer records what its session tells it.
type observer struct {
	welcome func(*vipmovev1.Welcome) error
	command func(context.Context, *vipmovev1.Command, func(*vipmovev1.CommandResult))

	mu           sync.Mutex
	commands     []string
	disconnected []error
}

func (o *observer) Welcome(w *vipmovev1.Welcome) error {
	if o.welcome != nil {
		return o.welcome(w)
	}
	return nil
}

func (o *observer) Command(ctx context.Context, c *vipmovev1.Command, reply func(*vipmovev1.CommandResult)) {
	o.mu.Lock()
	o.commands = append(o.commands, c.GetCommandId())
	o.mu.Unlock()
	if o.command != nil {
		o.command(ctx, c, reply)
	}
}

func (o *observer) Disconnected(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.disconnected = append(o.disconnected, err)
}

func (o *observer) heard() ([]string, []error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.commands...), append([]error(nil), o.disconnected...)
}

// run starts s and ends it with the test, checking that Run says why it ended.
func run(t *testing.T, s *Session) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want context.Canceled", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// pass lets d of a synctest bubble's fake time pass.
func pass(d time.Duration) { <-time.After(d) }

func config(n *network, addresses ...string) Config {
	return Config{
		Coordinators: addresses,
		Hello:        func() *vipmovev1.Hello { return &vipmovev1.Hello{Node: "n1", Version: "v0"} },
		dial:         n.dial,
	}
}
