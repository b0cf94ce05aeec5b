// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/handover"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func TestAnAddressIsOneIPv4AddressAndNothingElse(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.50": "", "10.0.0.1": "", "169.254.0.10": "",
		"":                     `"" is no IP address: give the VIP in the form 192.0.2.50`,
		"gateway":              `"gateway" is no IP address`,
		"192.0.2":              `"192.0.2" is no IP address`,
		"192.0.2.050":          `"192.0.2.050" is no IP address`,
		"192.0.2.256":          `"192.0.2.256" is no IP address`,
		" 192.0.2.50":          `" 192.0.2.50" is no IP address`,
		"192.0.2.50:80":        `"192.0.2.50:80" is no IP address`,
		"192.0.2.50/32":        `"192.0.2.50/32" is a prefix: give the address without a prefix length`,
		"192.0.2.0/24":         `is a prefix`,
		"2001:db8::50":         `2001:db8::50 is IPv6: this release looks at IPv4 only`,
		"fe80::1%eth0":         `is IPv6`,
		"::ffff:192.0.2.50":    `"::ffff:192.0.2.50" is an IPv4 address in IPv6 form: give it as 192.0.2.50`,
		"0.0.0.0":              `0.0.0.0 cannot be a LoadBalancer address`,
		"127.0.0.1":            `cannot be a LoadBalancer address`,
		"224.0.0.18":           `cannot be a LoadBalancer address`,
		"255.255.255.255":      `cannot be a LoadBalancer address`,
		"192.0.2.50\n10.0.0.1": `is no IP address`,
	} {
		a, err := address(in)
		if want == "" {
			if err != nil || a.String() != in {
				t.Errorf("%q: %v %v", in, a, err)
			}
			continue
		}
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(status.Convert(err).Message(), want) {
			t.Errorf("%q: %v\nwant %s", in, err, want)
		}
	}
}

