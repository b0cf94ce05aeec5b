// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/coordinator/fleet/fleettest"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const protocol = 1

// world is a fleet behind a real gRPC server, in a bubble with a clock of its own.
type world struct {
	vipmovev1.UnimplementedObserversServer
	t     *testing.T
	fleet *Fleet
	conn  *fleettest.Listener
	allow func(*vipmovev1.Hello) error

	mu    sync.Mutex
	notes []string // joined and left, in order
	deny  error    // what Joined says
}

// inWorld runs a test in a bubble. Everything that it started has to end, else the bubble says deadlock.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, conn: fleettest.Listen(), allow: func(*vipmovev1.Hello) error { return nil }}
		w.fleet = New(Config{
			Welcome: func() *vipmovev1.Welcome { return &vipmovev1.Welcome{JournalId: "j1", Term: 7, Protocol: protocol} },
			Joined: func(name string, role vipmovev1.ObserverRole) error {
				w.note("joined " + name + " " + role.String())
				return w.deny
			},
			Left: func(name string) { w.note("left " + name) },
		})
		g := grpc.NewServer(grpc.WaitForHandlers(true))
		vipmovev1.RegisterObserversServer(g, w)
		served := make(chan error, 1)
		go func() { served <- g.Serve(w.conn) }()
		defer func() {
			g.Stop()
			if err := <-served; err != nil {
				t.Errorf("Serve = %v", err)
			}
		}()
		test(t, w)
	})
}

// Session implements Observers.
func (w *world) Session(stream Stream) error { return w.fleet.Serve(stream, protocol, w.allow) }

func (w *world) note(s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, s)
}

func (w *world) noted() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.notes
}

// peer is an observer's end of a session.
type peer struct {
	t      *testing.T
	rpc    grpc.BidiStreamingClient[vipmovev1.ObserverMessage, vipmovev1.CoordinatorMessage]
	conn   *grpc.ClientConn
	cancel context.CancelFunc
}

// dial opens a stream and says nothing yet.
func (w *world) dial() *peer {
	w.t.Helper()
	conn, err := grpc.NewClient("passthrough:///coordinator", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return w.conn.DialContext(ctx) }))
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	rpc, err := vipmovev1.NewObserversClient(conn).Session(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	p := &peer{t: w.t, rpc: rpc, conn: conn, cancel: cancel}
	w.t.Cleanup(p.close)
	return p
}

// close breaks the connection, as a killed process would.
func (p *peer) close() {
	p.cancel()
	_ = p.conn.Close() // closed twice at the end of a test
}

func hello(node string) *vipmovev1.Hello {
	return &vipmovev1.Hello{Node: node, Role: vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT, Protocol: protocol, BootId: "boot-" + node, Version: "v1", CanAct: true}
}

func witness(name string) *vipmovev1.Hello {
	h := hello(name)
	h.Role, h.CanAct = vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS, false
	return h
}

// join says hello and waits for the welcome.
func (w *world) join(h *vipmovev1.Hello) *peer {
	w.t.Helper()
	p := w.dial()
	p.send(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_Hello{Hello: h}, Boottime: durationpb.New(time.Hour)})
	m, err := p.rpc.Recv()
	if err != nil {
		w.t.Fatal(err)
	}
	if m.GetWelcome().GetJournalId() != "j1" || m.GetWelcome().GetTerm() != 7 {
		w.t.Fatalf("welcome = %v", m)
	}
	synctest.Wait()
	return p
}

func (p *peer) send(m *vipmovev1.ObserverMessage) {
	p.t.Helper()
	if err := p.rpc.Send(m); err != nil {
		p.t.Fatal(err)
	}
}

// command waits for the next order.
func (p *peer) command() *vipmovev1.Command {
	p.t.Helper()
	m, err := p.rpc.Recv()
	if err != nil {
		p.t.Fatal(err)
	}
	return m.GetCommand()
}

func (p *peer) answer(id, text string) {
	p.t.Helper()
	p.send(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_Result{Result: &vipmovev1.CommandResult{CommandId: id, Error: text}}})
	synctest.Wait()
}

func (p *peer) heard(id string, n uint32) {
	p.t.Helper()
	p.send(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_ReplyHeard{ReplyHeard: &vipmovev1.ReplyHeard{CommandId: id, Reply: &vipmovev1.Reply{Vlan: n}}}})
	synctest.Wait()
}

func (p *peer) counts(q *vipmovev1.Requests) {
	p.t.Helper()
	p.send(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_Requests{Requests: q}})
	synctest.Wait()
}

// ended waits for the end of the stream and returns how it ended.
func (p *peer) ended() (codes.Code, string) {
	for {
		if _, err := p.rpc.Recv(); err != nil {
			return status.Code(err), status.Convert(err).Message()
		}
	}
}

// done is what one Do came to.
type done struct {
	result *vipmovev1.CommandResult
	err    error
}

// order runs Do in the background.
func (w *world) order(ctx context.Context, node, id string, heard func(*vipmovev1.ReplyHeard)) <-chan done {
	out := make(chan done, 1)
	go func() {
		r, err := w.fleet.Do(ctx, node, &vipmovev1.Command{CommandId: id}, heard)
		out <- done{r, err}
	}()
	synctest.Wait()
	return out
}
