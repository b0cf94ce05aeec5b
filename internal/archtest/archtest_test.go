// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheRulesHoldInThisCheckout(t *testing.T) {
	m, err := checkout()
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			for _, breach := range rule.Breaches(m) {
				t.Errorf("%s\n\twhy this matters: %s", breach, rule.Why)
			}
		})
	}
}

func TestThePackagesOfTheLayoutExist(t *testing.T) {
	m, err := checkout()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range Missing(m) {
		t.Errorf("%s: no Go file there, but docs/design.md section 3 names it", dir)
	}
}

// What the rules above found nothing in must be the checkout, not an empty folder.
func TestTheCheckoutIsReadWhole(t *testing.T) {
	m, err := checkout()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"internal/archtest/rules.go", "internal/archtest/archtest_test.go"} {
		if !slices.ContainsFunc(m.Files, func(f File) bool { return f.Name == name }) {
			t.Errorf("%s was not read", name)
		}
	}
	for _, f := range m.Files {
		if strings.Contains(f.Name, "testdata/") || strings.HasPrefix(f.Name, "tools/") {
			t.Errorf("%s was read, but is no part of the product", f.Name)
		}
	}
	if own := m.Imports[importPath("internal/archtest")]; !slices.Contains(own, "go/ast") {
		t.Errorf("go list says that internal/archtest imports %q, want go/ast among them", own)
	}
	if len(m.Imports["go/ast"]) == 0 {
		t.Error("go list names no import of go/ast: dependencies are not followed")
	}
}

// Each archive in testdata is a small module with breaches planted in it. All rules look at it, and
// find what its comment says and nothing else; so an archive without "want" shows what is allowed.
func TestEveryRuleBites(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("looking for planted modules: found %d, %v", len(archives), err)
	}
	bitten := map[string]bool{}
	for _, name := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			m, want := planted(t, name)
			var got []string
			for _, rule := range Rules() {
				for _, breach := range rule.Breaches(m) {
					bitten[breach.Rule] = true
					got = append(got, breach.String())
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("breaches differ (-want +got):\n%s", diff)
			}
		})
	}
	for _, rule := range Rules() {
		if !bitten[rule.Name] {
			t.Errorf("no planted module breaches %s: it may hold because it never bites", rule.Name)
		}
	}
}

func TestMissingNamesFoldersThatHoldTestsOnly(t *testing.T) {
	var m Module
	for _, dir := range Layout {
		m.Files = append(m.Files, File{Name: filepath.ToSlash(filepath.Join(dir, "code.go"))})
	}
	if got := Missing(m); got != nil {
		t.Errorf("Missing of the whole layout = %q, want nothing", got)
	}
	m.Files[0].Name, m.Files[1].Name = "main_test.go", "agent/main_test.go"
	if diff := cmp.Diff([]string{".", "agent"}, Missing(m)); diff != "" {
		t.Errorf("Missing differs (-want +got):\n%s", diff)
	}
}

func TestBelowComparesWholeElements(t *testing.T) {
	tests := []struct {
		path, root string
		want       bool
	}{
		{"agent", "agent", true},
		{"agent/host", "agent", true},
		{"agentry", "agent", false},
		{"internal/agent", "agent", false},
		{"net/netip", "net", true},
		{"github.com/google/nftables/expr", "github.com/google/nftables", true},
		{"k8s.io/client-go", "k8s.io/client-go/rest", false},
	}
	for _, tt := range tests {
		if got := below(tt.path, tt.root); got != tt.want {
			t.Errorf("below(%q, %q) = %v, want %v", tt.path, tt.root, got, tt.want)
		}
	}
}