func TestOptionsOutOfBoundsAreRefused(t *testing.T) {
	tests := []struct {
		name string
		edit func(o *vipmovev1.PlanOptions)
		want string // empty: fine
	}{
		{"nothing but the VIP", func(*vipmovev1.PlanOptions) {}, ""},
		{"the shortest TTL", func(o *vipmovev1.PlanOptions) { o.Ttl = durationpb.New(shortestTTL) }, ""},
		{"the longest TTL", func(o *vipmovev1.PlanOptions) { o.Ttl = durationpb.New(longestTTL) }, ""},
		{"a TTL that leaves no time", func(o *vipmovev1.PlanOptions) { o.Ttl = durationpb.New(shortestTTL - 1) }, "too short to verify a step in; give at least 10s with --ttl"},
		{"a TTL that agents do not keep", func(o *vipmovev1.PlanOptions) { o.Ttl = durationpb.New(longestTTL + 1) }, "give at most 10m0s with --ttl"},
		{"a TTL below zero", func(o *vipmovev1.PlanOptions) { o.Ttl = durationpb.New(-time.Second) }, "--ttl -1s: give a time that is not negative"},
		{"a dwell below zero", func(o *vipmovev1.PlanOptions) { o.Dwell = durationpb.New(-time.Second) }, "--dwell -1s"},
		{"a soak that is no duration", func(o *vipmovev1.PlanOptions) { o.CanarySoak = &durationpb.Duration{Seconds: 1, Nanos: -1} }, "--canary-soak"},
		{"another address", func(o *vipmovev1.PlanOptions) { o.Vip = "x" }, "no IP address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := options()
			tt.edit(o)
			_, err := optionsFrom(o)
			if tt.want == "" && err == nil {
				return
			}
			if tt.want == "" || status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestOptionsComeBackAsTheyWereGiven(t *testing.T) {
	in := &vipmovev1.PlanOptions{Vip: testVIP, Interface: "eth0", Canary: "n2", Owner: "n7", Without: []string{"n9"}, Overrides: []string{"MANAGER_RUNNING"},
		MaxParallel: 2, Ttl: durationpb.New(time.Minute), Dwell: durationpb.New(3 * time.Second), CanarySoak: durationpb.New(9 * time.Second), MaxFailed: 4, NoWitness: true, Announce: true}
	o, err := optionsFrom(in)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, snapshot.OptionsToProto(o), protocmp.Transform()); diff != "" {
		t.Errorf("(-given +came back):\n%s", diff)
	}
	everySet(t, in)
	bare, err := optionsFrom(options())
	if err != nil {
		t.Fatal(err)
	}
	want := &vipmovev1.PlanOptions{Vip: testVIP, MaxParallel: 1, Ttl: durationpb.New(handover.DefaultTTL), Dwell: durationpb.New(handover.DefaultDwell), CanarySoak: durationpb.New(handover.DefaultCanarySoak)}
	if diff := cmp.Diff(want, snapshot.OptionsToProto(bare), protocmp.Transform()); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

// everySet fails where a message has a field that the test leaves at zero, so that a new field is noticed.
func everySet(t *testing.T, m proto.Message, without ...string) {
	t.Helper()
	r := m.ProtoReflect()
	fields := r.Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); !r.Has(f) && !contains(without, string(f.Name())) {
			t.Errorf("%s.%s is not set by the conversion, or not by this test", r.Descriptor().Name(), f.Name())
		}
	}
}

var (
	began = time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
	entry = diagnose.Address{Link: "kube-ipvs0", LinkIndex: 3, Prefix: netip.MustParsePrefix(testVIP + "/32"), Flags: 0x80, ValidLifetime: forever, PreferredLife: forever}
)

func testPlan() handover.Plan {
	o := handover.Options{VIP: netip.MustParseAddr(testVIP), Overrides: []diagnose.Code{diagnose.ManagerRunning}}.WithDefaults()
	return handover.Plan{Options: o, Hash: "h", Canary: "n1", CanaryReason: "why n1", Survivor: "n2", SurvivorReason: "why n2", VerdictBefore: "contested",
		Report: diagnose.Report{VIP: o.VIP, Verdict: diagnose.VerdictContested, Findings: []diagnose.Finding{
			{Code: diagnose.ManagerRunning, Severity: diagnose.Refuse}, {Code: diagnose.StaleAddress, Severity: diagnose.Info}}},
		Steps: []handover.PlannedStep{
			{Entry: handover.Entry{Node: "n1", BootID: "b1", Address: entry, State: diagnose.HolderStale}, Role: handover.RoleCanary, Reason: "first"},
			{Entry: handover.Entry{Node: "n2", BootID: "b2", Address: entry, State: diagnose.HolderLatent}, Role: handover.RoleSurvivor, Reason: "last"}},
		LeftAlone: map[string]int{"n1": 44}, HashedLines: []string{"a", "b"},
		Preconditions: []handover.Precondition{{Code: diagnose.ManagerRunning, Name: "overridden", Met: true, Detail: "recorded"}}}
}

func TestAPlanAsTheOperatorGetsIt(t *testing.T) {
	got := snapshot.PlanToProto(testPlan(), began)
	want := &vipmovev1.Plan{Hash: "h", Canary: "n1", CanaryReason: "why n1", Survivor: "n2", SurvivorReason: "why n2", Runnable: true,
		Steps: []*vipmovev1.PlanStep{
			{Node: "n1", Address: staleAddress(), State: "stale", Role: "canary", Reason: "first"},
			{Node: "n2", Address: staleAddress(), State: "latent", Role: "survivor", Reason: "last"}},
		LeftAlone: map[string]uint32{"n1": 44}, HashedLines: []string{"a", "b"},
		Preconditions: []*vipmovev1.Precondition{{Name: "overridden", Met: true, Detail: "recorded", Code: "MANAGER_RUNNING"}}}
	if diff := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(got, "options", "judgement")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, f := range got.GetJudgement().GetFindings() {
		if f.GetOverridden() != (f.GetCode() == "MANAGER_RUNNING") {
			t.Errorf("finding %v", f)
		}
	}
	if !got.GetJudgement().GetAt().AsTime().Equal(began) || got.GetOptions().GetVip() != testVIP {
		t.Errorf("judged %v, options %v", got.GetJudgement().GetAt(), got.GetOptions())
	}
	everySet(t, got)
	refusedPlan := testPlan()
	refusedPlan.Preconditions[0].Met = false
	if snapshot.PlanToProto(refusedPlan, began).GetRunnable() {
		t.Error("a plan with a precondition that is not met can be run")
	}
}

func TestARunAsTheOperatorGetsIt(t *testing.T) {
	p := testPlan()
	run := handover.Run{ID: "r1", Plan: p, State: handover.NeedsDecision, Term: 3, Code: handover.AddressCameBack, Reason: "it came back", Changed: true, Rollback: true,
		StartedBy: "alice", StartedAt: began, EndedAt: began.Add(time.Minute), Verdict: "contested", Revision: 17,
		Steps: []handover.Step{
			{PlannedStep: p.Steps[0], State: handover.Confirmed, CommandID: "c1", Attempt: 2, RemovedAt: began.Add(1), VerifiedAt: began.Add(2), ConfirmedAt: began.Add(3), Detail: "fine"},
			{PlannedStep: p.Steps[1], State: handover.Pending}}}
	v := view{run: run, doing: "waiting", after: &vipmovev1.Judgement{Verdict: "contested"}, totals: delta{sent: 100, failed: 2, longestGap: time.Second}}
	requests := []*vipmovev1.Requests{{Witness: "client", Sent: 100}}
	got := runTo(v, requests)
	want := &vipmovev1.Run{RunId: "r1", Vip: testVIP, PlanHash: "h", State: "needs-decision", Reason: "it came back", ReasonCode: "ADDRESS_CAME_BACK",
		NextStep: "look who answers now: vipmove owners 192.0.2.50; put confirmed nodes back with: vipmove rollback r1; docs/findings.md explains ADDRESS_CAME_BACK",
		Steps: []*vipmovev1.RunStep{
			{Node: "n1", State: "confirmed", Role: "canary", Address: staleAddress(), RemovedAt: timestamppb.New(began.Add(1)), VerifiedAt: timestamppb.New(began.Add(2)),
				ConfirmedAt: timestamppb.New(began.Add(3)), Detail: "fine", CommandId: "c1", Attempts: 2},
			{Node: "n2", State: "pending", Role: "survivor", Address: staleAddress()}},
		Canary: "n1", Survivor: "n2", StartedAt: timestamppb.New(began), EndedAt: timestamppb.New(began.Add(time.Minute)), Term: 3, StartedBy: "alice", Requests: requests,
		RequestsSent: 100, RequestsFailed: 2, LongestGap: durationpb.New(time.Second), VerdictBefore: "contested", VerdictAfter: "contested", Doing: "waiting", Changed: true,
		Options: snapshot.OptionsToProto(p.Options), Revision: 17, After: &vipmovev1.Judgement{Verdict: "contested"}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	everySet(t, got, "findings") // of no run yet; the judgement has its own
	if early := runTo(view{run: handover.Run{Plan: p, State: handover.Running}}, nil); early.GetEndedAt() != nil || early.GetLongestGap() != nil || early.GetAfter() != nil || early.GetNextStep() != "" {
		t.Errorf("a run that goes on: %v", early)
	}
}

func TestEveryEndTellsWhatToDoNext(t *testing.T) {
	for state, want := range map[handover.RunState]string{
		handover.Paused:        "vipmove plan 192.0.2.50",
		handover.NeedsDecision: "vipmove rollback r1",
		handover.RolledBack:    "docs/findings.md explains REQUEST_BUDGET",
		handover.Done:          "", handover.Running: "", handover.Aborting: "", handover.Planned: "",
	} {
		got := nextStep(handover.Run{ID: "r1", Plan: testPlan(), State: state, Code: handover.RequestBudget})
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
}

// An agent's answer, and what the machine is told of it. What names no state says nothing about the node.
func TestWhatAnAnswerSays(t *testing.T) {
	step := func(s *vipmovev1.StepAnswer) *vipmovev1.CommandResult {
		return &vipmovev1.CommandResult{Answer: &vipmovev1.CommandResult_Step{Step: s}}
	}
	tests := []struct {
		name string
		in   *vipmovev1.CommandResult
		want handover.Event
	}{
		{"nothing", &vipmovev1.CommandResult{}, handover.Event{Kind: handover.Lost, Detail: "the node gave no answer about its step"}},
		{"an error", &vipmovev1.CommandResult{Error: "disk"}, handover.Event{Kind: handover.Lost, Detail: "disk"}},
		{"a state of a newer version", step(&vipmovev1.StepAnswer{State: 99}), handover.Event{Kind: handover.Lost, Detail: "the node gave no answer about its step"}},
		{"no state", step(&vipmovev1.StepAnswer{}), handover.Event{Kind: handover.Lost, Detail: "the node gave no answer about its step"}},
		{"removed", step(&vipmovev1.StepAnswer{State: vipmovev1.StepAnswer_STATE_REMOVED, Detail: "gone"}), handover.Event{Kind: handover.Answered, Answer: handover.AnswerRemoved, Detail: "gone"}},
		{"removed and there again", step(&vipmovev1.StepAnswer{State: vipmovev1.StepAnswer_STATE_CONFIRMED, PresentAgain: true}),
			handover.Event{Kind: handover.Answered, Answer: handover.AnswerConfirmed, PresentAgain: true}},
		{"restored", step(&vipmovev1.StepAnswer{State: vipmovev1.StepAnswer_STATE_RESTORED, RestoreReason: "expired", Detail: "at 14:03"}),
			handover.Event{Kind: handover.Answered, Answer: handover.AnswerRestored, Detail: "put back by the agent (expired) at 14:03"}},
		{"refused", &vipmovev1.CommandResult{Refusal: &vipmovev1.Refusal{Code: vipmovev1.Refusal_LATE, Message: "too late", NextStep: "ask again"},
			Answer: &vipmovev1.CommandResult_Step{Step: &vipmovev1.StepAnswer{State: vipmovev1.StepAnswer_STATE_REFUSED}}},
			handover.Event{Kind: handover.Answered, Answer: handover.AnswerRefused, Code: "LATE", Detail: "too late; ask again"}},
		{"refused by a newer version", &vipmovev1.CommandResult{Refusal: &vipmovev1.Refusal{Code: 99, Message: "new"}},
			handover.Event{Kind: handover.Answered, Answer: handover.AnswerRefused, Code: "99", Detail: "new"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, answerEvent(handover.Event{}, tt.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for name, value := range vipmovev1.StepAnswer_State_value {
		if _, known := answers[vipmovev1.StepAnswer_State(value)]; !known && value != 0 {
			t.Errorf("%s has no meaning here", name)
		}
	}
}
