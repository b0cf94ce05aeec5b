// SPDX-License-Identifier: Apache-2.0

package diagnose_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

// part gives the sections of one part of docs/findings.md, by code.
func part(t *testing.T, title string) map[string]string {
	t.Helper()
	b, err := os.ReadFile("../../docs/findings.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(b), "\n## "+title+"\n")
	if !ok {
		t.Fatalf("docs/findings.md has no part %q", title)
	}
	body, _, _ := strings.Cut(after, "\n## ")
	out := map[string]string{}
	for _, s := range strings.Split(body, "\n### ")[1:] {
		code, text, _ := strings.Cut(s, "\n")
		if _, twice := out[code]; twice {
			t.Errorf("docs/findings.md has two sections %s", code)
		}
		out[code] = text
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func TestFindingsAreDocumented(t *testing.T) {
	var codes []string
	for _, c := range diagnose.Codes() {
		codes = append(codes, string(c))
	}
	sections := part(t, "Findings of a judgement")
	if d := cmp.Diff(codes, sortedKeys(sections)); d != "" {
		t.Errorf("docs/findings.md (-code +section):\n%s", d)
	}
	for code, text := range sections {
		for _, word := range []string{"Severity: ", "**Cause.** ", "**Seen by.** ", "**Do.** "} {
			if !strings.Contains(text, word) {
				t.Errorf("section %s has no %s", code, word)
			}
		}
	}
}

// The severities in the documentation are those that the scenarios show, no more and no fewer.
func TestDocumentedSeveritiesAreThoseGiven(t *testing.T) {
	given := map[string][]string{}
	for _, s := range scenarios(t) {
		for _, f := range diagnose.Judge(s.snapshot).Findings {
			if !slices.Contains(given[string(f.Code)], string(f.Severity)) {
				given[string(f.Code)] = append(given[string(f.Code)], string(f.Severity))
			}
		}
	}
	line := regexp.MustCompile(`Severity: (.*)`)
	for code, text := range part(t, "Findings of a judgement") {
		m := line.FindStringSubmatch(text)
		if m == nil {
			continue // told by the test above
		}
		slices.Sort(given[code])
		if said := strings.Split(m[1], " or "); !slices.Equal(said, given[code]) {
			t.Errorf("section %s says %v, scenarios give %v", code, said, given[code])
		}
	}
}

// Plans and runs have codes of their own, which are documented beside these.
func TestCodesOfPlansAndRunsAreDocumented(t *testing.T) {
	files, err := filepath.Glob("../handover/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no source of handover: %v", err)
	}
	constant := regexp.MustCompile(`diagnose\.Code += "([A-Z_]+)"`)
	codes := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range constant.FindAllStringSubmatch(string(b), -1) {
			codes[m[1]] = true
		}
	}
	if d := cmp.Diff(sortedKeys(codes), sortedKeys(part(t, "Codes of plans and runs"))); d != "" {
		t.Errorf("docs/findings.md (-code +section):\n%s", d)
	}
}
