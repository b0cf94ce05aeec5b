// SPDX-License-Identifier: Apache-2.0

//go:build kernel

// Package hack has no code of its own: it tests the programs of this folder.
package hack

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// run is one vmexec, with a folder of its own for its temporary files.
type run struct {
	*exec.Cmd
	tmp      string
	out, err bytes.Buffer
}

func vmexec(t *testing.T, env []string, args ...string) *run {
	t.Helper()
	program, err := filepath.Abs("vmexec")
	if err != nil {
		t.Fatal(err)
	}
	r := &run{Cmd: exec.Command(program, args...), tmp: t.TempDir()}
	r.Env = append(append(os.Environ(), "TMPDIR="+r.tmp), env...)
	r.Stdout, r.Stderr = &r.out, &r.err
	return r
}

// shell is a vmexec of a script.
func shell(t *testing.T, script string, env ...string) *run {
	t.Helper()
	return vmexec(t, env, "sh", "-c", script)
}

// ends runs r to its end, which has to be by this status, and checks that
// nothing of it is left.
func (r *run) ends(t *testing.T, status int) {
	t.Helper()
	err := r.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := r.ProcessState.ExitCode(); got != status {
		t.Errorf("exit status %d, want %d\nstdout: %s\nstderr: %s", got, status, &r.out, &r.err)
	}
	r.leavesNothing(t)
}

// leavesNothing: no file, and no process that was started with its folder.
func (r *run) leavesNothing(t *testing.T) {
	t.Helper()
	if left, err := os.ReadDir(r.tmp); err != nil || len(left) > 0 {
		t.Errorf("files left: %v, %v", left, err)
	}
	deadline := time.After(10 * time.Second) // a killed process takes a moment to go
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		left := processes(r.tmp)
		if len(left) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("processes left: %q", left)
		}
	}
}

// processes are the command lines that have part in them.
func processes(part string) []string {
	var list []string
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		line, err := os.ReadFile(name) // an error: it has just ended
		if err == nil && bytes.Contains(line, []byte(part)) {
			list = append(list, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return list
}

func TestTheExitStatusIsTheProgramsOwn(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 1": 1, "exit 42": 42, "kill -9 $$": 137} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			shell(t, script).ends(t, want)
		})
	}
}

func TestAHangIs125WithTheOutputSoFarAndTheConsole(t *testing.T) {
	t.Parallel()
	r := shell(t, "echo before; sleep 1000; echo after", "VMEXEC_TIMEOUT=8")
	r.ends(t, 125)
	if r.out.String() != "before\n" {
		t.Errorf("output %q", &r.out)
	}
	for _, want := range []string{"did not end within 8 s", "IPVS: ipvs loaded."} {
		if !strings.Contains(r.err.String(), want) {
			t.Errorf("standard error lacks %q:\n%s", want, &r.err)
		}
	}
}

func TestAGuestThatDiesIs125(t *testing.T) {
	t.Parallel()
	r := shell(t, "echo before; echo c >/proc/sysrq-trigger; sleep 1000")
	r.ends(t, 125)
	if !strings.Contains(r.err.String(), "told no exit status of sh") || !strings.Contains(r.err.String(), "Kernel panic") {
		t.Errorf("standard error:\n%s", &r.err)
	}
}

func TestAGuestWhoseModulesCannotBeLoadedIs125(t *testing.T) {
	t.Parallel()
	r := shell(t, "echo ran", "VMEXEC_MODULES=veth no_such_module")
	r.ends(t, 125)
	if r.out.Len() > 0 {
		t.Errorf("the program ran: %q", &r.out)
	}
}

