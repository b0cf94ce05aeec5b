// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
)

// program is a running labProgram.
type program struct {
	cmd    *exec.Cmd
	out    *bufio.Reader
	stderr bytes.Buffer
	dir    string // of its lab
	pid    int    // of the inner process, inside
	macs   int    // that answered
}

// users runs test as the current user and, where that is the real root, as
// nobody too.
func users(t *testing.T, test func(t *testing.T, credential *syscall.Credential)) {
	t.Run("current user", func(t *testing.T) {
		namespacetest.Require(t)
		test(t, nil)
	})
	ids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || os.Geteuid() != 0 || strings.Join(strings.Fields(string(ids)), " ") != "0 0 4294967295" {
		return // this one is an ordinary user already
	}
	t.Run("nobody", func(t *testing.T) {
		namespacetest.Require(t)
		test(t, &syscall.Credential{Uid: 65534, Gid: 65534})
	})
}

// scratch is a TMPDIR for the test that every user can write to.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lab") // shorter than t.TempDir: sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func startProgram(t *testing.T, tmp string, credential *syscall.Credential) *program {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	p := &program{cmd: exec.Command("/proc/self/exe"), out: bufio.NewReader(r)}
	p.cmd.Env = append(os.Environ(), helperEnv+"=lab", "TMPDIR="+tmp)
	p.cmd.Dir = "/"
	p.cmd.Stdout, p.cmd.Stderr = w, &p.stderr
	p.cmd.WaitDelay = 10 * time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Setpgid: true}
	err = p.cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	line, err := p.out.ReadString('\n')
	if _, scanErr := fmt.Sscanf(line, "up %s %d %d <nil>", &p.dir, &p.pid, &p.macs); err != nil || scanErr != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		t.Fatalf("waiting for the lab: %q, %v\n%s", line, errors.Join(err, scanErr), p.stderr.String())
	}
	return p
}

// drain waits until nobody is left that could write to the program's output.
func (p *program) drain(t *testing.T) string {
	t.Helper()
	rest := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(p.out)
		rest <- string(all)
	}()
	select {
	case all := <-rest:
		return all
	case <-time.After(20 * time.Second):
		t.Fatal("a process of the lab outlived it")
		return ""
	}
}

// members lists the processes whose environment names the lab's directory, and
// the network namespaces that they are in or hold.
func members(t *testing.T, dir string) (pids []string, namespaces map[string]bool) {
	t.Helper()
	namespaces = make(map[string]bool)
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range environs {
		env, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(env, []byte(dirEnv+"="+dir)) {
			continue
		}
		proc := filepath.Dir(path)
		pids = append(pids, filepath.Base(proc))
		for _, link := range append(globbed(proc+"/fd/*"), proc+"/ns/net") {
			if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, "net:[") {
				namespaces[target] = true
			}
		}
	}
	return pids, namespaces
}

func globbed(pattern string) []string {
	paths, _ := filepath.Glob(pattern)
	return paths
}

// holding lists what still holds one of the namespaces.
func holding(namespaces map[string]bool) []string {
	var holders []string
	for _, link := range append(globbed("/proc/[0-9]*/fd/*"), globbed("/proc/[0-9]*/ns/net")...) {
		if target, err := os.Readlink(link); err == nil && namespaces[target] {
			holders = append(holders, link+" "+target)
		}
	}
	return holders
}

// wantNothingLeft checks that no process and no namespace of the lab is left.
func wantNothingLeft(t *testing.T, dir string, namespaces map[string]bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		pids, _ := members(t, dir)
		holders := holding(namespaces)
		if len(pids) == 0 && len(holders) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("left over: processes %v, namespaces held by %v", pids, holders)
		}
	}
}

func TestKillingTheOuterProcessLeavesNoProcessAndNoNamespace(t *testing.T) {
	users(t, func(t *testing.T, credential *syscall.Credential) {
		p := startProgram(t, scratch(t), credential)
		pids, namespaces := members(t, p.dir)
		// Inner process, three servers, one announcer; the outer one has no such variable.
		// Namespaces: the inner one's, switch, client, coordinator and three nodes.
		own, err := os.Readlink("/proc/self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		if len(pids) != 5 || len(namespaces) != 7 || namespaces[own] || p.macs != 3 || p.pid != 1 {
			t.Fatalf("%d processes, %d namespaces (ours among them: %v), %d MACs answer, inner process %d; want 5, 7, false, 3, 1",
				len(pids), len(namespaces), namespaces[own], p.macs, p.pid)
		}
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.drain(t)
		wantNothingLeft(t, p.dir, namespaces)
	})
}

