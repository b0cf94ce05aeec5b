// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(cleaner{m}) }

// cleaner removes the binaries after the tests.
type cleaner struct{ *testing.M }

func (c cleaner) Run() int {
	code := c.M.Run()
	if built != "" {
		_ = os.RemoveAll(built) // in the temporary directory
	}
	return code
}

// built is the directory that binaries made.
var built string

// binaries builds the three programs once for all tests here.
var binaries = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "vipmove-bin")
	if err != nil {
		return "", err
	}
	built = dir
	for name, pkg := range map[string]string{"vipmove": "..", "vipmove-agent": "../agent", "vipmove-coordinator": "../coordinator"} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, name), pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return dir, errors.New(string(out))
		}
	}
	return dir, nil
})

// played is a demo that was run to its end.
type played struct {
	code           int
	report         demoReport
	stdout, stderr string
}

// playDemo runs the real demo. Where no namespaces can be made it skips, and fails under CI=true.
func playDemo(t *testing.T, args ...string) played {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "vipmove"), append([]string{"demo", "-o", "json"}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	p := played{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
	if strings.Contains(p.stderr, "making network namespaces: not possible here") {
		if os.Getenv("CI") == "true" {
			t.Fatalf("network namespaces are needed under CI=true: %s", p.stderr)
		}
		t.Skipf("network namespaces are needed: %s", p.stderr)
	}
	if err := json.Unmarshal(stdout.Bytes(), &p.report); err != nil {
		t.Fatalf("stdout is not one JSON object: %v\n%s\n%s", err, p.stdout, p.stderr)
	}
	return p
}

// The story of docs/design.md section 1, with the real kernel and the real binaries (I1, I2, I3, I4).
func TestDemoEndsWithOneResponderAndNoRequestLost(t *testing.T) {
	p := playDemo(t, "--nodes", "3", "--clusterips", "5")
	if p.code != exitDone {
		t.Fatalf("exit code %d\n%s", p.code, p.stderr)
	}
	r := p.report
	if r.RespondersBefore != 3 || r.RespondersAfter != 1 || r.VerdictBefore != "contested" || r.VerdictAfter != "single" {
		t.Errorf("from %d (%s) to %d (%s), want from 3 (contested) to 1 (single)", r.RespondersBefore, r.VerdictBefore, r.RespondersAfter, r.VerdictAfter)
	}
	if diff := cmp.Diff(map[string]int{"n1": 5, "n2": 5, "n3": 5}, r.AddressesLeft); diff != "" {
		t.Errorf("addresses left (-want +got):\n%s", diff)
	}
	if len(r.Order) != 3 || r.Order[0] != r.Canary || r.Order[2] != r.Owner || r.Owner != "n2" {
		t.Errorf("order %v, canary %s, owner %s", r.Order, r.Canary, r.Owner)
	}
	if r.Requests.Failed != 0 || r.Requests.Sent == 0 {
		t.Errorf("requests: %+v", r.Requests)
	}
	if !strings.Contains(p.stderr, "hears 1:") {
		t.Errorf("the story does not tell what a first-reply tool hears:\n%s", p.stderr)
	}
}

func TestDemoUndoesAStepThatNodesCannotServeWithout(t *testing.T) {
	p := playDemo(t, "--nodes", "3", "--clusterips", "5", "--serve-needs-address")
	if p.code != exitRolledBack {
		t.Fatalf("exit code %d, want %d\n%s", p.code, exitRolledBack, p.stderr)
	}
	if diff := cmp.Diff(map[string]int{"n1": 6, "n2": 6, "n3": 6}, p.report.AddressesLeft); diff != "" {
		t.Errorf("addresses left (-want +got):\n%s", diff)
	}
	if p.report.RespondersAfter != 3 || len(p.report.Order) > 1 {
		t.Errorf("%d answer after, %v had their step; want all three, and no step after the first", p.report.RespondersAfter, p.report.Order)
	}
}

// Removing where nothing else answers must be refused before anything is changed (I1).
func TestDemoWithoutAnAnnouncerChangesNothing(t *testing.T) {
	p := playDemo(t, "--nodes", "3", "--clusterips", "5", "--no-announcer")
	if p.code != exitPreconditions {
		t.Fatalf("exit code %d, want %d\n%s", p.code, exitPreconditions, p.stderr)
	}
	if diff := cmp.Diff(map[string]int{"n1": 6, "n2": 6, "n3": 6}, p.report.AddressesLeft); diff != "" {
		t.Errorf("addresses left (-want +got):\n%s", diff)
	}
	if len(p.report.Order) != 0 || p.report.RespondersAfter != 3 {
		t.Errorf("%v had their step, %d answer after", p.report.Order, p.report.RespondersAfter)
	}
}
