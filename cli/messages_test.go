// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// The story of docs/design.md section 1: seven nodes answer, n4's announcer is the survivor.

const testVIP = "192.0.2.50"

var t0 = time.Date(2026, 5, 4, 14, 3, 7, 211e6, time.UTC)

func at(after time.Duration) *timestamppb.Timestamp { return timestamppb.New(t0.Add(after)) }

func mac(i int) string { return fmt.Sprintf("02:00:00:00:00:%02d", i) }

func node(i int) string { return fmt.Sprintf("n%d", i) }

func staleAddress() *vipmovev1.Address {
	return &vipmovev1.Address{Link: "kube-ipvs0", LinkIndex: 7, Prefix: testVIP + "/32"}
}

// mutedContested is contested with `--mute`: one goes on, one could not be tried.
func mutedContested() *vipmovev1.Judgement {
	j := contested()
	for i, r := range j.GetResponders() {
		r.Muted, r.Reason = "silent", r.GetReason()+"; silent with its kernel mute: nothing but the kernel was heard"
		switch i {
		case 1:
			r.Muted, r.Reason = "unknown", contested().GetResponders()[i].GetReason()+"; what remains with its kernel mute is not known: n2 refused (MUTE_UNSUPPORTED)"
		case 3:
			r.Muted, r.Reason = "answers", contested().GetResponders()[i].GetReason()+"; goes on answering with its kernel mute (heard by n1 and n2)"
		}
	}
	return j
}

// contested is who answers before the run, with one observer that hears nothing.
func contested() *vipmovev1.Judgement {
	j := &vipmovev1.Judgement{
		Vip: testVIP, Verdict: "contested", Owner: "n4", OwnerReason: "its announcer answers the announcer question", At: at(0),
		Segment: &vipmovev1.Segment{Prefix: "192.0.2.0/24", Reason: "subnet match"},
		Findings: []*vipmovev1.Finding{
			{
				Code: "STALE_ADDRESS", Severity: "warn", Nodes: []string{"n1", "n2", "n3"}, Subject: "192.0.2.50/32 on kube-ipvs0",
				Message: "held by the kernel with nothing behind it", Evidence: []string{"no IPVS service", "kube-proxy does not run"},
				NextStep: "plan its removal: vipmove plan 192.0.2.50",
			},
			{Code: "UNKNOWN_MANAGER", Severity: "refuse", Subject: "n2", Nodes: []string{"n2"}, Message: "10256 answers", Overridden: true},
		},
	}
	for i := 1; i <= 7; i++ {
		r := &vipmovev1.Responder{
			Node: node(i), Interface: "eth0", Mac: mac(i), Announcer: "kernel", RepliesPerRequest: 1,
			Reason: "stale /32 on kube-ipvs0, arp_ignore 0 on eth0",
		}
		o := &vipmovev1.ObserverView{
			Observer: node(i), Role: vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT, Interface: "eth0", State: "hears", Rounds: 1,
			Replies: map[string]uint32{},
		}
		for k := 1; k <= 7; k++ {
			if k != i && k != 7 {
				r.SeenBy = append(r.SeenBy, node(k))
			}
			if k != i {
				o.Replies[mac(k)] = 1
			}
		}
		r.SeenBy = append(r.SeenBy, "client")
		if i == 4 {
			r.Announcer, r.RepliesPerRequest, r.AnswersQuestion = "kernel+user-space", 2, true
			r.Reason += ", and an announcer in user space"
		}
		if i == 7 {
			o.State, o.Detail, o.Replies = "blind", "heard no other observer's request", nil
		}
		j.Responders, j.Observers = append(j.Responders, r), append(j.Observers, o)
		j.Holders = append(j.Holders, &vipmovev1.Holder{Node: node(i), Address: staleAddress(), State: "stale", Reason: "no IPVS service, no manager"})
	}
	client := &vipmovev1.ObserverView{
		Observer: "client", Role: vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS, Interface: "eth0", State: "hears", Rounds: 1, Replies: map[string]uint32{},
	}
	for i := 1; i <= 7; i++ {
		client.Replies[mac(i)] = 1
	}
	client.Replies[mac(4)] = 2
	j.Observers = append(j.Observers, client)
	return j
}

func single() *vipmovev1.Judgement {
	return &vipmovev1.Judgement{
		Vip: testVIP, Verdict: "single", Owner: "n4", OwnerReason: "its announcer answers the announcer question",
		Segment: &vipmovev1.Segment{Prefix: "192.0.2.0/24", Reason: "subnet match"},
		Responders: []*vipmovev1.Responder{{
			Node: "n4", Interface: "eth0", Mac: mac(4), Announcer: "user-space", RepliesPerRequest: 1, SeenBy: []string{"n1", "client"}, Reason: "answers, the kernel would not",
		}},
	}
}

