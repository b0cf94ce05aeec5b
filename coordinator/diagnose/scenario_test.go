// SPDX-License-Identifier: Apache-2.0

package diagnose_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/handover"
	"github.com/vipmove/vipmove/coordinator/snapshot"
)

// scenario is one situation of testdata: prose, the snapshot as `vipmove snapshot` saves it, what must
// be said of it and what must be planned. testdata/README says how its lines read.
type scenario struct {
	name     string
	json     []byte
	snapshot diagnose.Snapshot
	options  handover.Options
	expect   []string
	plan     []string
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
	for _, f := range archive.Files {
		switch f.Name {
		case "snapshot.json":
			s.json = f.Data
			if s.snapshot, err = snapshot.Read(bytes.NewReader(f.Data)); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		case "options":
			s.options = options(t, file, string(f.Data))
		case "expect":
			s.expect = strings.Split(strings.TrimSpace(string(f.Data)), "\n")
		case "plan":
			s.plan = strings.Split(strings.TrimSpace(string(f.Data)), "\n")
		default:
			t.Fatalf("%s has an unknown part %s", file, f.Name)
		}
	}
	s.snapshot.Without = s.options.Without
	s.options.VIP, s.options.Interface = s.snapshot.VIP, s.snapshot.Interface
	return s
}

// options reads what the operator gives beside the snapshot, as the flags of `vipmove plan`.
func options(t *testing.T, file, text string) (o handover.Options) {
	t.Helper()
	for line := range strings.Lines(text) {
		switch f := strings.Fields(line); {
		case len(f) == 1 && f[0] == "--no-witness":
			o.NoWitness = true
		case len(f) == 2 && f[0] == "--without":
			o.Without = append(o.Without, f[1])
		case len(f) == 2 && f[0] == "--override":
			o.Overrides = append(o.Overrides, diagnose.Code(f[1]))
		case len(f) == 2 && f[0] == "--owner":
			o.Owner = f[1]
		case len(f) == 2 && f[0] == "--canary":
			o.Canary = f[1]
		default:
			t.Fatalf("%s has an unknown option %q", file, line)
		}
	}
	return o
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

// planLines writes a plan as testdata expects it.
func planLines(p handover.Plan) []string {
	runnable := "no"
	if p.Runnable() {
		runnable = "yes"
	}
	out := []string{"runnable " + runnable, "canary " + or(p.Canary, "none"), "survivor " + or(p.Survivor, "none")}
	for i, s := range p.Steps {
		out = append(out, fmt.Sprintf("step %d %s %s %s %s %s", i+1, s.Node, s.Role, s.Address.Prefix, s.Address.Link, s.State))
	}
	for node, n := range p.LeftAlone {
		out = append(out, fmt.Sprintf("left %s %d", node, n))
	}
	for _, c := range p.Preconditions {
		if line := fmt.Sprintf("unmet %s", c.Code); !c.Met && !slices.Contains(out, line) {
			out = append(out, line)
		}
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
			if diff := compare(planLines(handover.Make(s.snapshot, s.options)), s.plan); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// Every case of CASES.md that is about nodes, links, addresses, routes, sysctls, frames or agents has a file.
func TestEveryCaseHasAScenario(t *testing.T) {
	names := map[string]bool{}
	for _, s := range scenarios(t) {
		id, _, _ := strings.Cut(s.name, "-")
		names[id] = true
	}
	for _, id := range strings.Fields("c01 c02 c04 c06 c07 c09 c10 c11 c12 c15 c16 c19 c20 c23 c24 c25 c26 c27 c28 c29 c37 c39 c46 c47 c48 s02 s04 s05 s06 s10 s14") {
		if !names[id] {
			t.Errorf("no scenario is of case %s", strings.ToUpper(id))
		}
	}
}

// A scenario that would pass with another expectation tests nothing.
func TestEveryExpectedLineMatters(t *testing.T) {
	for _, s := range scenarios(t) {
		parts := map[string][2][]string{
			"expect": {lines(diagnose.Judge(s.snapshot)), s.expect},
			"plan":   {planLines(handover.Make(s.snapshot, s.options)), s.plan},
		}
		for name, part := range parts {
			got, expected := part[0], part[1]
			for i, line := range expected {
				without := slices.Delete(slices.Clone(expected), i, i+1)
				changed, twice := slices.Clone(expected), append(slices.Clone(expected), line)
				changed[i] = line + "x"
				for what, expect := range map[string][]string{"left out": without, "changed": changed, "said twice": twice} {
					if compare(got, expect) == "" {
						t.Errorf("%s: %s passes with %q %s", s.name, name, line, what)
					}
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
