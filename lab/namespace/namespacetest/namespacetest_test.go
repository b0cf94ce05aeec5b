// SPDX-License-Identifier: Apache-2.0

//go:build linux

package namespacetest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// helperEnv makes this binary forbid itself user namespaces, then run the tests
// in that state.
const helperEnv = "NAMESPACETEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) == "harden" {
		fmt.Fprintln(os.Stderr, harden())
		os.Exit(98)
	}
	os.Exit(Main(m))
}

// harden is run as the first process of a user namespace, by an ordinary user
// of it that may set its limits. It returns only when something went wrong.
func harden() error {
	runtime.LockOSThread()
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	if err := os.Setenv(helperEnv, "hardened"); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
}

// TestProbe needs namespaces, and is run by the tests below as well.
func TestProbe(t *testing.T) {
	n := NewT(t, "n1")
	if err := n.Do(func() error { return nil }); err != nil {
		t.Error(err)
	}
	fmt.Println("the probe ran")
}

func hardenedProbe(t *testing.T, env ...string) string {
	t.Helper()
	Require(t) // to make the user namespace around it
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestProbe$", "-test.v")
	cmd.Env = append(os.Environ(), helperEnv+"=harden", "CI=", tierEnv+"=", reexec.Marker+"=")
	cmd.Env = append(cmd.Env, env...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getegid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_RESOURCE},
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestRequireSkipsWithTheReasonWhereNothingWorks(t *testing.T) {
	out := hardenedProbe(t)
	for _, want := range []string{"--- SKIP: TestProbe", "operation not permitted", "no space left on device"} { // ENOSPC: the limit
		if !strings.Contains(out, want) {
			t.Errorf("output does not say %q:\n%s", want, out)
		}
	}
}

func TestRequireFailsInsteadUnderCIAndOnTheTestKernel(t *testing.T) {
	for _, env := range []string{"CI=true", tierEnv + "=1"} {
		out := hardenedProbe(t, env)
		if !strings.Contains(out, "--- FAIL: TestProbe") || !strings.Contains(out, env) || strings.Contains(out, "the probe ran") {
			t.Errorf("with %s it did not fail:\n%s", env, out)
		}
	}
}

// told is a test that only notes whether it was skipped.
type told struct {
	testing.TB
	skipped bool
}

func (t *told) Helper()     {}
func (t *told) Skip(...any) { t.skipped = true }

func TestWhatNeedsTheTestKernelRunsThereAndIsSkippedElsewhere(t *testing.T) {
	Require(t)
	for tier, want := range map[string]bool{"": true, "0": true, "1": false} {
		t.Setenv(tierEnv, tier)
		probe := told{TB: t}
		RequireTestKernel(&probe)
		if probe.skipped != want {
			t.Errorf("%s=%s: skipped %v, want %v", tierEnv, tier, probe.skipped, want)
		}
	}
}