func runnablePlan() *vipmovev1.Plan {
	p := &vipmovev1.Plan{
		Hash: "3f1c9e", Runnable: true, Judgement: contested(),
		Options: &vipmovev1.PlanOptions{
			Vip: testVIP, MaxParallel: 1, Ttl: durationpb.New(30 * time.Second), Dwell: durationpb.New(2 * time.Second), Overrides: []string{"UNKNOWN_MANAGER"},
		},
		Canary: "n1", CanaryReason: "neither carrier nor survivor, heard by 6 others",
		Survivor: "n4", SurvivorReason: "its announcer answers the announcer question",
		LeftAlone:     map[string]uint32{},
		Preconditions: []*vipmovev1.Precondition{{Name: "two observers", Met: true, Detail: "n2, n3, client"}, {Name: "a witness measures requests", Met: true}},
	}
	p.Judgement.Findings = nil
	for i, n := range []int{1, 2, 3, 5, 6, 7, 4} {
		role, reason := "idle", "no frames for the VIP land here"
		switch {
		case i == 0:
			role, reason = "canary", "first"
		case n == 4:
			role, reason = "survivor", "last"
		}
		p.Steps = append(p.Steps, &vipmovev1.PlanStep{Node: node(n), Address: staleAddress(), State: "stale", Role: role, Reason: reason})
		p.LeftAlone[node(n)] = 44
	}
	p.LeftAlone["n7"] = 45
	return p
}

func refusedPlan() *vipmovev1.Plan {
	p := runnablePlan()
	p.Runnable = false
	p.Survivor, p.SurvivorReason = "", "nobody answers the announcer question"
	p.Preconditions[1] = &vipmovev1.Precondition{Name: "something else answers after the last step", Detail: "no announcer runs; start it, or name it with --owner", Code: "NO_ANNOUNCER"}
	return p
}

// runAt is the run after that many confirmed steps, the next one applied.
func runAt(confirmed int) *vipmovev1.Run {
	r := &vipmovev1.Run{
		RunId: "R7", Vip: testVIP, PlanHash: "3f1c9e", State: "running", Canary: "n1", Survivor: "n4", Changed: true, StartedAt: at(0),
		StartedBy: "operator test", VerdictBefore: "contested", RequestsSent: uint64(200 * (confirmed + 1)), LongestGap: durationpb.New(12 * time.Millisecond),
		Doing: "dwelling", Revision: uint64(confirmed + 1),
	}
	for i, n := range []int{1, 2, 3, 5, 6, 7, 4} {
		s := &vipmovev1.RunStep{Node: node(n), State: "pending", Role: "idle", Address: staleAddress()}
		start := time.Duration(i) * 4 * time.Second
		switch {
		case i < confirmed:
			s.State, s.RemovedAt, s.VerifiedAt, s.ConfirmedAt = "confirmed", at(start+time.Second), at(start+2*time.Second), at(start+4*time.Second)
			s.Detail = "silent to 6 observers"
		case i == confirmed:
			s.State, s.RemovedAt = "applied", at(start+time.Second)
		}
		r.Steps = append(r.Steps, s)
	}
	r.Steps[0].Role, r.Steps[6].Role = "canary", "survivor"
	return r
}

func doneRun() *vipmovev1.Run {
	r := runAt(7)
	r.State, r.Doing, r.VerdictAfter, r.EndedAt, r.After = "done", "", "single", at(30*time.Second), single()
	return r
}

// laggingRun is done, and a client still sends to a cleaned node.
func laggingRun() *vipmovev1.Run {
	r := doneRun()
	r.Reason, r.ReasonCode = "exactly one machine answers: n4; caches lag: witness client still sends to node n2 (02:00:00:00:00:02); do not drain a node that still carries before they have followed", "CACHES_LAG"
	r.NextStep = "before a node is drained, look where clients and routers still send"
	return r
}

func rolledBackRun() *vipmovev1.Run {
	r := runAt(0)
	r.State, r.Doing, r.EndedAt = "rolled-back", "", at(5*time.Second)
	r.Reason, r.ReasonCode, r.NextStep = "requests failed after n1's step", "REQUESTS_FAILED", "look at what serves the VIP on n1"
	r.Steps[0].State, r.Steps[0].Detail = "restored", "put back by order"
	r.RequestsFailed = 3
	return r
}
