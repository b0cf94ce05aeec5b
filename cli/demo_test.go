// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"bytes"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/internal/identity"
	"github.com/vipmove/vipmove/lab"
	"github.com/vipmove/vipmove/lab/prober"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// goodDemo is the story as it must go: report and facts agree.
func goodDemo() (demoReport, demoFacts) {
	order, steps := beganSteps(doneRun())
	r := demoReport{
		Nodes: 7, VIP: testVIP, VerdictBefore: "contested", RespondersBefore: 7, Canary: "n1", Owner: "n4", Order: order, Steps: steps,
		VerdictAfter: "single", RespondersAfter: 1, AddressesLeft: map[string]int{}, DurationSeconds: 61.234,
		Requests: demoRequests{Sent: 6000, LongestGapMs: 14.2, LossBoundPercent: 0.05},
	}
	f := demoFacts{announcer: "n4", clusterIPs: 44, state: runDone, ownerBefore: "n4", ownerAfter: "n4"}
	for i := 1; i <= 7; i++ {
		r.AddressesLeft[node(i)] = 44
		f.productBefore, f.proberBefore = append(f.productBefore, mac(i)), append(f.proberBefore, mac(i))
	}
	f.productAfter, f.proberAfter = []string{mac(4)}, []string{mac(4)}
	return r, f
}

// undoneDemo is the story with --serve-needs-address: the first step is undone.
func undoneDemo() (demoReport, demoFacts) {
	r, f := goodDemo()
	r.Order, r.Steps = beganSteps(rolledBackRun())
	r.VerdictAfter, r.RespondersAfter, r.Requests.Failed = "contested", 7, 3
	f.serveNeedsAddress, f.state, f.productAfter, f.proberAfter = true, runRolledBack, f.productBefore, f.proberBefore
	for n := range r.AddressesLeft {
		r.AddressesLeft[n] = 45
	}
	return r, f
}

func TestNothingIsOffAboutAStoryThatWentWell(t *testing.T) {
	for name, story := range map[string]func() (demoReport, demoFacts){"done": goodDemo, "undone": undoneDemo} {
		r, f := story()
		if off := f.off(r); len(off) != 0 {
			t.Errorf("%s: off: %q", name, off)
		}
	}
	r, f := undoneDemo() // no announcer: nothing was planned, nothing may have changed
	f.serveNeedsAddress, f.state, f.announcer, f.ownerBefore = false, "", "", ""
	if off := f.off(r); len(off) != 0 {
		t.Errorf("no announcer: off: %q", off)
	}
}

