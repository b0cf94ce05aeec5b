// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const shell = "/bin/sh"

func TestAProcessThatDiesIsNoticedWithTheEndOfItsLog(t *testing.T) {
	l := wired(t, Config{Nodes: 1, ClusterIPs: -1})
	p, err := l.StartProcess("n1", "agent-n1", shell, "-c", "i=0; while [ $i -lt 50 ]; do echo line $i; i=$((i+1)); done; echo no journal >&2; exit 2")
	if err != nil {
		t.Fatal(err)
	}
	select {
	case exit := <-l.Died():
		for _, want := range []string{"agent-n1", "exit status 2", p.Log(), "line 49", "no journal"} {
			if !strings.Contains(exit.Error(), want) {
				t.Errorf("error does not say %q:\n%v", want, exit)
			}
		}
		if strings.Contains(exit.Error(), "line 30\n") {
			t.Errorf("error has more than the end of the log:\n%v", exit)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the death was not noticed")
	}
	var exit *ExitError
	if err := p.Wait(t.Context()); !errors.As(err, &exit) || exit.State != "exit status 2" {
		t.Errorf("Wait returned %v", err)
	}
	if p.Running() {
		t.Error("it passes for running")
	}
}

func TestAnEndThatWasAskedForIsNoDeath(t *testing.T) {
	l := wired(t, Config{Nodes: 1, ClusterIPs: -1})
	for name, end := range map[string]func(p *Process) error{
		"Kill": func(p *Process) error { p.Kill(); return nil },
		"Stop": func(p *Process) error { p.Stop(time.Minute); return nil },
		"Signal": func(p *Process) error {
			err := p.Signal(unix.SIGTERM)
			<-p.Done()
			return err
		},
		"Stop, of one that ignores SIGTERM": func(p *Process) error {
			if err := p.Signal(unix.SIGSTOP); err != nil {
				return err
			}
			p.Stop(time.Millisecond)
			return nil
		},
	} {
		p, err := l.StartProcess("n1", "sleeper", "/bin/sleep", "600")
		if err != nil {
			t.Fatal(err)
		}
		if err := end(p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := p.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "signal: ") {
			t.Errorf("%s: Wait returned %v", name, err)
		}
	}
	select {
	case exit := <-l.Died():
		t.Errorf("delivered as a death: %v", exit)
	default:
	}
}

func TestRestartRunsTheSameAgainUnderTheSameName(t *testing.T) {
	l := up(t, Config{Nodes: 1, ClusterIPs: -1})
	before := l.Process("announcer-n1")
	after, err := before.Restart(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if before.Running() || !after.Running() || before.PID() == after.PID() {
		t.Errorf("before %d (running %v), after %d (running %v)", before.PID(), before.Running(), after.PID(), after.Running())
	}
	if l.Process("announcer-n1") != after {
		t.Error("the name is not the new process's")
	}
	if err := l.Nodes()[0].RemoveAddress(Dummy, l.HostVIP()); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := l.FirstReply(t.Context(), 5*time.Second); err != nil || !ok {
		t.Errorf("the restarted announcer does not answer: %v, %v", ok, err)
	}
}

func TestAProcessRunsInsideItsHost(t *testing.T) {
	l := wired(t, Config{Nodes: 2, ClusterIPs: -1})
	p, err := l.StartProcess("n2", "look", shell, "-c", "readlink /proc/self/ns/net; pwd")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(p.Log())
	if err != nil {
		t.Fatal(err)
	}
	var want string
	err = l.Nodes()[1].Do(func() (err error) {
		want, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(out); got != want+"\n"+l.Dir()+"\n" {
		t.Errorf("it saw %q, want %s and %s", got, want, l.Dir())
	}
}

func TestStartingWhatCannotStartSaysWhatAndWhere(t *testing.T) {
	l := wired(t, Config{Nodes: 1, ClusterIPs: -1})
	if _, err := l.StartProcess("n1", "sleeper", "/bin/sleep", "600"); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		host, name, path string
		want             []string
	}{
		{"n1", "ghost", "/nonexistent/agent", []string{"ghost", "n1", "/nonexistent/agent"}},
		{"n9", "ghost", shell, []string{`"n9"`, "n1"}},
		{"n1", "sleeper", "/bin/sleep", []string{"sleeper", "runs already"}},
	}
	for _, c := range cases {
		_, err := l.StartProcess(c.host, c.name, c.path)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error is %v, want one with %q", err, want)
			}
		}
	}
}

func TestAServerThatCannotListenFailsTheStartWithItsLog(t *testing.T) {
	l := up(t, Config{Nodes: 1, ClusterIPs: -1, NoAnnouncer: true})
	_, err := l.start(t.Context(), spec{
		host: "n1", name: "second-server", path: l.config.VipmovePath, ready: true,
		args: []string{ServerCommand, "--node", "n1", "--listen", "192.0.2.11:8080"},
	})
	var exit *ExitError
	if !errors.As(err, &exit) || !strings.Contains(exit.Tail, "address already in use") {
		t.Errorf("error is %v", err)
	}
}

func TestStartEndsWithItsContextWhenTheProcessNeverGetsReady(t *testing.T) {
	l := wired(t, Config{Nodes: 1, ClusterIPs: -1})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := l.start(ctx, spec{host: "n1", name: "mute", path: shell, ready: true, args: []string{"-c", "exec sleep 600"}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v, want that of the context", err)
	}
}

func TestNothingStartsInAClosedLab(t *testing.T) {
	l := wired(t, Config{Nodes: 1, ClusterIPs: -1})
	p, err := l.StartProcess("n1", "sleeper", "/bin/sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if p.Running() {
		t.Error("the process outlived the lab")
	}
	if _, err := p.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("error is %v", err)
	}
}

func TestProgramsAreFoundBesideTheExecutableOrNamedAsMissing(t *testing.T) {
	dir := t.TempDir()
	self := filepath.Join(dir, "vipmove")
	install := func(name string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	install("vipmove-agent", 0o755)
	install("vipmove-coordinator", 0o644) // not executable
	_, err := programsBeside(self)
	if err == nil || !strings.Contains(err.Error(), "vipmove-coordinator beside vipmove") || strings.Contains(err.Error(), "vipmove-agent") {
		t.Errorf("error is %v, want one about the coordinator alone", err)
	}
	if err := os.Remove(filepath.Join(dir, "vipmove-coordinator")); err != nil {
		t.Fatal(err)
	}
	install("vipmove-coordinator", 0o755)
	found, err := programsBeside(self)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Programs{self, filepath.Join(dir, "vipmove-agent"), filepath.Join(dir, "vipmove-coordinator")}); found != want {
		t.Errorf("found %v, want %v", found, want)
	}
}

func TestAgentsAndCoordinatorGetTheirArguments(t *testing.T) {
	l := wired(t, Config{Nodes: 2, ClusterIPs: -1,
		// A stand-in that writes its arguments down, one a line.
		AgentPath: "/usr/bin/printf", CoordinatorPath: "/usr/bin/printf",
		AgentArgs: func(node string, planned []string) []string {
			return append([]string{"%s\n", "agent of " + node}, planned...)
		},
		CoordinatorArgs: func(planned []string) []string { return append([]string{"%s\n"}, planned...) },
	})
	coordinator, err := l.StartCoordinator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.StartAgents(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants := map[*Process][]string{
		coordinator: {"--listen", "192.0.2.2:7443", "--listen", "unix:" + l.Dir() + "/coordinator.sock", "--http", "127.0.0.1:9743",
			"--journal", l.Dir() + "/journal.db", "--ca", l.Dir() + "/pki/ca.crt",
			"--cert", l.Dir() + "/pki/coordinator.crt", "--key", l.Dir() + "/pki/coordinator.key"},
	}
	for _, n := range []string{"n1", "n2"} {
		wants[l.Process(AgentProcess(n))] = []string{"agent of " + n,
			"--node", n, "--coordinator", "192.0.2.2:7443", "--server-name", "coordinator",
			"--ca", l.Dir() + "/pki/ca.crt", "--cert", l.Dir() + "/pki/" + n + ".crt", "--key", l.Dir() + "/pki/" + n + ".key",
			"--state-dir", l.Dir() + "/agents/" + n, "--listen", "127.0.0.1:9742",
			"--allow-prefix", "192.0.2.0/24", "--allow-link", "kube-ipvs0", "--act"}
	}
	for p, want := range wants {
		if err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(p.Log())
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != strings.Join(want, "\n")+"\n" {
			t.Errorf("%s was started with\n%s\nwant\n%s", p.Name(), got, strings.Join(want, "\n"))
		}
	}
	if info, err := os.Stat(filepath.Join(l.Dir(), "agents", "n1")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("state directory: %v, %v", info, err)
	}
}

func TestAgentsAndCoordinatorNeedTheirPaths(t *testing.T) {
	l := wired(t, Config{Nodes: 1, ClusterIPs: -1})
	if err := l.StartAgents(t.Context()); err == nil || !strings.Contains(err.Error(), "AgentPath") {
		t.Errorf("error is %v", err)
	}
	if _, err := l.StartCoordinator(t.Context()); err == nil || !strings.Contains(err.Error(), "CoordinatorPath") {
		t.Errorf("error is %v", err)
	}
}

func TestRunChildLeavesOtherCommandsAloneAndRefusesBadFlags(t *testing.T) {
	for _, args := range [][]string{nil, {"demo"}, {"--node"}} {
		if handled, _ := RunChild(args); handled {
			t.Errorf("%q was handled", args)
		}
	}
	for _, args := range [][]string{
		{ServerCommand, "--listen", "nonsense"},
		{AnnouncerCommand, "--vip", "192.0.2.0/24"},
		{AnnouncerCommand, "--interface", "eth77", "--vip", "192.0.2.50"},
	} {
		if handled, code := RunChild(args); !handled || code != 1 {
			t.Errorf("%q: handled %v, code %d; want code 1", args, handled, code)
		}
	}
}

func TestTheTailOfALogIsItsLastLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	var log strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&log, "line %d\n", i)
	}
	if err := os.WriteFile(path, []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(tail(path), "\n")
	if len(lines) != tailLines || lines[0] != "line 9988" || lines[tailLines-1] != "line 9999" {
		t.Errorf("tail is %q", lines)
	}
	if got := tail(path + ".missing"); got != "" {
		t.Errorf("tail of a missing file is %q", got)
	}
}
