// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/vipmove/vipmove/coordinator/fleet/fleettest"
	"github.com/vipmove/vipmove/coordinator/handover"
	"github.com/vipmove/vipmove/coordinator/journal"
	"github.com/vipmove/vipmove/internal/identity"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a coordinator with its observers, in a bubble with a clock of its own: all times are the real
// ones and pass at once. Connections are mutual TLS over memory.
type world struct {
	t       *testing.T
	ctx     context.Context // ends with the test; bounded, so that a test that hangs fails
	lan     *lan
	pki     string
	disk    *journal.Disk
	agents  map[string]*fakeAgent
	witness *fakeWitness
	hosts   sync.WaitGroup                                              // the observers' processes
	fault   atomic.Pointer[func(handover.Event) (done bool, err error)] // of the disk

	mu        sync.Mutex
	listener  *fleettest.Listener // of the coordinator that runs now, or did last
	server    *Server
	stop      context.CancelFunc
	ended     chan error
	files     map[identity.Identity]identity.Files
	configure func(*Config)
}

// patience is more than any story takes.
const patience = 30 * time.Minute

// inWorld runs a story with n nodes and a witness, all connected, and then looks at the invariants.
func inWorld(t *testing.T, n int, story func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		w := &world{t: t, ctx: ctx, lan: newLAN(n), pki: t.TempDir(), disk: &journal.Disk{}, agents: map[string]*fakeAgent{}, files: map[identity.Identity]identity.Files{}}
		if err := identity.Init(w.pki); err != nil {
			t.Fatal(err)
		}
		w.diskFails(nil)
		w.disk.Fault = func(_ string, e handover.Event) (bool, error) { return (*w.fault.Load())(e) }
		w.start()
		for i := 1; i <= n; i++ {
			a := newFakeAgent(ctx, w, fmt.Sprintf("n%d", i))
			w.agents[a.name] = a
			w.hosts.Go(func() { a.run(ctx) })
		}
		w.witness = newFakeWitness(w)
		w.hosts.Go(func() { w.witness.run(ctx) })
		w.hosts.Go(func() { w.witness.work(ctx) })
		defer func() {
			if err := w.halt(); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("the coordinator ended with %v", err)
			}
			cancel()
			w.hosts.Wait()
			for _, b := range w.lan.broken {
				t.Error(b)
			}
		}()
		w.settle(n)
		story(t, w)
	})
}

// settle waits until n agents and a witness are there, and requests are measured.
func (w *world) settle(n int) {
	w.t.Helper()
	w.until("everybody is connected", func() bool {
		connected := 0
		for _, o := range w.server.fleet.Nodes() {
			connected += boolInt(o.GetConnected())
		}
		return connected == n+1 && len(w.server.fleet.Requests()) == 1
	})
	w.wait(time.Second)
}

