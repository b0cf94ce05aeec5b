// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/lab/namespace"
	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// machine is n1 for real: a network namespace, its kernel, and agent processes
// in it, one after the other.
type machine struct {
	t     testing.TB
	ns    *namespace.Namespace
	linux *host.Linux
	entry host.Tuple
	c     *coordinator
	state string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, ns: namespacetest.NewT(t, "n1"), state: t.TempDir()}
	if _, err := m.ns.AddDummy(testDummy); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"10.96.0.1/32", "192.0.2.50/32", "10.96.0.10/32"} {
		if err := m.ns.AddAddress(testDummy, netip.MustParsePrefix(p)); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if m.linux, err = host.New(host.Options{}); err != nil {
		t.Fatal(err)
	}
	state := m.read()
	for _, a := range state.Addresses {
		if a.Prefix.Addr() == vip {
			m.entry = a.Tuple()
		}
	}
	m.c = startCoordinator(t)
	return m
}

// read is the kernel's state, by the test itself.
func (m *machine) read() host.State {
	m.t.Helper()
	var state host.State
	err := m.ns.Do(func() (err error) {
		state, err = m.linux.State(context.Background(), []netip.Addr{vip})
		return err
	})
	if err != nil || len(state.Incomplete) > 0 {
		m.t.Fatalf("reading the kernel: %v, %v", err, state.Incomplete)
	}
	return state
}

// held reports whether the VIP is there, and how many addresses the dummy has.
func (m *machine) held() (bool, int) {
	n := 0
	state := m.read()
	for _, a := range state.Addresses {
		if a.LinkIndex == m.entry.LinkIndex {
			n++
		}
	}
	_, ok := listed(m.entry, state.Addresses)
	return ok, n
}

// agent is one agent process.
type agent struct {
	cmd *exec.Cmd
	log *bytes.Buffer
}

// start starts one in the namespace; dies is when it kills itself.
func (m *machine) start(dies Phase) *agent {
	m.t.Helper()
	self, err := os.Executable()
	if err != nil {
		m.t.Fatal(err)
	}
	a := &agent{cmd: exec.Command(self), log: &bytes.Buffer{}}
	a.cmd.Env = append(os.Environ(), childMarker+"="+m.c.address, childState+"="+m.state, childDies+"="+string(dies))
	a.cmd.Stdout, a.cmd.Stderr = a.log, a.log
	if err := m.ns.Start(a.cmd); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		if a.cmd.ProcessState == nil {
			_ = a.cmd.Process.Kill()
			_ = a.cmd.Wait()
		}
		if m.t.Failed() {
			m.t.Logf("agent:\n%s", a.log)
		}
	})
	return a
}

// killed waits for the end of a process and holds it to be SIGKILL's.
func (m *machine) killed(a *agent) {
	m.t.Helper()
	_ = a.cmd.Wait()
	if s, ok := a.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !s.Signaled() || s.Signal() != syscall.SIGKILL {
		m.t.Fatalf("the agent ended with %v:\n%s", a.cmd.ProcessState, a.log)
	}
}

func brief(f *vipmovev1.Fence, id string, ttl time.Duration) *vipmovev1.Command {
	c := removeOrder(f, id)
	c.GetRemove().Ttl = durationpb.New(ttl)
	return c
}

// TestAnAgentKilledBetweenDeleteAndAnswer: a real process, a real kernel.
func TestAnAgentKilledBetweenDeleteAndAnswerI8I9(t *testing.T) {
	m := newMachine(t)
	first := m.start(Removed)
	l := m.c.next()
	l.state(prepareOrder(l.fence(testRun), m.entry), prepared)
	const ttl = 3 * time.Second
	if r := l.do(brief(l.fence(testRun), removeID, ttl)); r != nil {
		t.Fatalf("answered %v, and it should be dead", r)
	}
	m.killed(first)
	if held, n := m.held(); held || n != 2 {
		t.Fatalf("held %v with %d addresses: the kill came before the delete", held, n)
	}

	m.start("")
	l = m.c.next()
	if p := l.hello.GetPendingUndo(); p.GetCommandId() != removeID || p.GetAddress().GetPrefix() != "192.0.2.50/32" {
		t.Errorf("hello after the kill: %v", l.hello)
	}
	l.state(inquireOrder(l.fence(testRun), removeID), removed)
	l.state(brief(l.fence(testRun), removeID, ttl), removed) // said again: from the record
	until(t, "the undo fires", func() bool { held, n := m.held(); return held && n == 3 })
	l.state(inquireOrder(l.fence(testRun), removeID), restored)
	l.state(brief(l.fence(testRun), removeID, ttl), restored)
	l.state(confirmOrder(l.fence(testRun), removeID), restored)
	if held, n := m.held(); !held || n != 3 {
		t.Errorf("held %v with %d addresses at the end", held, n)
	}
	for _, a := range m.read().Addresses {
		if a.Prefix == m.entry.Prefix && a.Tuple() != m.entry {
			t.Errorf("put back as %+v, it was %+v", a.Tuple(), m.entry)
		}
	}
}

func TestAnAgentKilledBeforeTheDeleteRemovedNothing(t *testing.T) {
	m := newMachine(t)
	first := m.start(Intended)
	l := m.c.next()
	l.state(prepareOrder(l.fence(testRun), m.entry), prepared)
	if r := l.do(removeOrder(l.fence(testRun), removeID)); r != nil {
		t.Fatalf("answered %v, and it should be dead", r)
	}
	m.killed(first)
	m.start("")
	l = m.c.next()
	l.state(inquireOrder(l.fence(testRun), removeID), notSeenBefore)
	l.state(removeOrder(l.fence(testRun), removeID), removed)
	l.state(confirmOrder(l.fence(testRun), removeID), confirmed)
	if held, n := m.held(); held || n != 2 {
		t.Errorf("held %v with %d addresses", held, n)
	}
}

func TestAnAgentKilledAfterTheConfirmWasWrittenKeepsIt(t *testing.T) {
	m := newMachine(t)
	first := m.start("")
	l := m.c.next()
	l.state(prepareOrder(l.fence(testRun), m.entry), prepared)
	l.state(brief(l.fence(testRun), removeID, 2*time.Second), removed)
	l.state(confirmOrder(l.fence(testRun), removeID), confirmed)
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	m.killed(first)
	m.start("")
	l = m.c.next()
	if l.hello.GetPendingUndo() != nil {
		t.Errorf("hello %v", l.hello)
	}
	l.state(inquireOrder(l.fence(testRun), removeID), confirmed)
	if held, _ := m.held(); held {
		t.Error("a confirmed removal was undone")
	}
}

func TestAnAgentToldToStopPutsBackBeforeItGoes(t *testing.T) {
	m := newMachine(t)
	first := m.start("")
	l := m.c.next()
	l.state(prepareOrder(l.fence(testRun), m.entry), prepared)
	l.state(removeOrder(l.fence(testRun), removeID), removed)
	if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := first.cmd.Wait(); err != nil {
		t.Errorf("ended with %v:\n%s", err, first.log)
	}
	if held, n := m.held(); !held || n != 3 {
		t.Errorf("held %v with %d addresses", held, n)
	}
}