// Each planted fault must be told: a demo that cannot fail shows nothing.
func TestEveryFaultInTheStoryIsTold(t *testing.T) {
	for _, c := range []struct {
		name  string
		story func() (demoReport, demoFacts)
		plant func(*demoReport, *demoFacts)
		says  string
	}{
		{"the product missed a responder", goodDemo, func(_ *demoReport, f *demoFacts) { f.productBefore = f.productBefore[1:] }, "before the run the product hears"},
		{"the product hears one too many after", goodDemo, func(_ *demoReport, f *demoFacts) { f.productAfter = f.productBefore }, "after the run the product hears"},
		{"a node did not answer before", goodDemo, func(r *demoReport, _ *demoFacts) { r.RespondersBefore = 6 }, "6 responders answered before the run"},
		{"the owner was not found", goodDemo, func(_ *demoReport, f *demoFacts) { f.ownerBefore = "" }, "the owner was said to be none, it is n4"},
		{"another owner after", goodDemo, func(_ *demoReport, f *demoFacts) { f.ownerAfter = "n2" }, "the owner is said to be n2"},
		{"two answer after", goodDemo, func(r *demoReport, _ *demoFacts) { r.RespondersAfter = 2 }, "want single and 1"},
		{"the verdict is not single", goodDemo, func(r *demoReport, _ *demoFacts) { r.VerdictAfter = "split" }, "the verdict is split"},
		{"the run did not end done", goodDemo, func(_ *demoReport, f *demoFacts) { f.state = runPaused }, "the run ended paused"},
		{"owner first (I3)", goodDemo, func(r *demoReport, _ *demoFacts) { slices.Reverse(r.Order) }, "n4 went first, the canary is n1"},
		{"owner not last (I3)", goodDemo, func(r *demoReport, _ *demoFacts) { r.Order[5], r.Order[6] = r.Order[6], r.Order[5] }, "n7 went last, the survivor is n4"},
		{"two at once (I2)", goodDemo, func(r *demoReport, _ *demoFacts) { r.Steps[2].RemovedAt = r.Steps[1].VerifiedAt }, "n3 was changed before n2 was confirmed"},
		{"verification skipped", goodDemo, func(r *demoReport, _ *demoFacts) { r.Steps[3].VerifiedAt = nil }, "the step of n5 is not complete"},
		{"a node left out", goodDemo, func(r *demoReport, _ *demoFacts) { r.Order = r.Order[1:] }, "6 nodes had their step"},
		{"a request lost", goodDemo, func(r *demoReport, _ *demoFacts) { r.Requests.Failed = 1 }, "1 of 6000 requests failed"},
		{"no requests at all", goodDemo, func(r *demoReport, _ *demoFacts) { r.Requests = demoRequests{} }, "no request was sent"},
		{"a ClusterIP gone too", goodDemo, func(r *demoReport, _ *demoFacts) { r.AddressesLeft["n3"] = 43 }, "n3 has 43 addresses on kube-ipvs0, want 44"},
		{"the VIP not gone", goodDemo, func(r *demoReport, _ *demoFacts) { r.AddressesLeft["n3"] = 45 }, "n3 has 45 addresses"},
		{"a node not counted", goodDemo, func(r *demoReport, _ *demoFacts) { delete(r.AddressesLeft, "n3") }, "addresses were counted on 6 nodes"},
		{"no undo although it was needed", undoneDemo, func(_ *demoReport, f *demoFacts) { f.state = runDone }, "the run ended done although"},
		{"an address not put back", undoneDemo, func(r *demoReport, _ *demoFacts) { r.AddressesLeft["n1"] = 44 }, "n1 has 44 addresses on kube-ipvs0, want 45"},
		{"a node silent after the undo", undoneDemo, func(_ *demoReport, f *demoFacts) {
			f.proberAfter, f.productAfter = f.proberBefore[1:], f.proberBefore[1:]
		}, "although nothing may remain changed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, f := c.story()
			c.plant(&r, &f)
			off := strings.Join(f.off(r), "\n")
			if !strings.Contains(off, c.says) {
				t.Errorf("does not say %q, but %q", c.says, off)
			}
		})
	}
}

func TestTheDemosExitCode(t *testing.T) {
	for _, c := range []struct {
		name    string
		story   func() (demoReport, demoFacts)
		runCode int
		fault   bool
		want    int
	}{
		{"done", goodDemo, exitDone, false, exitDone},
		{"done, and something is off", goodDemo, exitDone, true, exitFailure},
		{"stopped where it should not", goodDemo, exitRolledBack, true, exitRolledBack},
		{"undone as it must be", undoneDemo, exitRolledBack, false, exitRolledBack},
		{"undone as it must be, and something is off", undoneDemo, exitRolledBack, true, exitFailure},
	} {
		r, f := c.story()
		if c.fault {
			f.productBefore = nil
		}
		p := &play{report: r, facts: f, runCode: c.runCode}
		if got := exitCode(p.verdict()); got != c.want {
			t.Errorf("%s: exit code %d, want %d", c.name, got, c.want)
		}
	}
}

// Scripts read these names; they are the contract of docs and issue.
func TestTheDemosJSONHasExactlyItsFields(t *testing.T) {
	r, _ := goodDemo()
	var b bytes.Buffer
	if err := r.write(&b); err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(b.Bytes(), &object); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		of   any
		want []string
	}{
		{object, []string{
			"addressesLeft", "canary", "durationSeconds", "nodes", "order", "owner", "requests", "respondersAfter", "respondersBefore", "steps", "verdictAfter", "verdictBefore", "vip",
		}},
		{object["requests"], []string{"failed", "longestGapMs", "lossBoundPercent", "sent"}},
		{object["steps"].([]any)[0], []string{"confirmedAt", "node", "removedAt", "verifiedAt"}},
	} {
		if diff := cmp.Diff(c.want, sortedNames(c.of.(map[string]any))); diff != "" {
			t.Errorf("fields (-want +got):\n%s", diff)
		}
	}
	step := object["steps"].([]any)[0].(map[string]any)
	if _, err := time.Parse(time.RFC3339, step["removedAt"].(string)); err != nil {
		t.Errorf("removedAt: %v", err)
	}
	b.Reset()
	if err := (demoReport{}).write(&b); err != nil || !strings.Contains(b.String(), `"order": []`) || !strings.Contains(b.String(), `"addressesLeft": {}`) {
		t.Errorf("an empty report has null where a list belongs (%v): %s", err, b.String())
	}
}

