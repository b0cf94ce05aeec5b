// SPDX-License-Identifier: Apache-2.0

package doctest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sources joins all files below a folder whose names end so.
func sources(t *testing.T, folder, ending string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ending) {
			return err
		}
		content, err := os.ReadFile(path)
		b.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var promise = regexp.MustCompile("`(Test\\w+)` in \\[([^\\]]+)\\]\\(([^)]+)\\)")

func TestEveryPromiseNamesATestThatExists(t *testing.T) {
	found := promise.FindAllStringSubmatch(text(t, "README.md"), -1)
	if len(found) < 10 {
		t.Errorf("README.md names %d tests: does this test still read them?", len(found))
	}
	for _, m := range found {
		if m[2] != m[3] {
			t.Errorf("README.md: %s is said to be in %s and linked to %s", m[1], m[2], m[3])
		}
		if !strings.Contains(sources(t, m[3], "_test.go"), "func "+m[1]+"(t *testing.T)") {
			t.Errorf("README.md: there is no %s in %s", m[1], m[3])
		}
	}
	if named := strings.Count(text(t, "README.md"), "`Test"); named != len(found) {
		t.Errorf("README.md names %d tests, %d of them with their folder", named, len(found))
	}
}

var (
	code    = regexp.MustCompile(`^[A-Z]+(_[A-Z]+)+$`)
	setting = regexp.MustCompile(`^(NET_|CAP_|VIPMOVE_|NO_COLOR$)`)
)

// Codes are shown to operators as they stand in the code: a finding's or a stop reason's constant, or a value of Refusal.Code.
func TestEveryCodeInTheDocumentsExists(t *testing.T) {
	known := sources(t, "coordinator", ".go") + sources(t, "proto", ".proto")
	for _, d := range documents {
		_, spans := shell(text(t, d))
		for _, s := range spans {
			if !code.MatchString(s.text) || setting.MatchString(s.text) {
				continue
			}
			if !strings.Contains(known, `"`+s.text+`"`) && !regexp.MustCompile(`\b`+s.text+` = \d`).MatchString(known) {
				t.Errorf("%s:%d: no finding, reason or refusal is called %s", d, s.line, s.text)
			}
		}
	}
}

// Environment variables too.
func TestEveryEnvironmentVariableInTheDocumentsExists(t *testing.T) {
	known := sources(t, "cli", ".go")
	for _, d := range documents {
		for _, name := range regexp.MustCompile(`\bVIPMOVE_[A-Z_]+\b`).FindAllString(text(t, d), -1) {
			if !strings.Contains(known, `"`+name+`"`) {
				t.Errorf("%s: the command reads no %s", d, name)
			}
		}
	}
}

// A run that ends so that a person has to decide is what the runbook is for.
func TestTheRunbookHasEveryReasonForWhichARunStops(t *testing.T) {
	runbook := text(t, "docs/runbook.md")
	block := regexp.MustCompile(`(?s)// Codes for why a run stopped.*?\n\)`).FindString(text(t, "coordinator/handover/run.go"))
	reasons := regexp.MustCompile(`= "([A-Z_]+)"`).FindAllStringSubmatch(block, -1)
	if len(reasons) < 10 {
		t.Fatalf("coordinator/handover/run.go lists %d reasons: does this test still read it?", len(reasons))
	}
	for _, r := range reasons {
		if !strings.Contains(runbook, "`"+r[1]+"`") {
			t.Errorf("docs/runbook.md says nothing about %s", r[1])
		}
	}
}

// exitCodes reads "| 4 | …" or "  4  …" lines.
func exitCodes(pattern, text string) []string {
	var codes []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		codes = append(codes, m[1])
	}
	return codes
}

func TestExitCodesAreThoseOfTheCommand(t *testing.T) {
	want := exitCodes(`(?m)^  (\d)  `, newHelp(t).of(t, "vipmove", nil))
	if len(want) != 8 {
		t.Fatalf("vipmove --help lists the exit codes %v", want)
	}
	for _, d := range []string{"README.md", "docs/runbook.md"} {
		if diff := cmp.Diff(want, exitCodes(`(?m)^\| (\d) \| `, text(t, d))); diff != "" {
			t.Errorf("%s: %s", d, diff)
		}
	}
}
