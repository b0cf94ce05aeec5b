// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// result is what a command line ended with.
type result struct {
	code           int
	stdout, stderr string
}

// command runs one command line in this process. env is all the environment there is.
func command(t *testing.T, env map[string]string, args ...string) result {
	t.Helper()
	return commandWith(t, t.Context(), env, nil, args...)
}

func commandIn(t *testing.T, ctx context.Context, env map[string]string, args ...string) result {
	t.Helper()
	return commandWith(t, ctx, env, nil, args...)
}

// commandWith lets the test change the app before it runs.
func commandWith(t *testing.T, ctx context.Context, env map[string]string, change func(*app), args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := newApp(Env{
		Args: append([]string{"vipmove"}, args...), Stdout: &stdout, Stderr: &stderr,
		Getenv: func(name string) string { return env[name] },
	})
	a.zone, a.reconnect = time.UTC, time.Millisecond
	if change != nil {
		change(a)
	}
	code := a.run(ctx)
	return result{code, stdout.String(), stderr.String()}
}

// want fails the test unless the command ended with code, and stderr holds each text.
func (r result) want(t *testing.T, code int, stderr ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	for _, text := range stderr {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("stderr does not say %q:\n%s", text, r.stderr)
		}
	}
}

func (r result) noData(t *testing.T) {
	t.Helper()
	if r.stdout != "" {
		t.Errorf("stdout is for data, but there is:\n%s", r.stdout)
	}
}

// oneObject parses stdout as exactly one JSON object.
func (r result) oneObject(t *testing.T) map[string]any {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &object); err != nil {
		t.Fatalf("stdout is not one JSON object: %v\n%s", err, r.stdout)
	}
	return object
}

func TestNothingIsSentWhenTheVIPIsWrong(t *testing.T) {
	fake := &fakeControl{}
	env := fake.serve(t)
	for vip, says := range map[string]string{
		"192.0.2.50/32":     "give the address without a prefix length, for instance 192.0.2.50",
		"gateway/24":        "give the address without a prefix length",
		"192.0.2":           "not an IPv4 address",
		"192.0.2.050":       "not an IPv4 address",
		"gateway":           "not an IPv4 address",
		"192.0.2.50:80":     "not an IPv4 address",
		" 192.0.2.50":       "not an IPv4 address",
		"2001:db8::50":      "IPv6 is not supported yet; who answers for it is UNKNOWN",
		"fe80::1%eth0":      "IPv6 is not supported yet",
		"::ffff:192.0.2.50": "write it as 192.0.2.50",
		"0.0.0.0":           "unspecified",
		"127.0.0.1":         "loopback",
		"224.0.0.18":        "multicast",
		"255.255.255.255":   "broadcast",
		"":                  "VIP is empty",
	} {
		for _, args := range [][]string{{"owners", vip}, {"snapshot", vip}, {"plan", vip}, {"run", vip, "--plan", "3f1c"}} {
			r := command(t, env, args...)
			r.want(t, exitUsage, says, "See `vipmove "+args[0]+" --help`.")
			r.noData(t)
		}
	}
	if got := fake.requests(); len(got) != 0 {
		t.Errorf("the coordinator was asked %d times, want 0", len(got))
	}
}

