// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPKIMakesWhatTheConnectionFlagsRead(t *testing.T) {
	dir := filepath.Join(shortDir(t), "pki")
	env := map[string]string{envPKI: dir}
	for _, c := range []struct {
		line string
		want []string
	}{
		{"pki init", []string{"ca.crt"}},
		{"pki issue coordinator --dns vipmove.example --ip 192.0.2.2", []string{"coordinator.crt", "coordinator.key"}},
		{"pki issue agent n1", []string{"agent-n1.crt", "agent-n1.key"}},
		{"pki issue witness client --validity 24h", []string{"witness-client.crt", "witness-client.key"}},
		{"pki issue operator alice", []string{"operator-alice.crt", "operator-alice.key"}},
	} {
		r := command(t, env, strings.Fields(c.line)...)
		r.want(t, exitDone)
		var want strings.Builder
		for _, name := range c.want {
			path := filepath.Join(dir, name)
			want.WriteString(path + "\n")
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %v, want 0600", path, info.Mode())
			}
		}
		if r.stdout != want.String() {
			t.Errorf("%s printed %q, want %q", c.line, r.stdout, want.String())
		}
	}
	fake := &fakeControl{nodes: sevenNodes()}
	command(t, map[string]string{envPKI: dir, envCoordinator: fake.serveWith(t, dir)}, "nodes").want(t, exitDone)
}

func TestPKIOverwritesNothing(t *testing.T) {
	dir := shortDir(t)
	for _, line := range []string{"pki init", "pki issue operator alice"} {
		args := append(strings.Fields(line), "--pki", dir)
		command(t, nil, args...).want(t, exitDone)
		before := contents(t, dir)
		r := command(t, nil, args...)
		r.want(t, exitPreconditions, "it was kept")
		r.noData(t)
		if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
			t.Errorf("%s again changed files:\n%s", line, diff)
		}
	}
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[f.Name()] = string(text)
	}
	return all
}

func TestPKIRefusesWhatMakesNoSense(t *testing.T) {
	dir := shortDir(t)
	for _, c := range []struct {
		line string
		code int
		says string
	}{
		{"pki issue", exitUsage, "ROLE is missing"},
		{"pki issue agent n1 n2", exitUsage, "ROLE and one NAME are wanted"},
		{"pki issue boss alice", exitUsage, `role "boss"`},
		{"pki issue agent", exitUsage, "name of agent"},
		{"pki issue agent ../n1", exitUsage, "name of agent"},
		{"pki issue coordinator n1", exitUsage, "has no name"},
		{"pki issue agent n1 --dns n1.example", exitUsage, "nobody dials agent n1"},
		{"pki issue coordinator --ip here", exitUsage, "not an IP address"},
		{"pki issue agent n1 --validity 0s", exitUsage, "want a time above zero"},
		{"pki issue agent n1", exitFailure, "vipmove pki init"},
		{"pki init now", exitUsage, "no argument is wanted"},
		{"pki frob", exitUsage, `unknown command "frob"`},
	} {
		r := command(t, map[string]string{envPKI: dir}, strings.Fields(c.line)...)
		r.want(t, c.code, c.says)
		r.noData(t)
	}
	if left := contents(t, dir); len(left) != 0 {
		t.Errorf("files were made: %v", left)
	}
}

func TestVersionIsTheSameInBothForms(t *testing.T) {
	r := command(t, nil, "version")
	r.want(t, exitDone)
	var b build
	if err := json.Unmarshal([]byte(command(t, nil, "version", "-o", "json").stdout), &b); err != nil {
		t.Fatal(err)
	}
	want := "vipmove " + b.Version + " (commit " + b.Commit + ", " + b.Go + ", " + b.Platform + ")\n"
	if r.stdout != want || b.Version == "" || b.Protocol == 0 {
		t.Errorf("version prints %q, JSON makes %q of %+v", r.stdout, want, b)
	}
	if flag := command(t, nil, "--version"); flag.stdout != r.stdout || flag.code != exitDone {
		t.Errorf("--version prints %q", flag.stdout)
	}
	command(t, nil, "version", "-o", "xml").want(t, exitUsage, "want table or json")
}
