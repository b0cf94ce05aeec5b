// SPDX-License-Identifier: Apache-2.0

package diagnose_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/handover"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

var everyField = flag.Bool("every-field", false, "leave out each field wherever it stands, which takes minutes, and not at a few places of all scenarios")

// withoutEach leaves out each field of a file, one at a time: where it stood, its name as docs/snapshot.md has
// it ("Round.replies"), and the file without it.
func withoutEach(t *testing.T, file []byte, visit func(where, name string, less func() []byte)) {
	t.Helper()
	var whole any
	if err := json.Unmarshal(file, &whole); err != nil {
		t.Fatal(err)
	}
	less := func() []byte {
		b, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var walk func(at any, m protoreflect.MessageDescriptor, where string)
	walk = func(at any, m protoreflect.MessageDescriptor, where string) {
		switch v := at.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				field, was := m.Fields().ByJSONName(key), v[key]
				delete(v, key)
				visit(where+"."+key, string(m.Name())+"."+key, less)
				v[key] = was
				if field.Message() != nil && !field.IsMap() {
					walk(was, field.Message(), where+"."+key)
				}
			}
		case []any:
			for i, e := range v {
				walk(e, m, fmt.Sprintf("%s[%d]", where, i))
			}
		}
	}
	walk(whole, (&vipmovev1.Snapshot{}).ProtoReflect().Descriptor(), "")
}

// allowed is what a judgement and its plan let a run do.
type allowed struct {
	runs    bool
	refused map[string]bool // code and node of every refusal; no node where it is about none
}

func allowedBy(s diagnose.Snapshot, o handover.Options) allowed {
	p := handover.Make(s, o)
	a := allowed{runs: p.Runnable(), refused: map[string]bool{}}
	for _, f := range p.Report.Findings {
		if f.Severity == diagnose.Refuse {
			for _, n := range append(f.Nodes, "")[:max(1, len(f.Nodes))] {
				a.refused[string(f.Code)+" "+n] = true
			}
		}
	}
	return a
}

// more says what a allows and before did not; empty is nothing. A refusal may give way only to one that
// was not there before: that of what is not known now.
func (a allowed) more(before allowed) string {
	if a.runs && !before.runs {
		return "the plan may run"
	}
	for gone := range before.refused {
		fresh := slices.ContainsFunc(slices.Collect(maps.Keys(a.refused)), func(r string) bool { return !before.refused[r] })
		if !a.refused[gone] && !fresh {
			return fmt.Sprintf("%s is no longer refused", gone)
		}
	}
	return ""
}

// marked are the fields whose absence docs/snapshot.md says to read as good news, by ⚠ in their row.
func marked(t *testing.T) map[string]bool {
	t.Helper()
	b, err := os.ReadFile("../../docs/snapshot.md")
	if err != nil {
		t.Fatal(err)
	}
	out, message := map[string]bool{}, ""
	title, row := regexp.MustCompile(`^### (\S+)`), regexp.MustCompile("^\\| `(\\w+)` .*⚠")
	for line := range strings.Lines(string(b)) {
		if m := title.FindStringSubmatch(line); m != nil {
			message = m[1]
		} else if m := row.FindStringSubmatch(line); m != nil {
			out[message+"."+m[1]] = true
		}
	}
	return out
}

// I6: unknown is never permission. Whatever field of whatever scenario is left out, nothing is allowed that
// was not, but by the fields that docs/snapshot.md marks.
func TestAnAbsentFieldNeverTurnsARefusalIntoAPermission(t *testing.T) {
	marked := marked(t)
	if len(marked) == 0 || len(marked) > 12 {
		t.Errorf("docs/snapshot.md marks %d fields: %v", len(marked), marked)
	}
	tried, refusedToRead := 0, 0
	all := scenarios(t)
	places, seen := map[string]int{}, map[string]int{}
	for _, s := range all {
		withoutEach(t, s.json, func(_, name string, _ func() []byte) { places[name]++ })
	}
	for _, s := range all {
		before := allowedBy(s.snapshot, s.options)
		withoutEach(t, s.json, func(where, name string, file func() []byte) {
			const few = 8
			if seen[name]++; !*everyField && seen[name]%max(1, places[name]/few) != 0 {
				return
			}
			tried++
			less, err := snapshot.Read(bytes.NewReader(file()))
			if err != nil {
				refusedToRead++
				return
			}
			less.Without = s.options.Without
			o := s.options
			o.VIP, o.Interface = less.VIP, less.Interface
			if what := allowedBy(less, o).more(before); what != "" && !marked[name] {
				t.Errorf("%s: without %s (%s) %s", s.name, where, name, what)
			}
		})
	}
	t.Logf("%d fields left out, %d of them make the file unreadable", tried, refusedToRead)
}