func TestNothingIsSentWhenTheCommandLineIsWrong(t *testing.T) {
	fake := &fakeControl{}
	env := fake.serve(t)
	for _, c := range []struct{ line, says string }{
		{"owners", "VIP is missing"},
		{"owners 192.0.2.50 192.0.2.51", "and nothing else is wanted"},
		{"nodes n1", "no argument is wanted, got n1"},
		{"own", `unknown command "own"; did you mean owners?`},
		{"frobnicate", `unknown command "frobnicate"`},
		{"owners 192.0.2.50 --frob", "unknown flag: --frob"},
		{"owners 192.0.2.50 -o yaml", "want table or json"},
		{"owners 192.0.2.50 --rounds 1000", "--rounds 1000: want 10 or fewer"},
		{"owners 192.0.2.50 --window 1h", "--window 1h0m0s: want a time up to 30s"},
		{"owners 192.0.2.50 --timeout -1s", "a time cannot be negative"},
		{"owners 192.0.2.50 --coordinator somewhere", "want host:port or unix:PATH"},
		{"owners 192.0.2.50 --coordinator unix:", "the path is missing"},
		{"plan 192.0.2.50 --ttl 0s", "want a time above zero"},
		{"plan 192.0.2.50 --dwell=-1s", "--dwell -1s"},
		{"plan 192.0.2.50 --max-parallel 0", "want 1 or more"},
		{"plan 192.0.2.50 --max-parallel -1", "--max-parallel"},
		{"plan 192.0.2.50 --override unknown", "want the code of a refusal"},
		{"plan 192.0.2.50 --without=", "name one node"},
		{"plan 192.0.2.50 --canary=", "--canary is empty"},
		{"plan 192.0.2.50 --canary n4 --owner n4", "the canary cannot be the owner"},
		{"run 192.0.2.50", "--plan HASH is missing; run `vipmove plan 192.0.2.50` first"},
		{"watch", "RUN is missing"},
		{"abort", "RUN is missing"},
		{"rollback R7 R8", "and nothing else is wanted"},
	} {
		r := command(t, env, strings.Fields(c.line)...)
		r.want(t, exitUsage, c.says)
		r.noData(t)
	}
	if got := fake.requests(); len(got) != 0 {
		t.Errorf("the coordinator was asked %d times, want 0", len(got))
	}
}

func TestEveryGRPCStatusHasItsExitCodeAndItsText(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		says string
	}{
		{status.Error(codes.InvalidArgument, "canary n9: no such node"), exitUsage, "canary n9: no such node"},
		{status.Error(codes.FailedPrecondition, "no agent is connected"), exitPreconditions, "no agent is connected"},
		{status.Error(codes.PermissionDenied, "agent n1 may not plan"), exitNotAllowed, "agent n1 may not plan"},
		{status.Error(codes.Unauthenticated, "no certificate"), exitNotAllowed, "no certificate"},
		{status.Error(codes.DeadlineExceeded, "late"), exitTimedOut, "no answer within 2m0s (--timeout)"},
		{status.Error(codes.Unavailable, "shutting down"), exitFailure, "check --coordinator (or VIPMOVE_COORDINATOR)"},
		{status.Error(codes.Internal, "journal: disk full"), exitFailure, "journal: disk full"},
		{status.Error(codes.Unimplemented, "unknown method"), exitFailure, "is of another version"},
		{status.Error(codes.Aborted, ""), exitFailure, "Aborted"},
	} {
		fake := &fakeControl{err: c.err}
		env := fake.serve(t)
		for _, args := range [][]string{{"owners", testVIP}, {"plan", testVIP}, {"snapshot", testVIP}} {
			r := command(t, env, args...)
			r.want(t, c.code, c.says, testVIP)
			r.noData(t)
		}
	}
}

func TestTypedReasonsOfARefusalAreShownWithTheirNextStep(t *testing.T) {
	s, err := status.New(codes.FailedPrecondition, "plan 3f1c9e no longer fits").WithDetails(
		&vipmovev1.Refusal{Code: vipmovev1.Refusal_MANAGER_RUNNING, Message: "kube-proxy runs on n2", NextStep: "stop it"},
		&vipmovev1.Finding{Code: "TWO_ANNOUNCERS", Severity: "refuse", Nodes: []string{"n1", "n4"}, Message: "both answer", NextStep: "retire one"},
		&vipmovev1.Precondition{Name: "a witness measures requests", Detail: "none is connected", Code: "NO_WITNESS"},
	)
	if err != nil {
		t.Fatal(err)
	}
	fake := &fakeControl{err: s.Err()}
	r := command(t, fake.serve(t), "run", testVIP, "--plan", "3f1c9e")
	r.want(t, exitPreconditions,
		"starting a run for 192.0.2.50: plan 3f1c9e no longer fits",
		"MANAGER_RUNNING: kube-proxy runs on n2\n      next: stop it",
		"refuse TWO_ANNOUNCERS n1,n4: both answer\n      next: retire one",
		"a witness measures requests: none is connected [NO_WITNESS]",
		"nothing was changed; look again with `vipmove plan 192.0.2.50`")
	r.noData(t)
}

