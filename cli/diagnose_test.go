// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// saved puts the snapshot of a scenario of coordinator/diagnose/testdata into a file of its own.
func saved(t *testing.T, scenario string) (file string, content []byte) {
	t.Helper()
	archive, err := txtar.ParseFile("../coordinator/diagnose/testdata/" + scenario + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range archive.Files {
		if part.Name == "snapshot.json" {
			return written(t, part.Data), part.Data
		}
	}
	t.Fatalf("%s has no snapshot", scenario)
	return "", nil
}

func written(t *testing.T, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "snapshot.json")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func judged(t *testing.T, content []byte) *vipmovev1.Judgement {
	t.Helper()
	s, err := snapshot.Read(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.ReportToProto(diagnose.Judge(s), s.TakenAt)
}

// fromStdin runs a command line with this on stdin.
func fromStdin(t *testing.T, stdin []byte, args ...string) result {
	t.Helper()
	return commandWith(t, t.Context(), nil, func(a *app) { a.env.Stdin = bytes.NewReader(stdin) }, args...)
}

func TestDiagnosePrintsWhatOwnersPrintsAndNeedsNoCoordinator(t *testing.T) {
	for _, scenario := range []string{"story-seven-answer", "c20-foreign-beside-ours", "c25-deaf-observer", "c48-ipv6-on-the-dummy", "split-view", "residual-local-route"} {
		file, content := saved(t, scenario)
		online := command(t, (&fakeControl{survey: []*vipmovev1.SurveyEvent{
			{Event: &vipmovev1.SurveyEvent_Judgement{Judgement: judged(t, content)}},
		}}).serve(t), "owners", testVIP)
		offline := command(t, nil, "diagnose", "--snapshot", file)
		offline.want(t, exitDone)
		if diff := cmp.Diff(online.stdout, offline.stdout); diff != "" || offline.stderr != "" {
			t.Errorf("%s: diagnose is not owners (-owners +diagnose):\n%s%s", scenario, diff, offline.stderr)
		}
		if piped := fromStdin(t, content, "diagnose", "--snapshot", "-"); piped.stdout != offline.stdout || piped.code != exitDone {
			t.Errorf("%s: from stdin: exit code %d\n%s", scenario, piped.code, cmp.Diff(offline.stdout, piped.stdout))
		}
	}
}

func TestDiagnoseAsJSONIsTheJudgement(t *testing.T) {
	file, content := saved(t, "c01-mode-switched")
	r := command(t, nil, "diagnose", "--snapshot", file, "-o", "json")
	r.want(t, exitDone)
	var got vipmovev1.Judgement
	if err := protojson.Unmarshal([]byte(r.stdout), &got); err != nil {
		t.Fatal(err)
	}
	if want := judged(t, content); want.String() != got.String() {
		t.Errorf("got %v, want %v", &got, want)
	}
	if r.oneObject(t)["verdict"] != "contested" {
		t.Errorf("verdict %v", r.oneObject(t)["verdict"])
	}
}

func TestDiagnoseWithAPlanIsAsInTheGoldenFile(t *testing.T) {
	file, _ := saved(t, "c01-with-a-witness")
	r := command(t, nil, "diagnose", "--snapshot", file, "--plan", "--dwell", "5s")
	r.want(t, exitDone)
	golden(t, "diagnose-plan", r.stdout)
}

// The offline plan is the plan: the same hash, and the next line makes it anew with the same flags.
func TestAnOfflinePlanHasThePlansFlags(t *testing.T) {
	file, _ := saved(t, "c02-address-of-no-service") // it names its interface
	r := command(t, nil, "diagnose", "--snapshot", file, "--plan", "-o", "json", "--override", "MANAGER_RUNNING", "--no-witness", "--without", "n3", "--canary", "n2")
	r.want(t, exitDone) // judged, though the plan may not run
	var plan vipmovev1.Plan
	if err := protojson.Unmarshal([]byte(r.stdout), &plan); err != nil {
		t.Fatal(err)
	}
	o := plan.GetOptions()
	if o.GetInterface() != "eth0" || !o.GetNoWitness() || o.GetCanary() != "n2" || o.GetWithout()[0] != "n3" || o.GetVip() != "10.96.200.7" || plan.GetRunnable() {
		t.Errorf("options %v, runnable %v", o, plan.GetRunnable())
	}
	for _, f := range plan.GetJudgement().GetFindings() {
		if want := f.GetCode() == string(diagnose.ManagerRunning); f.GetOverridden() != want {
			t.Errorf("%s: overridden %v, want %v", f.GetCode(), f.GetOverridden(), want)
		}
	}
	file, _ = saved(t, "outside-subnet")
	again := command(t, nil, "diagnose", "--snapshot", file, "--interface", "eth0", "--plan", "--no-witness")
	again.want(t, exitDone)
	file, _ = saved(t, "c37-holder-behind-a-dead-nic")
	runnable := command(t, nil, "diagnose", "--snapshot", file, "--plan", "--no-witness", "--max-parallel", "2")
	if want := "next: vipmove plan 192.0.2.50 --max-parallel 2 --no-witness=true\n"; !strings.HasSuffix(runnable.stdout, want) {
		t.Errorf("the plan does not end with %q:\n%s", want, runnable.stdout)
	}
}

// A code that cannot be overridden is not shown as overridden.
func TestARefusalThatStandsIsNotShownAsOverridden(t *testing.T) {
	file, _ := saved(t, "c02-address-in-use")
	r := command(t, nil, "diagnose", "--snapshot", file, "--plan", "--no-witness", "--override", "LIVE_ADDRESS")
	r.want(t, exitDone)
	if strings.Contains(r.stdout, "LIVE_ADDRESS (overridden)") || !strings.Contains(r.stdout, "NOT_OVERRIDABLE") {
		t.Errorf("a live address is never overridden:\n%s", r.stdout)
	}
}

func TestWithoutAndInterfaceChangeTheJudgementItself(t *testing.T) {
	file, _ := saved(t, "node-away")
	if r := command(t, nil, "diagnose", "--snapshot", file); !strings.Contains(r.stdout, "refuse NODE_AWAY") {
		t.Errorf("a node that is away refuses:\n%s", r.stdout)
	}
	if r := command(t, nil, "diagnose", "--snapshot", file, "--without", "n1"); !strings.Contains(r.stdout, "warn   NODE_AWAY") {
		t.Errorf("a node that is left out warns:\n%s", r.stdout)
	}
	if r := command(t, nil, "diagnose", "--snapshot", file, "--interface", "eth9"); !strings.Contains(r.stdout, "NO_SEGMENT") {
		t.Errorf("no node has eth9:\n%s", r.stdout)
	}
}

func TestWhatSnapshotSavesIsAcceptedAndJudgedAlike(t *testing.T) {
	files, err := filepath.Glob("../coordinator/diagnose/testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenario: %v", err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".txtar")
		_, content := saved(t, name)
		var p vipmovev1.Snapshot
		if err := protojson.Unmarshal(content, &p); err != nil {
			t.Fatal(err)
		}
		var as bytes.Buffer
		if err := writeJSON(&as, &p); err != nil {
			t.Fatal(err)
		}
		if want, got := judged(t, content), judged(t, as.Bytes()); want.String() != got.String() {
			t.Errorf("%s: saved and read again: %v, want %v", name, got, want)
		}
	}
}

func TestDiagnoseJudgesWhatSnapshotWrote(t *testing.T) {
	_, content := saved(t, "story-seven-answer")
	var p vipmovev1.Snapshot
	if err := protojson.Unmarshal(content, &p); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "before.json")
	command(t, (&fakeControl{snapshot: &p}).serve(t), "snapshot", testVIP, "-f", file).want(t, exitDone)
	r := command(t, nil, "diagnose", "--snapshot", file, "-o", "json")
	r.want(t, exitDone)
	if o := r.oneObject(t); o["owner"] != "n7" {
		t.Errorf("owner %v, want n7", o["owner"])
	}
}