func TestTheProgramFindsArgumentsEnvironmentAndFolderAsTheyAre(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "a folder: it's \"odd\" $HOME")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"two words", "", "it's", `"quoted" \ $HOME`, "new\nline", "-x", "ümlaut"}
	script := `pwd; printf '%s\0' "$@"; printf '%s\0' "$ODD" "$TMPDIR" "$VIPMOVE_KERNEL_TIER" "${OUT-unset}"`
	r := vmexec(t, []string{"ODD=line 1\ndeclare -x TMPDIR=/\n'`$("}, append([]string{"sh", "-c", script, "name"}, args...)...)
	r.Dir = folder
	r.ends(t, 0)
	want := folder + "\n" + strings.Join(append(args, "line 1\ndeclare -x TMPDIR=/\n'`$(", "/run/tmp", "1", "unset"), "\x00") + "\x00"
	if diff := cmp.Diff(want, r.out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

func TestALongOutputIsWhole(t *testing.T) {
	t.Parallel()
	r := shell(t, "seq 300000; seq 3 >&2")
	r.ends(t, 0)
	if lines := strings.Count(r.out.String(), "\n"); lines != 300003 || !strings.HasSuffix(r.out.String(), "300000\n1\n2\n3\n") {
		t.Errorf("%d lines", lines)
	}
}

func TestTheMachineCannotBeWrittenToButTMPDIRCan(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	r := shell(t, fmt.Sprintf("touch $TMPDIR/file && ! touch %s/file", folder))
	r.ends(t, 0)
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("the guest wrote to %s: %v, %v", folder, left, err)
	}
}

// What the tier is for: dummy and ip_vs are there, and what is not loaded yet
// comes when it is asked for.
func TestItsKernelHasDummyAndIPVSAndLoadsModules(t *testing.T) {
	t.Parallel()
	r := shell(t, `set -e
ip link add kube-ipvs0 type dummy
ip -d -o link show kube-ipvs0 | grep -o 'state DOWN\|BROADCAST,NOARP\| dummy '
head -1 /proc/net/ip_vs
ip link add bond0 type bond
ip -o link show | grep -c dummy0 || true
uname -r`)
	r.ends(t, 0)
	lines := strings.Split(strings.TrimSpace(r.out.String()), "\n")
	if len(lines) != 6 || lines[0] != "BROADCAST,NOARP" || lines[1] != "state DOWN" || !strings.HasPrefix(lines[3], "IP Virtual Server") || lines[4] != "0" {
		t.Errorf("output %q", lines)
	}
	host, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil || strings.TrimSpace(string(host)) == lines[len(lines)-1] {
		t.Errorf("its kernel is this machine's: %q, %v", host, err)
	}
}

func TestASignalEndsTheGuestAndLeavesNothing(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			r := shell(t, "echo ready; sleep 1000")
			if err := r.Start(); err != nil {
				t.Fatal(err)
			}
			r.waitReady(t)
			if err := r.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			_ = r.Wait()
			if got, want := r.ProcessState.ExitCode(), 128+int(s); got != want {
				t.Errorf("exit status %d, want %d", got, want)
			}
			r.leavesNothing(t)
		})
	}
}

// waitReady waits until the program in the guest has said "ready".
func (r *run) waitReady(t *testing.T) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		logs, _ := filepath.Glob(filepath.Join(r.tmp, "vmexec.*", "log"))
		for _, name := range logs {
			if b, err := os.ReadFile(name); err == nil && string(b) == "ready\n" {
				return
			}
		}
		select {
		case <-tick.C:
		case <-deadline:
			_ = r.Process.Signal(syscall.SIGTERM)
			_ = r.Wait()
			t.Fatalf("the guest is not ready:\n%s", &r.err)
		}
	}
}

func TestWhatIsMissingIsNamedWithTheAptLine(t *testing.T) {
	t.Parallel()
	path := t.TempDir() // a machine that has a shell and little else
	for _, tool := range []string{"bash", "dirname"} {
		found, err := exec.LookPath(tool)
		if err == nil {
			err = os.Symlink(found, filepath.Join(path, tool))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r := shell(t, "exit 0", "PATH="+path)
	r.ends(t, 125)
	if want := "linux.uml is missing; apt-get install --no-install-recommends user-mode-linux kmod iproute2"; !strings.Contains(r.err.String(), want) {
		t.Errorf("standard error %q, want %q", &r.err, want)
	}
	r = vmexec(t, nil)
	r.ends(t, 125)
	if !strings.Contains(r.err.String(), "usage: vmexec PROGRAM") {
		t.Errorf("standard error %q", &r.err)
	}
	r = shell(t, "exit 0")
	r.tmp = filepath.Join(r.tmp, "with space")
	if err := os.Mkdir(r.tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	r.Env = append(r.Env, "TMPDIR="+r.tmp)
	r.ends(t, 125)
	if !strings.Contains(r.err.String(), "the guest cannot see this folder") {
		t.Errorf("standard error %q", &r.err)
	}
}