func TestOwnersPrintsTheJudgementAndKeepsProgressOffStdout(t *testing.T) {
	fake := &fakeControl{survey: []*vipmovev1.SurveyEvent{
		{Event: &vipmovev1.SurveyEvent_Progress{Progress: "asking 7 observers"}},
		{Event: &vipmovev1.SurveyEvent_Heard{Heard: &vipmovev1.HeardEvent{Observer: "n1", Node: "n2"}}},
		{Event: &vipmovev1.SurveyEvent_Judgement{Judgement: contested()}},
	}}
	env := fake.serve(t)
	r := command(t, env, "owners", testVIP, "--interface", "eth0", "--rounds", "3", "--window", "2s")
	r.want(t, exitDone, "asking 7 observers")
	if strings.Contains(r.stdout, "asking") || strings.Contains(r.stdout, "\x1b") || strings.Contains(r.stderr, "heard") {
		t.Errorf("off a terminal stdout has the judgement alone, uncoloured, stderr no replies:\n%s%s", r.stdout, r.stderr)
	}
	if want := draw(false, func(p *printer) { p.judgement(contested()) }); r.stdout != want {
		t.Errorf("stdout is not the judgement:\n%s", r.stdout)
	}
	got := fake.requests()[0].(*vipmovev1.SurveyRequest)
	if got.GetVip() != testVIP || got.GetInterface() != "eth0" || got.GetRounds() != 3 || got.GetWindow().AsDuration() != 2*time.Second {
		t.Errorf("asked for %v", got)
	}

	object := command(t, env, "owners", testVIP, "-o", "json").oneObject(t)
	if object["verdict"] != "contested" || len(object["responders"].([]any)) != 7 {
		t.Errorf("JSON has verdict %v and %v", object["verdict"], object["responders"])
	}
}

func TestOwnersWithoutAJudgementIsAnError(t *testing.T) {
	r := command(t, (&fakeControl{}).serve(t), "owners", testVIP)
	r.want(t, exitFailure, "without a judgement")
	r.noData(t)
}

func TestSnapshotIsReadableAsTheMessageItIs(t *testing.T) {
	fake := &fakeControl{snapshot: &vipmovev1.Snapshot{SchemaVersion: 1, Vip: testVIP, Nodes: sevenNodes().GetNodes(), Requests: sevenNodes().GetRequests()}}
	env := fake.serve(t)
	file := filepath.Join(t.TempDir(), "before.json")
	r := command(t, env, "snapshot", testVIP, "-f", file)
	r.want(t, exitDone, "saved "+file+": 5 nodes, 0 rounds")
	r.noData(t)
	saved, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var back vipmovev1.Snapshot
	if err := protojson.Unmarshal(saved, &back); err != nil {
		t.Fatal(err)
	}
	if back.GetNodes()[1].GetKernel().GetIncomplete()[0] != "addresses: dump interrupted five times" || back.GetRequests()[0].GetSent() != 1200 {
		t.Errorf("read back: %v", &back)
	}
	if r := command(t, env, "snapshot", testVIP); r.stdout != string(saved) {
		t.Errorf("stdout and file differ")
	}
	command(t, env, "snapshot", testVIP, "-f", t.TempDir()).want(t, exitFailure, "saving the snapshot")
}