// start runs a coordinator on the world's journal.
func (w *world) start() {
	w.t.Helper()
	l := fleettest.Listen()
	cfg := Config{Journal: journal.NewMemory(w.disk), Listeners: []net.Listener{l}, TLS: w.serverTLS(), Log: testLog(w.t)}
	if w.configure != nil {
		w.configure(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.ctx)
	ended := make(chan error, 1)
	w.mu.Lock()
	w.listener, w.server, w.stop, w.ended = l, s, stop, ended
	w.mu.Unlock()
	go func() { ended <- s.Run(ctx) }()
}

// diskFails says how writes of events go wrong from now on; nil: they do not.
func (w *world) diskFails(f func(handover.Event) (done bool, err error)) {
	if f == nil {
		f = func(handover.Event) (bool, error) { return false, nil }
	}
	w.fault.Store(&f)
}

// halt ends the coordinator and returns how it ended. A second time it returns nil.
func (w *world) halt() error {
	w.mu.Lock()
	stop, ended := w.stop, w.ended
	w.stop = nil
	w.mu.Unlock()
	if stop == nil {
		return nil
	}
	stop()
	return <-ended
}

func (w *world) restart() {
	w.t.Helper()
	if err := w.halt(); !errors.Is(err, context.Canceled) {
		w.t.Fatalf("the coordinator ended with %v", err)
	}
	w.start()
}

func testLog(t *testing.T) *slog.Logger {
	if os.Getenv("VIPMOVE_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

// certificate issues one on first use.
func (w *world) certificate(id identity.Identity) identity.Files {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f, ok := w.files[id]; ok {
		return f
	}
	f, err := identity.Issue(w.pki, id, nil, nil, 0)
	if err != nil {
		w.t.Error(err)
	}
	w.files[id] = f
	return f
}

func (w *world) serverTLS() *tls.Config {
	c, err := identity.ServerConfig(w.certificate(identity.Identity{Role: identity.RoleCoordinator}))
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// connect dials the coordinator that runs at that moment.
func (w *world) connect(id identity.Identity) *grpc.ClientConn {
	tls, err := identity.ClientConfig(w.certificate(id))
	if err != nil {
		w.t.Error(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+identity.ServerName, grpc.WithTransportCredentials(credentials.NewTLS(tls)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			w.mu.Lock()
			l := w.listener
			w.mu.Unlock()
			return l.DialContext(ctx)
		}))
	if err != nil {
		w.t.Error(err)
	}
	return conn
}

var alice = identity.Identity{Role: identity.RoleOperator, Name: "alice"}

// operator calls the coordinator as one.
func (w *world) operator() vipmovev1.ControlClient {
	conn := w.connect(alice)
	w.t.Cleanup(func() { _ = conn.Close() })
	return vipmovev1.NewControlClient(conn)
}

// wait lets the world go on.
func (w *world) wait(d time.Duration) { pause(w.ctx, d) }

// until waits for a condition of the world.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	for !holds() {
		if w.ctx.Err() != nil {
			w.t.Fatalf("waiting until %s", what)
		}
		w.wait(10 * time.Millisecond)
	}
}

func options() *vipmovev1.PlanOptions { return &vipmovev1.PlanOptions{Vip: testVIP} }

func (w *world) plan(o *vipmovev1.PlanOptions) *vipmovev1.Plan {
	w.t.Helper()
	r, err := w.operator().MakePlan(w.ctx, &vipmovev1.MakePlanRequest{Options: o})
	if err != nil {
		w.t.Fatal(err)
	}
	return r.GetPlan()
}

// begin plans and starts, and from then on the invariants are watched.
func (w *world) begin(o *vipmovev1.PlanOptions) string {
	w.t.Helper()
	p := w.plan(o)
	w.lan.mu.Lock()
	w.lan.watched = true
	w.lan.mu.Unlock()
	r, err := w.operator().StartRun(w.ctx, &vipmovev1.StartRunRequest{Options: o, PlanHash: p.GetHash()})
	if err != nil {
		w.t.Fatal(err)
	}
	return r.GetRunId()
}

// watch follows a run to its end.
func (w *world) watch(id string) (*vipmovev1.Run, []*vipmovev1.Run) {
	w.t.Helper()
	stream, err := w.operator().WatchRun(w.ctx, &vipmovev1.WatchRunRequest{RunId: id})
	if err != nil {
		w.t.Fatal(err)
	}
	var all []*vipmovev1.Run
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all[len(all)-1], all
		}
		if err != nil {
			w.t.Fatalf("watching after %d: %v", len(all), err)
		}
		all = append(all, m.GetRun())
	}
}

// now is a run as it stands, by the list.
func (w *world) now(id string) *vipmovev1.Run {
	w.t.Helper()
	r, err := w.operator().ListRuns(w.ctx, &vipmovev1.ListRunsRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	i := slices.IndexFunc(r.GetRuns(), func(x *vipmovev1.Run) bool { return x.GetRunId() == id })
	if i < 0 {
		w.t.Fatalf("run %s is not in the list", id)
	}
	return r.GetRuns()[i]
}

func stepOf(r *vipmovev1.Run, node string) *vipmovev1.RunStep {
	for _, s := range r.GetSteps() {
		if s.GetNode() == node {
			return s
		}
	}
	return nil
}

// states is "n1 confirmed, n2 pending, …".
func states(r *vipmovev1.Run) string {
	var out []string
	for _, s := range r.GetSteps() {
		out = append(out, s.GetNode()+" "+s.GetState())
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// untilStep waits until a node's step is in one of the states.
func (w *world) untilStep(id, node string, want ...string) {
	w.t.Helper()
	w.until(node+" is "+strings.Join(want, " or "), func() bool {
		v, _, _ := w.server.driver.view(id)
		s, _ := v.run.Step(node)
		return slices.Contains(want, string(s.State))
	})
}