func TestABadSnapshotEndsWithASentenceThatSaysWhatAndWhere(t *testing.T) {
	_, good := saved(t, "c01-mode-switched")
	spoil := func(from, to string) []byte {
		if !bytes.Contains(good, []byte(from)) {
			t.Fatalf("the good file has no %q", from)
		}
		return bytes.Replace(good, []byte(from), []byte(to), 1)
	}
	for says, content := range map[string][]byte{
		"it is empty":                                            {},
		"line 12, column":                                        good[:bytes.Index(good, []byte(`"links"`))+200],
		"line 1, column 1: no JSON":                              []byte("VIP 192.0.2.50"),
		"it is not one JSON object":                              []byte("[]"),
		"schema version 2, this version reads up to 1":           spoil(`"schemaVersion": 1`, `"schemaVersion": 2, "somethingNew": {}`),
		`line 5, column 86: unknown field "kernels"`:             spoil(`"kernel": {`, `"kernels": {`),
		`vip: "192.0.2" is not an IP address`:                    spoil(`"vip": "192.0.2.50"`, `"vip": "192.0.2"`),
		"node n1: link kube-ipvs0: index: 2 is also eth0's":      spoil(`"name": "kube-ipvs0", "index": 3`, `"name": "kube-ipvs0", "index": 2`),
		`round 1 of n9: observer: "n9" is no node of this snaps`: spoil(`"observer": "n1"`, `"observer": "n9"`),
	} {
		file := written(t, content)
		for _, r := range []result{command(t, nil, "diagnose", "--snapshot", file), command(t, nil, "diagnose", "--snapshot", file, "--plan", "-o", "json")} {
			r.want(t, exitFailure, file+": reading snapshot: ", says)
			r.noData(t)
		}
		fromStdin(t, content, "diagnose", "--snapshot", "-").want(t, exitFailure, "stdin: reading snapshot: ", says)
	}
	command(t, nil, "diagnose", "--snapshot", filepath.Join(t.TempDir(), "none")).want(t, exitFailure, "opening the snapshot", "no such file")
	command(t, nil, "diagnose", "--snapshot", t.TempDir()).want(t, exitFailure, "is a directory")
	command(t, nil, "diagnose", "--snapshot", "-").want(t, exitFailure, "stdin: reading snapshot: it is empty")
}

