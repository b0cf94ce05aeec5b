// SPDX-License-Identifier: Apache-2.0

//go:build linux

package story

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vipmove/vipmove/internal/identity"
	"github.com/vipmove/vipmove/lab"
	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
)

// bin holds the three programs, built once for all tests (VIPMOVE_BIN names ready ones).
var bin string

func TestMain(m *testing.M) { os.Exit(namespacetest.Main(tests{m})) }

type tests struct{ m *testing.M }

func (t tests) Run() int {
	if bin = os.Getenv("VIPMOVE_BIN"); bin == "" {
		dir, err := os.MkdirTemp("", "vipmove-bin-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		for name, pkg := range map[string]string{"vipmove": ".", "vipmove-agent": "./agent", "vipmove-coordinator": "./coordinator"} {
			build := exec.Command("go", "build", "-o", filepath.Join(dir, name), pkg)
			build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
			if out, err := build.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "building %s: %v\n%s", name, err, out)
				return 1
			}
		}
		bin = dir
	}
	return t.m.Run()
}

// options of a stage.
type options struct {
	lab.Config
	without []string // agents that are not started
	noWait  bool
}

// stage is a lab with the product running in it.
type stage struct {
	*lab.Lab
	t   testing.TB
	pki string
	dir string
}

// quick makes steps short; the order of things is under test, not the operator's patience.
var quick = []string{"--dwell", "300ms", "--canary-soak", "300ms"}

func newStage(t *testing.T, o options) *stage {
	t.Helper()
	namespacetest.Require(t)
	dir, err := os.MkdirTemp("", "vm") // short: a socket's path has at most 107 characters
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, dir: dir, pki: filepath.Join(dir, "pki")}
	o.Dir, o.VipmovePath, o.AgentPath, o.CoordinatorPath = dir, filepath.Join(bin, "vipmove"), filepath.Join(bin, "vipmove-agent"), filepath.Join(bin, "vipmove-coordinator")
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	s.makeIdentities(o.Nodes)
	o.Credentials = s.credentials
	l, err := lab.New(o.Config)
	if err != nil {
		t.Fatal(err)
	}
	s.Lab = l
	t.Cleanup(s.close)
	if err := l.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.must(l.StartCoordinator(t.Context()))
	for _, n := range l.Nodes() {
		if !slices.Contains(o.without, n.Name) {
			s.must(l.StartAgent(t.Context(), n.Name))
		}
	}
	s.startWitness()
	if !o.noWait {
		s.gathered(o.Nodes - len(o.without) + 1)
	}
	return s
}

func (s *stage) must(_ *lab.Process, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) makeIdentities(nodes int) {
	s.t.Helper()
	err := identity.Init(s.pki)
	ids := []identity.Identity{{Role: identity.RoleCoordinator}, {Role: identity.RoleOperator, Name: "alice"}, {Role: identity.RoleWitness, Name: lab.Client}}
	for i := 1; i <= nodes; i++ {
		ids = append(ids, identity.Identity{Role: identity.RoleAgent, Name: fmt.Sprintf("n%d", i)})
	}
	for _, id := range ids {
		if err == nil {
			_, err = identity.Issue(s.pki, id, nil, nil, time.Hour)
		}
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) credentials(host string) lab.Credentials {
	id := identity.Identity{Role: identity.RoleAgent, Name: host}
	switch host {
	case lab.Coordinator:
		id = identity.Identity{Role: identity.RoleCoordinator}
	case lab.Client:
		id.Role = identity.RoleWitness
	}
	f := identity.FilesIn(s.pki, id)
	return lab.Credentials{CA: f.CA, Cert: f.Certificate, Key: f.Key}
}

func (s *stage) startWitness() {
	s.t.Helper()
	c := s.credentials(lab.Client)
	s.must(s.StartProcess(lab.Client, "witness", filepath.Join(bin, "vipmove"), "witness", "--target", "http://"+s.VIP().String(), "--name", lab.Client,
		"--coordinator", "192.0.2.2:7443", "--ca", c.CA, "--cert", c.Cert, "--key", c.Key, "--rate", "50"))
}

func (s *stage) close() {
	if s.t.Failed() {
		s.showLogs()
	}
	if err := s.Close(); err != nil {
		s.t.Error(err)
	}
	_ = os.RemoveAll(s.dir)
}

func (s *stage) showLogs() {
	files, _ := filepath.Glob(filepath.Join(s.Dir(), "logs", "*.log"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		s.t.Logf("--- %s\n%s", filepath.Base(f), strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}

// result of one vipmove command.
type result struct {
	stdout, stderr string
	code           int
}

// vipmove runs the command as the operator alice would, from outside the lab's network.
func (s *stage) vipmove(args ...string) result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	return s.command(ctx, args...)
}

func (s *stage) command(ctx context.Context, args ...string) result {
	c := exec.CommandContext(ctx, filepath.Join(bin, "vipmove"), args...)
	c.Env = append(os.Environ(), "VIPMOVE_COORDINATOR=unix:"+s.Socket(), "VIPMOVE_PKI="+s.pki, "NO_COLOR=1")
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Errorf("vipmove %s: %v", strings.Join(args, " "), err)
	}
	return result{stdout: stdout.String(), stderr: stderr.String(), code: c.ProcessState.ExitCode()}
}

// ask runs a command with -o json and reads its object; it fails the test unless the exit code is 0.
func (s *stage) ask(into any, args ...string) {
	s.t.Helper()
	r := s.vipmove(append(args, "-o", "json")...)
	if r.code != 0 {
		s.t.Fatalf("vipmove %s: exit %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	if err := json.Unmarshal([]byte(r.stdout), into); err != nil {
		s.t.Fatalf("vipmove %s: %v\n%s", strings.Join(args, " "), err, r.stdout)
	}
}

// until waits for a condition, looking often.
func (s *stage) until(what string, condition func() bool) {
	s.t.Helper()
	limit, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-limit.Done():
			s.t.Fatalf("waiting until %s: not within a minute", what)
		}
	}
}

// nodes is what the coordinator says of its observers; nil when it cannot be asked.
func (s *stage) nodes() (connected int, answered bool) {
	r := s.command(context.Background(), "nodes", "-o", "json")
	var list struct {
		Nodes    []struct{ Connected bool }
		Requests []struct{ Succeeded uint64 }
	}
	if r.code != 0 || json.Unmarshal([]byte(r.stdout), &list) != nil {
		return 0, false
	}
	for _, x := range list.Nodes {
		if x.Connected {
			connected++
		}
	}
	return connected, len(list.Requests) > 0 && list.Requests[0].Succeeded > 0
}

func (s *stage) connected() int {
	n, _ := s.nodes()
	return n
}

// gathered waits until so many observers are connected, the witness has seen a success, and no address is
// tentative any more (IPv6 duplicate address detection changes flags on its own).
func (s *stage) gathered(observers int) {
	s.t.Helper()
	s.until(fmt.Sprintf("%d observers are connected", observers), func() bool {
		n, answered := s.nodes()
		return n >= observers && answered
	})
	s.until("no address is tentative", func() bool { return s.tentative() == 0 })
}
