// SPDX-License-Identifier: Apache-2.0

//go:build linux

package namespace_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vipmove/vipmove/lab/namespace"
	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
)

// helpers are programs that run themselves again in new namespaces; the value
// is what the program does there.
var helpers = map[string]func() int{
	"describe": inNamespaces(func() int {
		n, err := namespace.New("inside")
		if err == nil {
			err = n.Close()
		}
		fmt.Printf("pid %d uid %d gid %d namespaces %v args %v extra %s\n",
			os.Getpid(), os.Getuid(), os.Getgid(), err, os.Args[1:], os.Getenv("EXTRA"))
		return 7
	}),
	"copy": inNamespaces(func() int {
		if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
			return 1
		}
		return 0
	}),
	"wait": inNamespaces(func() int {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
		fmt.Println("ready")
		fmt.Println(<-signals)
		return 3
	}),
	"killed": func() int {
		r := namespace.Reexec{Marker: "NAMESPACE_TEST_INSIDE", PID: true, Started: func(pid int) { _ = unix.Kill(pid, unix.SIGKILL) }}
		if r.Done() {
			_ = unix.Pause()
		}
		code, err := r.Run()
		if err != nil {
			return 98
		}
		return code
	},
}

func inNamespaces(inside func() int) func() int {
	return func() int {
		started := 0
		r := namespace.Reexec{Marker: "NAMESPACE_TEST_INSIDE", PID: true, Env: []string{"EXTRA=more"}, Started: func(pid int) { started = pid }}
		if r.Done() {
			return inside()
		}
		code, err := r.Run()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 98
		}
		if started <= 1 {
			fmt.Fprintf(os.Stderr, "Started was called with pid %d\n", started)
			return 97
		}
		return code
	}
}

// users runs test as the current user and, where that is root, as nobody.
func users(t *testing.T, test func(t *testing.T, command func(helper string, args ...string) *exec.Cmd)) {
	run := func(name string, credential *syscall.Credential) {
		t.Run(name, func(t *testing.T) {
			namespacetest.Require(t)
			test(t, func(helper string, args ...string) *exec.Cmd {
				cmd := exec.Command("/proc/self/exe", args...)
				cmd.Env = append(os.Environ(), helperEnv+"="+helper)
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Pdeathsig: unix.SIGKILL}
				cmd.Dir = "/"
				cmd.Stderr = os.Stderr
				return cmd
			})
		})
	}
	run("current user", nil)
	if initialRoot() {
		run("nobody", &syscall.Credential{Uid: 65534, Gid: 65534})
	}
}

// initialRoot reports whether this is the real root, which can become others.
func initialRoot() bool {
	ids, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && os.Geteuid() == 0 && cmp.Equal(strings.Fields(string(ids)), []string{"0", "0", "4294967295"})
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if err == nil {
		return 0
	}
	if !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return exit.ExitCode()
}

func TestReexecIsInitOfItsPidNamespaceAndRootInsideWithExitCodeAndArgumentsPassedOn(t *testing.T) {
	users(t, func(t *testing.T, command func(string, ...string) *exec.Cmd) {
		var out bytes.Buffer
		cmd := command("describe", "one", "two words")
		cmd.Stdout = &out
		if code := exitCode(t, cmd.Run()); code != 7 {
			t.Errorf("exit code is %d, want 7", code)
		}
		want := "pid 1 uid 0 gid 0 namespaces <nil> args [one two words] extra more\n"
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
	})
}

func TestReexecPassesItsStreams(t *testing.T) {
	users(t, func(t *testing.T, command func(string, ...string) *exec.Cmd) {
		var out bytes.Buffer
		cmd := command("copy")
		cmd.Stdin, cmd.Stdout = strings.NewReader("through and through"), &out
		if code := exitCode(t, cmd.Run()); code != 0 {
			t.Errorf("exit code is %d, want 0", code)
		}
		if out.String() != "through and through" {
			t.Errorf("output is %q", out.String())
		}
	})
}

func TestReexecForwardsSignals(t *testing.T) {
	users(t, func(t *testing.T, command func(string, ...string) *exec.Cmd) {
		for _, s := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP} {
			cmd, out := startWaiting(t, command)
			if err := cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(out)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(string(rest)); got != s.String() {
				t.Errorf("inside arrived %q, want %q", got, s)
			}
			if code := exitCode(t, cmd.Wait()); code != 3 {
				t.Errorf("exit code is %d, want 3", code)
			}
		}
	})
}

func TestReexecedProcessDiesWithTheOuterOneEvenBySIGKILL(t *testing.T) {
	users(t, func(t *testing.T, command func(string, ...string) *exec.Cmd) {
		cmd, out := startWaiting(t, command)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.Copy(io.Discard, out) // ends when nobody is left that could write
		}()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Error("the inner process outlived the outer one")
		}
		_ = cmd.Wait()
	})
}

func TestReexecReportsAnEndBySignalAsAShellDoes(t *testing.T) {
	users(t, func(t *testing.T, command func(string, ...string) *exec.Cmd) {
		if code := exitCode(t, command("killed").Run()); code != 137 {
			t.Errorf("exit code is %d, want 137", code)
		}
	})
}

// startWaiting starts the helper "wait" and returns once it is ready inside.
func startWaiting(t *testing.T, command func(string, ...string) *exec.Cmd) (*exec.Cmd, io.Reader) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	cmd := command("wait")
	cmd.Stdout = w
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(r)
	if line, err := out.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("waiting for the helper: %q, %v", line, err)
	}
	return cmd, out
}
