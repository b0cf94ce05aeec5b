// SPDX-License-Identifier: Apache-2.0

package vipmovev1_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// contract is what the files hold: a table's name -> the names in it, in order. RPCs stand under "".
type contract map[string][]string

func files() []protoreflect.FileDescriptor {
	return []protoreflect.FileDescriptor{
		vipmovev1.File_vipmove_v1_evidence_proto,
		vipmovev1.File_vipmove_v1_observers_proto,
		vipmovev1.File_vipmove_v1_control_proto,
	}
}

func described() contract {
	c := contract{}
	for _, f := range files() {
		c.messages(f.Messages())
		c.enums(f.Enums())
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				c[""] = append(c[""], string(s.Name())+"."+string(s.Methods().Get(j).Name()))
			}
		}
	}
	return c
}

func (c contract) messages(list protoreflect.MessageDescriptors) {
	for i := range list.Len() {
		m := list.Get(i)
		if m.IsMapEntry() {
			continue
		}
		var fields []string
		for j := range m.Fields().Len() {
			fields = append(fields, string(m.Fields().Get(j).Name()))
		}
		c[title(m)] = fields
		c.messages(m.Messages())
		c.enums(m.Enums())
	}
}

func (c contract) enums(list protoreflect.EnumDescriptors) {
	for i := range list.Len() {
		var values []string
		for j := range list.Get(i).Values().Len() {
			values = append(values, string(list.Get(i).Values().Get(j).Name()))
		}
		c[title(list.Get(i))] = values
	}
}

// title is a name without its package: Refusal.Code.
func title(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), "vipmove.v1.")
}

// row is one line of a table: its first cell's name, and the others.
type row struct {
	name  string
	cells []string
}

var named = regexp.MustCompile("^`([A-Za-z0-9_.]+)`$")

// documented reads the README: tables under "## Name", and the RPC tables that stand under no such title.
func documented(t *testing.T, text string) (contract, map[string][]row) {
	t.Helper()
	c, rows, at := contract{}, map[string][]row{}, ""
	inTables := false // prose about how to read comes first
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "# "):
			at, inTables = "", strings.HasSuffix(line, ".proto")
		case strings.HasPrefix(line, "## ") && inTables:
			at = strings.TrimPrefix(line, "## ")
			if _, twice := c[at]; twice {
				t.Errorf("README.md has two sections %q", at)
			}
			c[at] = nil
		case strings.HasPrefix(line, "|") && inTables:
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			if m := named.FindStringSubmatch(cells[0]); m != nil {
				c[at] = append(c[at], m[1])
				rows[at] = append(rows[at], row{m[1], cells[1:]})
			}
		}
	}
	return c, rows
}

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// differences names what is in one and not in the other, a sentence each.
func differences(files, text contract) []string {
	var out []string
	for _, table := range slices.Sorted(maps.Keys(files)) {
		if _, there := text[table]; !there {
			out = append(out, "README.md has no section "+table)
			continue
		}
		for _, name := range files[table] {
			if !slices.Contains(text[table], name) {
				out = append(out, "README.md lacks "+table+" "+name)
			}
		}
		for i, name := range text[table] {
			if !slices.Contains(files[table], name) {
				out = append(out, "README.md names "+table+" "+name+", which is gone from the contract")
			}
			if slices.Contains(text[table][:i], name) {
				out = append(out, "README.md names "+table+" "+name+" twice")
			}
		}
	}
	for _, table := range slices.Sorted(maps.Keys(text)) {
		if _, there := files[table]; !there {
			out = append(out, "README.md has a section "+table+", which is gone from the contract")
		}
	}
	return out
}

func TestReadmeNamesEveryMessageFieldEnumValueAndRPCAndNoOther(t *testing.T) {
	text, _ := documented(t, readme(t))
	for _, d := range differences(described(), text) {
		t.Error(d)
	}
}

// The comparison itself is held to what it must find.
func TestComparisonFindsWhatIsMissingGoneAndTwice(t *testing.T) {
	files := contract{"": {"Observers.Session"}, "Hello": {"node", "role"}, "Gone": nil, "Mode": {"A"}}
	text := contract{"": {"Observers.Session", "Observers.Old"}, "Hello": {"node", "node", "name"}, "Mode": {"A"}, "Older": nil}
	want := []string{
		"README.md names  Observers.Old, which is gone from the contract",
		"README.md has no section Gone",
		"README.md lacks Hello role",
		"README.md names Hello node twice",
		"README.md names Hello name, which is gone from the contract",
		"README.md has a section Older, which is gone from the contract",
	}
	if diff := cmp.Diff(want, differences(files, text)); diff != "" {
		t.Error(diff)
	}
}

func TestEveryFieldSaysWhoSetsItWhoReadsItAndWhatItsZeroMeans(t *testing.T) {
	words := []string{"agent", "witness", "observer", "coordinator", "cli", "nobody"}
	c := described()
	_, rows := documented(t, readme(t))
	enums := map[string]bool{"": true}
	for _, f := range files() {
		noteEnums(enums, f.Enums(), f.Messages())
	}
	for table := range c {
		for _, r := range rows[table] {
			for i, cell := range r.cells {
				if cell == "" {
					t.Errorf("README.md: %s %s: column %d is empty", table, r.name, i+2)
				}
			}
			if enums[table] {
				continue
			}
			if len(r.cells) != 3 {
				t.Errorf("README.md: %s %s: %d columns after the name, want set by, read by, zero", table, r.name, len(r.cells))
				continue
			}
			for _, who := range r.cells[:2] {
				for word := range strings.SplitSeq(who, ", ") {
					if !slices.Contains(words, word) {
						t.Errorf("README.md: %s %s: %q is none of %v", table, r.name, word, words)
					}
				}
			}
		}
	}
}

func noteEnums(names map[string]bool, enums protoreflect.EnumDescriptors, messages protoreflect.MessageDescriptors) {
	for i := range enums.Len() {
		names[title(enums.Get(i))] = true
	}
	for i := range messages.Len() {
		noteEnums(names, messages.Get(i).Enums(), messages.Get(i).Messages())
	}
}

// A descriptor that this test does not walk would be one that nobody documents.
func TestContractHasNoOtherFiles(t *testing.T) {
	found, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	walked := map[string]bool{}
	for _, f := range files() {
		walked[f.Path()] = true
	}
	for _, e := range found {
		if strings.HasSuffix(e.Name(), ".proto") && !walked["vipmove/v1/"+e.Name()] {
			t.Errorf("%s is in no list of this test: add it to files()", e.Name())
		}
	}
}
