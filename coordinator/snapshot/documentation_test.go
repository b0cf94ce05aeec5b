// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// page is a document's tables: title -> row -> its other cells.
type page map[string]map[string][]string

func document(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/snapshot.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var rowName = regexp.MustCompile("^`(\\w+)`$")

func tables(t *testing.T, text string) page {
	t.Helper()
	p, title := page{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "### "):
			title = strings.TrimPrefix(line, "### ")
			if p[title] != nil {
				t.Errorf("docs/snapshot.md has two sections %s", title)
			}
			p[title] = map[string][]string{}
		case strings.HasPrefix(line, "| `"):
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			m := rowName.FindStringSubmatch(cells[0])
			if m == nil || title == "" {
				t.Errorf("docs/snapshot.md: %q is no row", line)
				continue
			}
			if p[title][m[1]] != nil {
				t.Errorf("docs/snapshot.md: %s has two rows %s", title, m[1])
			}
			p[title][m[1]] = cells[1:]
		}
	}
	return p
}

// contract is what the messages have: title -> name -> how a value is written, "" for a value of an enum.
func contract(m protoreflect.MessageDescriptor, into map[string]map[string]string) {
	title := strings.TrimPrefix(string(m.FullName()), "vipmove.v1.")
	if into[title] != nil {
		return
	}
	into[title] = map[string]string{}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		into[title][f.JSONName()] = written(f)
		switch {
		case f.IsMap():
		case f.Message() != nil && strings.HasPrefix(string(f.Message().FullName()), "vipmove."):
			contract(f.Message(), into)
		case f.Enum() != nil:
			values, e := map[string]string{}, f.Enum()
			for k := range e.Values().Len() {
				values[string(e.Values().Get(k).Name())] = ""
			}
			into[strings.TrimPrefix(string(e.FullName()), "vipmove.v1.")] = values
		}
	}
}

// written is the second column of a field.
func written(f protoreflect.FieldDescriptor) string {
	of := func(d protoreflect.Descriptor) string {
		title := strings.TrimPrefix(string(d.FullName()), "vipmove.v1.")
		return fmt.Sprintf("[%s](#%s)", title, strings.ToLower(strings.ReplaceAll(title, ".", "")))
	}
	var one string
	switch f.Kind() {
	case protoreflect.StringKind:
		one = "text"
	case protoreflect.BoolKind:
		one = "true or false"
	case protoreflect.EnumKind:
		one = of(f.Enum())
	case protoreflect.MessageKind:
		switch name := f.Message().FullName(); {
		case f.IsMap():
			return "numbers by text"
		case name == "google.protobuf.Timestamp":
			one = "time"
		case name == "google.protobuf.Duration":
			one = "duration"
		default:
			one = of(f.Message())
		}
	default:
		one = "number"
	}
	if f.IsList() {
		return "list of " + one
	}
	return one
}

func TestEveryFieldOfASnapshotIsDocumentedAndNoneThatIsGone(t *testing.T) {
	want, got := map[string]map[string]string{}, map[string]map[string]string{}
	contract((&vipmovev1.Snapshot{}).ProtoReflect().Descriptor(), want)
	for title, rows := range tables(t, document(t)) {
		got[title] = map[string]string{}
		for name, cells := range rows {
			got[title][name] = cells[0]
			if isEnum := strings.ToUpper(name) == name; isEnum {
				got[title][name] = ""
				if len(cells) != 1 || cells[0] == "" {
					t.Errorf("docs/snapshot.md: %s %s says %q, want what it means", title, name, cells)
				}
			} else if len(cells) != 3 || slices.Contains(cells, "") {
				t.Errorf("docs/snapshot.md: %s %s says %q, want value, meaning, left out", title, name, cells)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/snapshot.md (-contract +page):\n%s", diff)
	}
}

// The comparison itself is held to what it must find.
func TestTheComparisonSeesRowsAndSections(t *testing.T) {
	p := tables(t, "### Node\n| field | value |\n|---|---|\n| `name` | text | a name | refused |\n### ProbeKind\n| `PROBE_KIND_UNICAST` | to one |\n")
	if diff := cmp.Diff(page{"Node": {"name": {"text", "a name", "refused"}}, "ProbeKind": {"PROBE_KIND_UNICAST": {"to one"}}}, p); diff != "" {
		t.Error(diff)
	}
}

// example is the file in the document.
func example(t *testing.T) string {
	t.Helper()
	_, after, found := strings.Cut(document(t), "```json\n")
	text, _, ended := strings.Cut(after, "```\n")
	if !found || !ended {
		t.Fatal("docs/snapshot.md has no example")
	}
	return text
}

func TestTheExampleIsJudgedAsItsStorySays(t *testing.T) {
	s, err := snapshot.Read(strings.NewReader(example(t)))
	if err != nil {
		t.Fatal(err)
	}
	r := diagnose.Judge(s)
	if r.Verdict != diagnose.VerdictContested || r.Owner != "n2" || len(r.Holders) != 1 || r.Holders[0].Node != "n1" || r.Holders[0].State != diagnose.HolderStale {
		t.Errorf("verdict %s, owner %q, holders %+v", r.Verdict, r.Owner, r.Holders)
	}
}

// What the page says is refused when it is left out is refused.
func TestWhatIsSaidToBeRefusedIs(t *testing.T) {
	page := tables(t, document(t))
	for _, c := range []struct{ title, field, from, to string }{
		{"Snapshot", "vip", `"vip": "192.0.2.50",` + "\n  \"nodes\"", `"nodes"`},
		{"Node", "name", `"name": "n2", "role"`, `"role"`},
		{"Node", "role", `"name": "n2", "role": "OBSERVER_ROLE_AGENT"`, `"name": "n2"`},
		{"Link", "name", `"name": "eth0", "index": 2, "type": "ether", "up": true, "mac": "02:00:00:00:00:c1"`, `"index": 2, "type": "ether", "up": true, "mac": "02:00:00:00:00:c1"`},
		{"Link", "index", `"index": 3, `, ``},
		{"Link", "type", `"type": "loopback", `, ``},
		{"Link", "mac", `, "mac": "02:00:00:00:00:c1"`, ``},
		{"Address", "prefix", `, "prefix": "192.0.2.50/32"`, ``},
		{"Round", "observer", `"observer": "n1", `, ``},
		{"Round", "interface", `"observer": "n1", "interface": "eth0", `, `"observer": "n1", `},
		{"Round", "vip", `"observer": "n1", "interface": "eth0", "vip": "192.0.2.50", `, `"observer": "n1", "interface": "eth0", `},
		{"Round", "kind", `"kind": "PROBE_KIND_BROADCAST", `, ``},
		{"Round", "targetMac", `"targetMac": "02:00:00:00:00:01", `, ``},
		{"Reply", "senderMac", `{"senderMac": "02:00:00:00:00:02", `, `{`},
		{"Reply", "senderIp", `, "senderIp": "192.0.2.50", "after": "0.0011s"`, ``},
	} {
		text := strings.Replace(example(t), c.from, c.to, 1)
		if text == example(t) {
			t.Errorf("the example has no %q", c.from)
		}
		if _, err := snapshot.Read(strings.NewReader(text)); err == nil {
			t.Errorf("%s without %s is read", c.title, c.field)
		}
		if cells := page[c.title][c.field]; len(cells) != 3 || !strings.Contains(cells[2], "refused") {
			t.Errorf("docs/snapshot.md: %s %s: %q does not say that it is refused", c.title, c.field, cells)
		}
	}
}
