// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"net/netip"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/handover"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func TestPlanToProtoSaysAllThatThePlanSays(t *testing.T) {
	at := time.Date(2026, 11, 30, 14, 3, 7, 0, time.UTC)
	got := snapshot.PlanToProto(handover.Plan{
		Options: handover.Options{VIP: netip.MustParseAddr("192.0.2.50"), Interface: "eth0", Canary: "n1", Owner: "n7", Without: []string{"n6"},
			Overrides: []diagnose.Code{diagnose.ManagerRunning, diagnose.LiveAddress}, MaxParallel: 2, TTL: 30 * time.Second, Dwell: 2 * time.Second,
			CanarySoak: 5 * time.Second, MaxFailed: 3, NoWitness: true},
		Report: diagnose.Report{VIP: netip.MustParseAddr("192.0.2.50"), Verdict: diagnose.VerdictContested, Findings: []diagnose.Finding{
			{Code: diagnose.ManagerRunning, Severity: diagnose.Refuse}, {Code: diagnose.LiveAddress, Severity: diagnose.Refuse}, {Code: diagnose.ManagerRunning, Severity: diagnose.Warn}}},
		Canary: "n1", CanaryReason: "first", Survivor: "n7", SurvivorReason: "last", LeftAlone: map[string]int{"n1": 44},
		Steps: []handover.PlannedStep{{Role: handover.RoleCanary, Reason: "why", Entry: handover.Entry{Node: "n1", State: diagnose.HolderStale,
			Address: diagnose.Address{Link: "kube-ipvs0", LinkIndex: 3, Prefix: netip.MustParsePrefix("192.0.2.50/32")}}}},
		Preconditions: []handover.Precondition{{Code: diagnose.ManagerRunning, Name: "overridden", Met: true, Detail: "recorded"},
			{Code: diagnose.LiveAddress, Name: "live", Detail: "never"}},
		HashedLines: []string{"vip 192.0.2.50"}, Hash: "3f1c",
	}, at)
	var want vipmovev1.Plan
	if err := protojson.Unmarshal([]byte(`{"hash": "3f1c", "options": {"vip": "192.0.2.50", "interface": "eth0", "canary": "n1", "owner": "n7", "without": ["n6"],
		"overrides": ["MANAGER_RUNNING", "LIVE_ADDRESS"], "maxParallel": 2, "ttl": "30s", "dwell": "2s", "canarySoak": "5s", "maxFailed": 3, "noWitness": true},
		"judgement": {"vip": "192.0.2.50", "segment": {}, "verdict": "contested", "at": "2026-11-30T14:03:07Z", "findings": [
			{"code": "MANAGER_RUNNING", "severity": "refuse", "overridden": true}, {"code": "LIVE_ADDRESS", "severity": "refuse"}, {"code": "MANAGER_RUNNING", "severity": "warn"}]},
		"canary": "n1", "canaryReason": "first", "survivor": "n7", "survivorReason": "last", "leftAlone": {"n1": 44},
		"steps": [{"node": "n1", "role": "canary", "reason": "why", "state": "stale", "address": {"link": "kube-ipvs0", "linkIndex": 3, "prefix": "192.0.2.50/32"}}],
		"preconditions": [{"name": "overridden", "met": true, "detail": "recorded", "code": "MANAGER_RUNNING"}, {"name": "live", "detail": "never", "code": "LIVE_ADDRESS"}],
		"hashedLines": ["vip 192.0.2.50"]}`), &want); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(&want, got) {
		t.Errorf("plan %s", protojson.Format(got))
	}
}