func TestDiagnoseRefusesAWrongCommandLine(t *testing.T) {
	file, _ := saved(t, "c01-mode-switched")
	six, _ := saved(t, "c48-ipv6-on-the-dummy")
	for line, says := range map[string]string{
		"diagnose":            "--snapshot FILE is missing",
		"diagnose 192.0.2.50": "no argument is wanted",
		"diagnose --snapshot " + file + " -o yaml":         "want table or json",
		"diagnose --snapshot " + file + " --canary n1":     "--canary is about a plan: give --plan too",
		"diagnose --snapshot " + file + " --no-witness":    "--no-witness is about a plan",
		"diagnose --snapshot " + file + " --plan --ttl 0s": "want a time above zero",
		"diagnose --snapshot " + six + " --plan":           "IPv6 is not supported yet", // nothing is planned for it; judging it works
	} {
		r := command(t, nil, strings.Fields(line)...)
		r.want(t, exitUsage, says)
		r.noData(t)
	}
}

// The page shows what the command prints of its own example, to the letter.
func TestTheExampleOfTheSnapshotPageIsPrintedAsItSays(t *testing.T) {
	page, err := os.ReadFile("../docs/snapshot.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string) string {
		_, after, _ := strings.Cut(string(page), "```"+kind+"\n")
		text, _, _ := strings.Cut(after, "```\n")
		return text
	}
	r := fromStdin(t, []byte(block("json")), "diagnose", "--snapshot", "-")
	r.want(t, exitDone)
	if diff := cmp.Diff(block("text"), r.stdout); diff != "" {
		t.Errorf("docs/snapshot.md (-page +command):\n%s", diff)
	}
}
