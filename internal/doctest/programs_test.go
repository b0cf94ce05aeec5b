// SPDX-License-Identifier: Apache-2.0

package doctest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// folders of the programs.
var folders = map[string]string{"vipmove": ".", "vipmove-agent": "./agent", "vipmove-coordinator": "./coordinator"}

// help gives what a built program says about one of its commands; a command is a path such as "pki issue".
type help struct {
	dir string

	mu   sync.Mutex
	said map[string]string
}

func newHelp(t *testing.T) *help { return &help{dir: t.TempDir(), said: map[string]string{}} }

func (h *help) of(t *testing.T, program string, path []string) string {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	key := strings.Join(append([]string{program}, path...), " ")
	if said, known := h.said[key]; known {
		return said
	}
	binary := filepath.Join(h.dir, program)
	if _, err := os.Stat(binary); err != nil {
		build := exec.Command("go", "build", "-o", binary, folders[program])
		build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", program, err, out)
		}
	}
	out, err := exec.Command(binary, append(slices.Clone(path), "--help")...).CombinedOutput()
	if err != nil && len(path) == 0 { // else it may be no command: isCommand sees that
		t.Fatalf("%s --help: %v\n%s", key, err, out)
	}
	h.said[key] = string(out)
	return string(out)
}

var flagLine = regexp.MustCompile(`(?m)^ +(?:-(\w), )?--([a-z][a-z0-9-]*)(?: (\w+)(?:$|  ))?`)

// flags of a command: --name and -n -> whether it takes a value.
func flags(said string) map[string]bool {
	list := map[string]bool{"--help": false, "-h": false}
	for _, m := range flagLine.FindAllStringSubmatch(said, -1) {
		list["--"+m[2]] = m[3] != ""
		if m[1] != "" {
			list["-"+m[1]] = m[3] != ""
		}
	}
	return list
}

// isCommand tells whether the help is about that very command and not about the one above it.
func isCommand(program, said string, path []string) bool {
	if program == "vipmove-agent" { // no cobra: the text begins with the command
		return strings.HasPrefix(said, strings.Join(append([]string{program}, path...), " ")+" ")
	}
	return strings.Contains(said, "Usage:\n  "+strings.Join(append([]string{program}, path...), " ")+" ")
}

// wrong says what a program would not understand of a call, "" when it would.
func (h *help) wrong(t *testing.T, call []string) string {
	t.Helper()
	program, args := call[0], call[1:]
	var path []string
	for len(args) > 0 && regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(args[0]) {
		next := append(slices.Clone(path), args[0])
		if !isCommand(program, h.of(t, program, next), next) {
			break
		}
		path, args = next, args[1:]
	}
	said := h.of(t, program, path)
	onlyGroup := strings.Contains(said, " [command]\n") || program == "vipmove-agent" && len(path) == 0
	known := flags(said)
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(args[i], "=")
		switch takesValue, there := known[name]; {
		case !strings.HasPrefix(name, "-") && onlyGroup:
			return fmt.Sprintf("%s has no command %s", strings.Join(append([]string{program}, path...), " "), name)
		case !strings.HasPrefix(name, "-"):
		case !there:
			return fmt.Sprintf("%s has no flag %s", strings.Join(append([]string{program}, path...), " "), name)
		case joined && !takesValue && name != "--help":
			return fmt.Sprintf("%s takes no value", name)
		case takesValue && !joined:
			if i++; i == len(args) {
				return fmt.Sprintf("%s wants a value", name)
			}
		}
	}
	return ""
}

// makefile is what make knows.
type makefile struct{ targets, variables map[string]bool }

func readMakefile(text string) makefile {
	m := makefile{map[string]bool{}, map[string]bool{}}
	for _, f := range regexp.MustCompile(`(?m)^\.PHONY: (\S+)$`).FindAllStringSubmatch(text, -1) {
		m.targets[f[1]] = true
	}
	for _, f := range regexp.MustCompile(`(?m)^([A-Z]+) *\?=`).FindAllStringSubmatch(text, -1) {
		m.variables[f[1]] = true
	}
	return m
}

func (m makefile) wrong(args []string) string {
	for _, a := range args {
		name, _, isVariable := strings.Cut(a, "=")
		switch {
		case isVariable && !m.variables[name]:
			return "Makefile has no variable " + name
		case !isVariable && !m.targets[a]:
			return "Makefile has no target " + a
		}
	}
	return ""
}

func TestEveryCommandInTheDocumentsExists(t *testing.T) {
	h, m := newHelp(t), readMakefile(text(t, "Makefile"))
	for _, d := range documents {
		lines, spans := shell(text(t, d))
		checked := 0
		for _, p := range append(lines, spans...) {
			for _, call := range commands(p.text) {
				checked++
				wrong := ""
				switch {
				case call[0] == "make":
					wrong = m.wrong(call[1:])
				case len(call) > 1 || slices.ContainsFunc(lines, func(l passage) bool { return l == p }):
					wrong = h.wrong(t, call)
				}
				if wrong != "" {
					t.Errorf("%s:%d: %s: %s", d, p.line, p.text, wrong)
				}
			}
		}
		t.Logf("%s: %d commands", d, checked)
		if checked == 0 {
			t.Errorf("%s: no command was found: does this test still read it?", d)
		}
	}
}

func TestCommandsThatDoNotExistAreFound(t *testing.T) {
	h, m := newHelp(t), readMakefile(text(t, "Makefile"))
	for line, want := range map[string]string{
		"vipmove owners 192.0.2.50 -o json --rounds 3":   "",
		"vipmove pki issue operator alice":               "",
		"vipmove-agent reset-term --state-dir /x":        "",
		"make test PKGS=./x":                             "",
		"vipmove owner 192.0.2.50":                       "vipmove has no command owner",
		"vipmove pki make":                               "vipmove pki has no command make",
		"vipmove owners 192.0.2.50 --round 3":            "vipmove owners has no flag --round",
		"vipmove run 192.0.2.50 --plan":                  "--plan wants a value",
		"vipmove run 192.0.2.50 --no-witness=1 --plan x": "--no-witness takes no value",
		"vipmove-agent reset --state-dir /x":             "vipmove-agent has no command reset",
		"vipmove-coordinator --journals x":               "vipmove-coordinator has no flag --journals",
		"make tests":                                     "Makefile has no target tests",
		"make test PACKAGES=./x":                         "Makefile has no variable PACKAGES",
	} {
		call, got := commands(line)[0], ""
		if call[0] == "make" {
			got = m.wrong(call[1:])
		} else {
			got = h.wrong(t, call)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
