// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// flagsOf reads a container's arguments, each --name=value or --name. A name that is repeated keeps its last value.
func flagsOf(c container) map[string]string {
	flags := map[string]string{}
	for _, a := range c.Args {
		name, value, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		flags[name] = value
	}
	return flags
}

// flagLine is a flag in a help text, as pflag prints it (--name type  what it is) or as the agent does (--name TYPE, and what
// it is below).
var flagLine = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z][a-z0-9-]*)(?: (\w+)(?:$|  ))?`)

// helpOf builds a program and returns what its --help says: flag -> whether it takes a value.
func helpOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "build", "-o", program, dir)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", dir, err, out)
	}
	out, err := exec.Command(program, "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%s --help: %v\n%s", dir, err, out)
	}
	flags := map[string]bool{}
	for _, m := range flagLine.FindAllStringSubmatch(string(out), -1) {
		flags[m[1]] = m[2] != ""
	}
	if len(flags) == 0 {
		t.Fatalf("%s --help lists no flags:\n%s", dir, out)
	}
	return flags
}

func TestEveryFlagOfTheManifestsExistsInTheProgram(t *testing.T) {
	for dir, list := range map[string][]workload{"../agent": {agent(t, "observe"), agent(t, "act")}, "../coordinator": {coordinator(t)}} {
		known := helpOf(t, dir)
		for _, w := range list {
			for _, a := range w.Spec.Template.Spec.Containers[0].Args {
				name, _, hasValue := strings.Cut(strings.TrimPrefix(a, "--"), "=")
				wantsValue, there := known[name]
				switch {
				case !strings.HasPrefix(a, "--"):
					t.Errorf("%s: argument %s is no flag", dir, a)
				case !there:
					t.Errorf("%s has no flag --%s", dir, name)
				case hasValue != wantsValue:
					t.Errorf("%s: --%s is given as %s; that it takes a value: %v", dir, name, a, wantsValue)
				}
			}
		}
	}
}