func TestSIGTERMOfTheOuterProcessClosesTheLabAndPassesTheExitCode(t *testing.T) {
	users(t, func(t *testing.T, credential *syscall.Credential) {
		tmp := scratch(t)
		p := startProgram(t, tmp, credential)
		_, namespaces := members(t, p.dir)
		if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if rest := p.drain(t); rest != "closed\n" {
			t.Errorf("it went on to say %q", rest)
		}
		var exit *exec.ExitError
		if err := p.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 5 {
			t.Errorf("it ended with %v, want exit code 5\n%s", err, p.stderr.String())
		}
		wantNothingLeft(t, p.dir, namespaces)
		if left := globbed(tmp + "/*"); len(left) != 0 {
			t.Errorf("left in TMPDIR: %v", left)
		}
	})
}

func TestKillingTheInnerProcessEndsTheOuterOneAsAShellWouldSay(t *testing.T) {
	p := startProgram(t, scratch(t), nil)
	e, _, err := readEntry(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(e.record.Inner.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.drain(t)
	var exit *exec.ExitError
	if err := p.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 137 {
		t.Errorf("it ended with %v, want exit code 137", err)
	}
}

// hardenedProgram is started as the first process of a user namespace, as an
// ordinary user of it that may set its limits. It forbids namespaces, gives
// that right up, and becomes labProgram.
func hardenedProgram() int {
	runtime.LockOSThread()
	err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0)
	if err == nil {
		err = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	}
	if err == nil {
		err = os.Setenv(helperEnv, "lab")
	}
	if err == nil {
		err = syscall.Exec("/proc/self/exe", []string{"bin/vipmove", "demo", "--nodes", "3", "it's"}, os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	return 98
}

func TestWithoutRightsItSaysWhyInOneSentenceAndTheSudoLine(t *testing.T) {
	namespacetest.Require(t)
	tmp := scratch(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperEnv+"=hardened", "TMPDIR="+tmp)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getegid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_RESOURCE},
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v, want exit code 1", err)
	}
	want := `making network namespaces: not possible here for an ordinary user (sysctl user.max_user_namespaces is 0); run: sudo bin/vipmove demo --nodes 3 'it'\''s'` + "\n"
	if string(out) != want {
		t.Errorf("it said\n%s\nwant\n%s", out, want)
	}
	if left := globbed(tmp + "/*"); len(left) != 0 {
		t.Errorf("left in TMPDIR: %v", left)
	}
}

func TestTheObstacleIsNamedAsTheSettingWhereItIsOne(t *testing.T) {
	for path, value := range map[string]string{
		"kernel/unprivileged_userns_clone":             "0",
		"kernel/apparmor_restrict_unprivileged_userns": "1",
		"user/max_net_namespaces":                      "0",
	} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		write := func(value string) {
			if err := os.WriteFile(filepath.Join(root, path), []byte(value+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write(value)
		name := strings.ReplaceAll(path, "/", ".")
		if got, want := obstacle(root, unix.EPERM), "sysctl "+name+" is "+value; got != want {
			t.Errorf("obstacle is %q, want %q", got, want)
		}
		write("2")
		if got := obstacle(root, unix.EPERM); got != "operation not permitted" {
			t.Errorf("with %s at 2 the obstacle is %q", name, got)
		}
	}
}

func TestTheSudoLineCanBePasted(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"sudo ./bin/vipmove demo --rate=100":         {"./bin/vipmove", "demo", "--rate=100"},
		"sudo " + self + " demo":                     {"vipmove", "demo"}, // sudo has a PATH of its own
		`sudo /x/vipmove 'a b' '' '$HOME' 'it'\''s'`: {"/x/vipmove", "a b", "", "$HOME", "it's"},
	} {
		if got := sudoLine(args); got != want {
			t.Errorf("line is %s, want %s", got, want)
		}
	}
}

func TestRootInAContainerIsNotToldToUseSudo(t *testing.T) {
	e := &UnavailableError{Reason: "operation not permitted"}
	if text := e.Error(); strings.Contains(text, "sudo") || !strings.Contains(text, "container") {
		t.Errorf("it says %q", text)
	}
}