func TestTheOrderIsThatOfTheRemovalsNotOfThePlan(t *testing.T) {
	r := doneRun()
	r.Steps[1].RemovedAt, r.Steps[2].RemovedAt = r.Steps[2].RemovedAt, r.Steps[1].RemovedAt
	r.Steps[6].RemovedAt = nil
	order, steps := beganSteps(r)
	if diff := cmp.Diff([]string{"n1", "n3", "n2", "n5", "n6", "n7"}, order); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(steps) != 6 || steps[1].Node != "n3" {
		t.Errorf("steps are %v", steps)
	}
}

func TestWhoAnswersIsComparedByMAC(t *testing.T) {
	j := foreign()
	j.Responders = append(j.Responders, j.Responders[0]) // seen on two segments, one MAC
	var replies []prober.Reply
	for _, text := range []string{"02:aa:aa:aa:aa:aa", mac(14), mac(4)} {
		hardware, err := net.ParseMAC(text)
		if err != nil {
			t.Fatal(err)
		}
		replies = append(replies, prober.Reply{MAC: hardware})
	}
	if diff := cmp.Diff(productMACs(j), proberMACs(replies)); diff != "" {
		t.Errorf("(-product +prober):\n%s", diff)
	}
}

func TestAGapThatIsStillOpenCounts(t *testing.T) {
	got := requestFigures(&vipmovev1.Requests{Sent: 40, LongestGap: durationpb.New(12 * time.Millisecond), OpenGap: durationpb.New(1500 * time.Millisecond)})
	if got.LongestGapMs != 1500 || got.Sent != 40 || got.LossBoundPercent < 7.2 || got.LossBoundPercent > 7.3 {
		t.Errorf("figures are %+v, want a gap of 1500 ms and a bound of 7.2 %%", got)
	}
}

func TestDemoSummaryIsAsInTheGoldenFile(t *testing.T) {
	r, _ := goodDemo()
	golden(t, "demo-summary", draw(false, func(p *printer) { p.demoSummary(r) }))
}

func TestTheLabsFlagsAreCheckedBeforeAnythingIsMade(t *testing.T) {
	for _, c := range []struct{ line, says string }{
		{"demo --nodes 0", "--nodes 0: want 1 to"},
		{"demo --nodes 31", "--nodes 31: want 1 to 30"},
		{"demo --clusterips -1", "--clusterips -1"},
		{"demo --rate 0", "--rate 0: want 1 to 1000"},
		{"demo --rate NaN", "--rate NaN"},
		{"demo -o yaml", "want table or json"},
		{"demo now", "no argument is wanted"},
		{"lab up --rate 1e9", "--rate 1e+09"},
		{"lab sideways", `unknown command "sideways"`},
	} {
		r := command(t, nil, strings.Fields(c.line)...)
		r.want(t, exitUsage, c.says)
		r.noData(t)
	}
}

// The test binary has no agent and no coordinator beside it.
func TestDemoSaysWhatIsMissingBesideItself(t *testing.T) {
	for _, line := range []string{"demo", "lab up"} {
		r := command(t, nil, strings.Fields(line)...)
		r.want(t, exitFailure, "vipmove-agent and vipmove-coordinator", "make build")
		r.noData(t)
	}
}

// testStage is a stage of three nodes that is not built.
func testStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{options: stageOptions{nodes: 3, rate: 100}}
	var err error
	if s.Lab, err = lab.New(lab.Config{Nodes: 3, Dir: shortDir(t)}); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEveryMemberOfTheLabHasACertificateOfItsOwn(t *testing.T) {
	s := testStage(t)
	if err := s.issueCertificates(); err != nil {
		t.Fatal(err)
	}
	for host, who := range s.members() {
		c := s.credentials(host)
		named, err := identity.FromFiles(identity.Files{CA: c.CA, Certificate: c.Cert, Key: c.Key})
		if err != nil || named != who {
			t.Errorf("%s has the certificate of %v (%v), want %v", host, named, err, who)
		}
	}
	if got := len(s.members()); got != 5 {
		t.Errorf("%d members, want coordinator, client and three nodes", got)
	}
	// What is printed for another terminal must be all that a command there needs.
	var b bytes.Buffer
	s.exports(&b)
	env := map[string]string{}
	for line := range strings.Lines(b.String()) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		env[name] = value
	}
	var c connection
	if err := c.resolve(func(name string) string { return env[name] }); err != nil {
		t.Errorf("after the export lines: %v", err)
	}
	if !strings.HasSuffix(c.cert, "operator-lab.crt") || c.coordinator != "unix:"+s.Socket() {
		t.Errorf("the export lines lead to %+v", c)
	}
}
