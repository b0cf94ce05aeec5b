// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/agent/wire"
	"github.com/vipmove/vipmove/internal/daemon"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// running is an agent of this process, on a fake kernel and a segment in memory.
type running struct {
	t      testing.TB
	kernel *host.Fake
	port   *wire.Port
	other  *wire.Port // another station on the segment
	entry  host.Tuple
	url    string
	log    *lockedBuffer
	stop   context.CancelFunc
	ended  chan error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// world is the kernel and the segment of n1, before any agent runs.
func world(t testing.TB) *running {
	t.Helper()
	s := newStory(t)
	s.kernel.SetBootTime(morning)
	mac, err := wire.ParseMAC("02:00:00:00:00:0b")
	if err != nil {
		t.Fatal(err)
	}
	segment := wire.NewSegment()
	return &running{
		t: t, kernel: s.kernel, entry: s.entry, log: &lockedBuffer{},
		port:  segment.Join(wire.NIC{Name: "eth0", Index: 2, MAC: mac}),
		other: segment.Join(wire.NIC{Name: "eth0", Index: 2, MAC: mac2}),
	}
}

// run starts an agent; edit may change its configuration.
func (r *running) run(edit func(*Config)) {
	r.t.Helper()
	listening := make(chan net.Addr, 1)
	cfg := Config{
		Name: testNode, Version: "v0", Listen: "127.0.0.1:0", StateDir: r.t.TempDir(), Coordinators: []string{"unix:/nowhere"},
		Policy: Policy{Act: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, MaxChanges: 10},
		Kernel: r.kernel, Sockets: func(wire.NIC) wire.Sockets { return r.port }, Rights: func() string { return "" },
		OnListen: func(a net.Addr) { listening <- a }, Log: slog.New(slog.NewTextHandler(r.log, nil)),
	}
	if edit != nil {
		edit(&cfg)
	}
	agent, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop, r.ended = stop, make(chan error, 1)
	go func() { r.ended <- agent.Run(ctx) }()
	r.t.Cleanup(func() { r.end() })
	select {
	case address := <-listening:
		r.url = "http://" + address.String()
	case err := <-r.ended:
		r.ended <- err
		r.t.Fatalf("the agent ended: %v", err)
	case <-time.After(patience):
		r.t.Fatal("the agent does not listen")
	}
}

// end stops the agent and returns what Run said; again and again.
func (r *running) end() error {
	r.t.Helper()
	http.DefaultClient.CloseIdleConnections()
	r.stop()
	select {
	case err := <-r.ended:
		r.ended <- err
		return err
	case <-time.After(patience):
		r.t.Fatal("the agent does not stop")
		return nil
	}
}

func (r *running) get(path string) (int, string) {
	r.t.Helper()
	response, err := http.Get(r.url + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// until waits for a condition.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !condition() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

func (r *running) held() bool {
	list, err := r.kernel.ListLink(context.Background(), r.entry.LinkIndex)
	_, ok := listed(r.entry, list)
	return ok && err == nil
}

func TestThePortIsServedBeforeAnyCoordinatorIsThere(t *testing.T) {
	r := world(t)
	r.run(nil)
	if status, body := r.get("/healthz"); status != 200 {
		t.Errorf("healthz %d %s", status, body)
	}
	until(t, "readyz names the coordinator", func() bool {
		status, body := r.get("/readyz")
		return status == 503 && strings.Contains(body, "no session with a coordinator") && strings.Contains(body, "/nowhere")
	})
	if status, body := r.get("/metrics"); status != 200 || !strings.Contains(body, "vipmove_session_connected 0") {
		t.Errorf("metrics %d\n%s", status, body)
	}
	if err := r.end(); err != nil {
		t.Errorf("Run = %v after it was told to stop", err)
	}
}

func TestAPortThatIsTakenIsFatalAndNamed(t *testing.T) {
	first, err := daemon.Endpoint{Address: "127.0.0.1:0"}.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	r := world(t)
	agent, err := New(Config{Name: testNode, Kernel: r.kernel, Listen: first.Addr().String(), StateDir: t.TempDir(), Coordinators: []string{"unix:/nowhere"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Run(t.Context()); err == nil || !strings.Contains(err.Error(), first.Addr().String()) || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("Run = %v", err)
	}
}

func TestASecondAgentOnTheSameRecordsIsFatal(t *testing.T) {
	dir := t.TempDir()
	d, err := OpenDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	agent, err := New(Config{Name: testNode, Kernel: world(t).kernel, Listen: "127.0.0.1:0", StateDir: dir, Coordinators: []string{"unix:/nowhere"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Run(t.Context()); !errors.Is(err, ErrStateInUse) || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("Run = %v", err)
	}
}

func TestARecordThatCannotBeReadLeavesTheAgentUpAndNotReady(t *testing.T) {
	c, r := startCoordinator(t), world(t)
	dir := t.TempDir()
	file := filepath.Join(dir, termFile)
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.run(func(cfg *Config) { cfg.Coordinators, cfg.StateDir = []string{c.address}, dir })
	l := c.next()
	if l.hello.GetCanAct() || !strings.Contains(l.hello.GetCannotActReason(), file) {
		t.Errorf("hello %v", l.hello)
	}
	if refusal := l.do(prepareOrder(l.fence(testRun), r.entry)).GetRefusal(); refusal.GetCode() != vipmovev1.Refusal_STATE_NOT_DURABLE {
		t.Errorf("refusal %v", refusal)
	}
	if l.do(&vipmovev1.Command{Order: &vipmovev1.Command_ReadKernel{}}).GetKernel() == nil {
		t.Error("it does not look any more")
	}
	until(t, "readyz names the file", func() bool {
		status, body := r.get("/readyz")
		return status == 503 && strings.Contains(body, file) && !strings.Contains(body, "no session")
	})
}

func TestAStateDirectoryThatCannotBeMadeLeavesTheAgentUp(t *testing.T) {
	c, r := startCoordinator(t), world(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.run(func(cfg *Config) { cfg.Coordinators, cfg.StateDir = []string{c.address}, filepath.Join(file, "state") })
	l := c.next()
	if l.hello.GetCanAct() {
		t.Errorf("hello %v", l.hello)
	}
	if refusal := l.do(prepareOrder(l.fence(testRun), r.entry)).GetRefusal(); refusal.GetCode() != vipmovev1.Refusal_STATE_NOT_DURABLE {
		t.Errorf("refusal %v", refusal)
	}
}

func TestAnUndoThatIsBlockedIsNotReadyAndInTheHello(t *testing.T) {
	c, r := startCoordinator(t), world(t)
	r.run(func(cfg *Config) { cfg.Coordinators = []string{c.address} })
	l := c.next()
	l.state(prepareOrder(l.fence(testRun), r.entry), prepared)
	l.state(removeOrder(l.fence(testRun), removeID), removed)
	r.kernel.Deny(true)
	r.kernel.Advance(testTTL)
	until(t, "it is not ready", func() bool {
		status, body := r.get("/readyz")
		return status == 503 && strings.Contains(body, "cannot be put back") && strings.Contains(body, "CAP_NET_ADMIN")
	})
	if _, body := r.get("/metrics"); !strings.Contains(body, "vipmove_undo_blocked 1") {
		t.Errorf("metrics:\n%s", body)
	}
	r.kernel.Deny(false)
	until(t, "the address is back", func() bool { r.kernel.Advance(retryAfter); return r.held() })
}
