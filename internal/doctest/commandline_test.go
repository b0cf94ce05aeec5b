// SPDX-License-Identifier: Apache-2.0

package doctest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// words splits a command line as a shell does, as far as the documents need it: quotes, and operators as words of their own.
func words(s string) []string {
	var out []string
	var word strings.Builder
	begun, quote := false, rune(0)
	end := func() {
		if begun {
			out = append(out, word.String())
		}
		word.Reset()
		begun = false
	}
	for _, c := range s {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, begun = c, true
		case c == ' ':
			end()
		case strings.ContainsRune(";|&()", c):
			end()
			out = append(out, string(c))
		default:
			word.WriteRune(c)
			begun = true
		}
	}
	end()
	return out
}

// programs whose commands are checked, by the last element of their path. Their agent in an image lies at the top.
var programs = []string{"vipmove", "vipmove-agent", "vipmove-coordinator", "make"}

// leading are words behind which a command begins.
var leading = []string{";", "|", "&", "(", ")", "do", "then", "else", "sudo", "--", "$"}

// commands finds the calls of our programs in a line: program and arguments, up to the next operator.
func commands(line string) [][]string {
	var found [][]string
	list := words(line)
	for i, w := range list {
		name := w[strings.LastIndex(w, "/")+1:]
		if !slices.Contains(programs, name) || i > 0 && !slices.Contains(leading, list[i-1]) && !assignment.MatchString(list[i-1]) {
			continue
		}
		call := []string{name}
		for _, a := range list[i+1:] {
			if len(a) == 1 && strings.Contains(";|&()", a) {
				break
			}
			call = append(call, a)
		}
		found = append(found, call)
	}
	return found
}

var assignment = regexp.MustCompile(`^[A-Z_]+=`)

func TestCommandsAreFoundInLines(t *testing.T) {
	for line, want := range map[string][][]string{
		"make test PKGS=./x TESTFLAGS='-v -run R'":                             {{"make", "test", "PKGS=./x", "TESTFLAGS=-v -run R"}},
		"for n in $(kubectl get); do bin/vipmove pki issue agent \"$n\"; done": {{"vipmove", "pki", "issue", "agent", "$n"}},
		"sudo vipmove witness --name w1":                                       {{"vipmove", "witness", "--name", "w1"}},
		"vipmove owners VIP | grep x":                                          {{"vipmove", "owners", "VIP"}},
		"kubectl exec POD -- /vipmove-agent reset-term":                        {{"vipmove-agent", "reset-term"}},
		"kubectl -n vipmove get service vipmove-coordinator":                   nil,
		"docker build -t vipmove-agent:dev .":                                  nil,
		"NO_COLOR=1 vipmove nodes":                                             {{"vipmove", "nodes"}},
	} {
		if diff := cmp.Diff(want, commands(line)); diff != "" {
			t.Errorf("%s: %s", line, diff)
		}
	}
}
