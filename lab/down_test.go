// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func TestDownRemovesWhatACrashLeftAndThenThereIsNothing(t *testing.T) {
	p := startProgram(t, scratch(t), nil)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.drain(t)
	_ = p.cmd.Wait()
	root := filepath.Dir(p.dir)
	if _, err := os.Stat(filepath.Join(p.dir, "logs", "server-n1.log")); err != nil {
		t.Fatalf("the crash left nothing to remove: %v", err)
	}
	removed, err := Down(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Removed{Directories: []string{p.dir}}, removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"removed " + p.dir}, removed.Lines()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", root, err)
	}
	again, err := Down(t.Context(), root)
	if err != nil || !again.Empty() || again.Lines()[0] != "nothing to remove" {
		t.Errorf("the second time: %v, %v", again.Lines(), err)
	}
}

func TestDownEndsARunningLabInGoodOrder(t *testing.T) {
	p := startProgram(t, scratch(t), nil)
	_, namespaces := members(t, p.dir)
	waited := make(chan error, 1)
	go func() { waited <- p.cmd.Wait() }()
	removed, err := Down(t.Context(), filepath.Dir(p.dir))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Removed{Processes: []int{p.cmd.Process.Pid}}, removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	if rest := p.drain(t); rest != "closed\n" {
		t.Errorf("the lab went on to say %q", rest)
	}
	var exit *exec.ExitError
	if err := <-waited; !errors.As(err, &exit) || exit.ExitCode() != 5 {
		t.Errorf("it ended with %v, want exit code 5", err)
	}
	wantNothingLeft(t, p.dir, namespaces)
}

func TestDownKillsALabThatDoesNotReact(t *testing.T) {
	p := startProgram(t, scratch(t), nil)
	_, namespaces := members(t, p.dir)
	outer, err := parseIdentity(filepath.Base(p.dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() { waited <- p.cmd.Wait() }()
	if told, err := outer.end(t.Context(), unix.SIGTERM, 50*time.Millisecond); err != nil || !told {
		t.Fatalf("told %v, %v", told, err)
	}
	p.drain(t)
	<-waited
	wantNothingLeft(t, p.dir, namespaces)
}

func TestDownNeverEndsAnotherProcessWithTheSameID(t *testing.T) {
	other := exec.Command("/bin/sleep", "600")
	other.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	real, err := identify(other.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]identity{
		"started at another time": {real.PID, real.Start - 1, real.Boot},
		"of another boot":         {real.PID, real.Start, "00000000"},
	} {
		root := t.TempDir()
		if err := os.Chmod(root, 0o700); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(root, id.String())
		e := &entry{dir: dir, record: record{Inner: id}}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := e.save(); err != nil {
			t.Fatal(err)
		}
		removed, err := Down(t.Context(), root)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Removed{Directories: []string{dir}}, removed); diff != "" {
			t.Errorf("%s: removed (-want +got):\n%s", name, diff)
		}
		if now, err := identify(other.Process.Pid); err != nil || now != real {
			t.Fatalf("%s: the other process is gone: %v, %v", name, now, err)
		}
	}
}

func TestDownLeavesAloneWhatIsNoLabs(t *testing.T) {
	root := t.TempDir()
	if err := os.Chmod(root, 0o700); err != nil {
		t.Fatal(err)
	}
	names := []string{"notes", "1-2", "1-2-", "-1-2-abcdef01", "1-2-abcdef01-more"}
	for _, name := range names {
		if err := os.Mkdir(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	removed, err := Down(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	// "1-2-abcdef01-more" reads as a boot id with a dash, which none has.
	if !removed.Empty() {
		t.Errorf("removed %v", removed)
	}
	if left := globbed(root + "/*"); len(left) != len(names) {
		t.Errorf("left are %v", left)
	}
}

func TestARootThatOthersCanWriteToIsRefused(t *testing.T) {
	root := t.TempDir()
	if err := os.Chmod(root, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Down(t.Context(), root); err == nil || !strings.Contains(err.Error(), "0700") {
		t.Errorf("Down: %v", err)
	}
	if _, err := newEntry(root); err == nil || !strings.Contains(err.Error(), "0700") {
		t.Errorf("newEntry: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if _, err := newEntry(link); err == nil || !strings.Contains(err.Error(), "0700") {
		t.Errorf("newEntry of a symbolic link: %v", err)
	}
}

func TestAnUnreadableRecordIsAnEmptyOne(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "999999999-7-abcdef01")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, recordName), []byte(`{"inner":{"pid":12`), 0o600); err != nil {
		t.Fatal(err)
	}
	e, owner, err := readEntry(dir)
	if err != nil || owner.PID != 999999999 || e.record.Inner.PID != 0 {
		t.Errorf("read %+v of %+v, %v", e, owner, err)
	}
}

func TestIdentitySurvivesItsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := identity{
			PID:   rapid.IntRange(1, 1<<22).Draw(t, "pid"),
			Start: rapid.Uint64().Draw(t, "start"),
			Boot:  rapid.StringMatching(`[0-9a-f]{8}`).Draw(t, "boot"),
		}
		got, err := parseIdentity(want.String())
		if err != nil || got != want {
			t.Fatalf("%s was read as %+v, %v", want, got, err)
		}
	})
}

func TestStartTimeIsFoundWhateverTheName(t *testing.T) {
	rest := " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21"
	for _, name := range []string{"(sh)", "(a b)", "(a) S 1 2)", "(())"} {
		got, err := startTime("42 " + name + rest)
		if err != nil || got != 4711 {
			t.Errorf("with the name %s: %d, %v", name, got, err)
		}
	}
	for _, stat := range []string{"", "42 (sh) S 1", "42 (sh) S" + strings.Repeat(" x", 20)} {
		if got, err := startTime(stat); err == nil {
			t.Errorf("%q was read as %d", stat, got)
		}
	}
}

func TestProcessesOneAndNoneAreNeverEnded(t *testing.T) {
	for _, id := range []identity{{}, {PID: 1, Start: 1}, {PID: -1}} {
		if told, err := id.end(t.Context(), unix.SIGTERM, time.Second); told || err != nil {
			t.Errorf("%+v: told to end %v, %v", id, told, err)
		}
	}
}

func TestEnteredLabsAreFoundByTheRootOfTheirUser(t *testing.T) {
	t.Setenv("TMPDIR", "/x")
	outside := Root()
	t.Setenv(insideEnv, "1")
	t.Setenv(outerUIDEnv, "1000")
	inside := Root()
	if want := []string{fmt.Sprintf("/x/vipmove-lab-%d", os.Getuid()), "/x/vipmove-lab-1000"}; !slices.Equal([]string{outside, inside}, want) {
		t.Errorf("roots are %s and %s, want %v", outside, inside, want)
	}
}