func TestPlanEndsWithTheLineThatRunsIt(t *testing.T) {
	fake := &fakeControl{plan: runnablePlan()}
	env := fake.serve(t)
	r := command(t, env, "plan", testVIP, "--canary", "n2", "--override", "UNKNOWN_MANAGER", "--without", "n6", "--without", "n7", "--no-witness", "--dwell", "5s", "--timeout", "10s")
	r.want(t, exitDone)
	next := "next: vipmove run 192.0.2.50 --plan 3f1c9e --canary n2 --dwell 5s --no-witness=true --override UNKNOWN_MANAGER --without n6 --without n7\n"
	if !strings.HasSuffix(r.stdout, next) {
		t.Fatalf("the plan does not end with %q:\n%s", next, r.stdout)
	}

	// The very line, run, must ask for the very same plan.
	fake.runID, fake.watches = "R7", [][]*vipmovev1.Run{{doneRun()}}
	line := strings.Fields(strings.TrimPrefix(strings.TrimSpace(next), "next: vipmove "))
	command(t, env, line...).want(t, exitDone)
	planned := fake.requests()[0].(*vipmovev1.MakePlanRequest)
	started := fake.requests()[1].(*vipmovev1.StartRunRequest)
	if planned.GetOptions().String() != started.GetOptions().String() || started.GetPlanHash() != "3f1c9e" {
		t.Errorf("planned %v, started %v", planned, started)
	}
	if planned.GetOptions().GetTtl() != nil || planned.GetOptions().GetDwell().AsDuration() != 5*time.Second {
		t.Errorf("a flag that was not given is the coordinator's to choose, got %v", planned.GetOptions())
	}
}

func TestAPlanThatMayNotRunEndsWithExitCode3(t *testing.T) {
	env := (&fakeControl{plan: refusedPlan()}).serve(t)
	r := command(t, env, "plan", testVIP)
	r.want(t, exitPreconditions)
	if !strings.Contains(r.stdout, "NO_ANNOUNCER") || strings.Contains(r.stdout, "next: vipmove run") {
		t.Errorf("want the reason, and no line to run:\n%s", r.stdout)
	}
	r = command(t, env, "plan", testVIP, "-o", "json")
	r.want(t, exitPreconditions)
	if r.oneObject(t)["runnable"] != false {
		t.Errorf("runnable is %v", r.oneObject(t)["runnable"])
	}
}

func TestNodesAndStatus(t *testing.T) {
	fake := &fakeControl{nodes: sevenNodes(), runs: []*vipmovev1.Run{doneRun()}}
	env := fake.serve(t)
	for _, c := range []struct{ line, table, json string }{
		{"nodes", "NODE    ROLE", "nodes"},
		{"status", "RUN  VIP", "runs"},
	} {
		if r := command(t, env, c.line); r.code != 0 || !strings.HasPrefix(r.stdout, c.table) || r.stderr != "" {
			t.Errorf("%s: %+v", c.line, r)
		}
		object := command(t, env, c.line, "-o", "json").oneObject(t)
		if len(object[c.json].([]any)) == 0 {
			t.Errorf("%s: no %s in the JSON", c.line, c.json)
		}
	}
}

func TestHelpListsEveryCommandAndTheExitCodes(t *testing.T) {
	r := command(t, nil, "--help")
	r.want(t, exitDone)
	for _, want := range []string{
		"owners", "plan", "run", "watch", "status", "abort", "rollback", "nodes", "snapshot",
		"0  done", "1  error", "2  usage", "3  preconditions not met", "4  stopped", "5  stopped, and a person is needed", "6  timed out", "7  not allowed",
	} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("help does not mention %q", want)
		}
	}
	if bare := command(t, nil); bare.stdout != r.stdout || bare.code != exitDone {
		t.Errorf("without arguments: exit code %d, want help", bare.code)
	}
}

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	root := newApp(Env{Args: []string{"vipmove"}}).rootCommand()
	for _, c := range root.Commands() {
		for _, cmd := range append(c.Commands(), c) {
			if cmd.Example == "" && !cmd.HasSubCommands() {
				t.Errorf("%s has no example", cmd.CommandPath())
			}
			if cmd.Long == "" || cmd.Short == "" {
				t.Errorf("%s has no description", cmd.CommandPath())
			}
		}
	}
}

func TestAsAKubectlPluginItNamesItselfSo(t *testing.T) {
	var stdout, stderr bytes.Buffer
	a := newApp(Env{Args: []string{"/usr/local/bin/kubectl-vipmove", "run", "--help"}, Stdout: &stdout, Stderr: &stderr})
	if code := a.run(t.Context()); code != exitDone {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	for _, want := range []string{"kubectl vipmove run VIP --plan HASH", "kubectl vipmove plan 192.0.2.50"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("help does not say %q:\n%s", want, stdout.String())
		}
	}
}
