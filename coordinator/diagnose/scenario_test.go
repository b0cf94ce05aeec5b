// SPDX-License-Identifier: Apache-2.0

package diagnose_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// scenario is one situation of testdata: prose, the snapshot as `vipmove snapshot` saves it, and
// what must be said of it. testdata/README says how its lines read.
type scenario struct {
	name     string
	snapshot diagnose.Snapshot
	expect   []string
}

func scenarios(t *testing.T) []scenario {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenario in testdata: %v", err)
	}
	var out []scenario
	for _, file := range files {
		out = append(out, read(t, file))
	}
	return out
}

func read(t *testing.T, file string) scenario {
	t.Helper()
	s := scenario{name: strings.TrimSuffix(filepath.Base(file), ".txtar")}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	archive := txtar.Parse(b)
	if len(strings.TrimSpace(string(archive.Comment))) < 40 {
		t.Errorf("%s says nothing of its situation", file)
	}
	var without []string
	for _, f := range archive.Files {
		switch f.Name {
		case "snapshot.json":
			var p vipmovev1.Snapshot
			if err := protojson.Unmarshal(f.Data, &p); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if s.snapshot, err = snapshot.FromProto(&p); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		case "without":
			without = strings.Fields(string(f.Data))
		case "expect":
			s.expect = strings.Split(strings.TrimSpace(string(f.Data)), "\n")
		default:
			t.Fatalf("%s has an unknown part %s", file, f.Name)
		}
	}
	s.snapshot.Without = without
	return s
}

// lines writes a report as testdata expects it. Observers that hear or were not asked are left out.
func lines(r diagnose.Report) []string {
	segment := "none"
	if r.Segment.Prefix.IsValid() {
		segment = r.Segment.Prefix.String()
	}
	out := []string{"segment " + segment, "verdict " + string(r.Verdict), "owner " + or(r.Owner, "none")}
	for _, x := range r.Responders {
		out = append(out, fmt.Sprintf("responder %s %s %s %s: %s", or(x.Node, "-"), or(x.Interface, "-"), x.MAC, x.Announcer, x.Reason))
	}
	for _, h := range r.Holders {
		if h.Route != nil {
			out = append(out, fmt.Sprintf("holder %s local %s %s %s", h.Node, h.Route.Prefix, h.Route.Link, h.State))
		} else {
			out = append(out, fmt.Sprintf("holder %s %s %s %s", h.Node, h.Address.Prefix, h.Address.Link, h.State))
		}
	}
	for _, o := range r.Observers {
		if o.State != diagnose.ObserverHears && o.State != diagnose.ObserverIdle {
			out = append(out, fmt.Sprintf("observer %s %s", o.Observer, o.State))
		}
	}
	for _, f := range r.Findings {
		out = append(out, strings.TrimSpace(fmt.Sprintf("finding %s %s %s", f.Severity, f.Code, strings.Join(f.Nodes, " "))))
	}
	return out
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// compare is empty where a report's lines are exactly those expected, in any order.
func compare(got, expect []string) string {
	return cmp.Diff(slices.Sorted(slices.Values(expect)), slices.Sorted(slices.Values(got)))
}

func TestScenarios(t *testing.T) {
	for _, s := range scenarios(t) {
		t.Run(s.name, func(t *testing.T) {
			if diff := compare(lines(diagnose.Judge(s.snapshot)), s.expect); diff != "" {
				t.Errorf("judgement (-want +got):\n%s", diff)
			}
		})
	}
}

// A scenario that would pass with another expectation tests nothing.
func TestEveryExpectedLineMatters(t *testing.T) {
	for _, s := range scenarios(t) {
		got := lines(diagnose.Judge(s.snapshot))
		for i, line := range s.expect {
			without := slices.Delete(slices.Clone(s.expect), i, i+1)
			changed, twice := slices.Clone(s.expect), append(slices.Clone(s.expect), line)
			changed[i] = line + "x"
			for what, expect := range map[string][]string{"left out": without, "changed": changed, "said twice": twice} {
				if compare(got, expect) == "" {
					t.Errorf("%s: passes with %q %s", s.name, line, what)
				}
			}
		}
	}
}

// Every code that a judgement can give is met in some scenario, and no scenario knows another one.
func TestScenariosMeetEveryCode(t *testing.T) {
	met := map[diagnose.Code]bool{}
	for _, s := range scenarios(t) {
		for _, f := range diagnose.Judge(s.snapshot).Findings {
			met[f.Code] = true
			if f.Message == "" || f.NextStep == "" || len(f.Evidence) == 0 || f.Subject == "" {
				t.Errorf("%s: finding %s lacks a message, evidence or a next step: %+v", s.name, f.Code, f)
			}
			if strings.Contains(f.Message+f.NextStep, "{") {
				t.Errorf("%s: finding %s has an unfilled word: %s; %s", s.name, f.Code, f.Message, f.NextStep)
			}
		}
	}
	for _, c := range diagnose.Codes() {
		if !met[c] {
			t.Errorf("no scenario meets %s", c)
		}
	}
}
