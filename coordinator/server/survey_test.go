// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// survey asks and returns everything that came, the judgement apart.
func (w *world) survey(req *vipmovev1.SurveyRequest) (*vipmovev1.Judgement, []*vipmovev1.SurveyEvent, error) {
	stream, err := w.operator().Survey(w.ctx, req)
	if err != nil {
		return nil, nil, err
	}
	var rows []*vipmovev1.SurveyEvent
	var judgement *vipmovev1.Judgement
	for {
		e, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return judgement, rows, nil
		case err != nil:
			return nil, rows, err
		case judgement != nil:
			w.t.Errorf("after the judgement: %v", e)
		case e.GetJudgement() != nil:
			judgement = e.GetJudgement()
		default:
			rows = append(rows, e)
		}
	}
}

func TestASurveyHearsAllSevenAndProvesTheOwner(t *testing.T) {
	inWorld(t, 7, func(t *testing.T, w *world) {
		j, rows, err := w.survey(&vipmovev1.SurveyRequest{Vip: testVIP})
		if err != nil {
			t.Fatal(err)
		}
		var responders []string
		for _, r := range j.GetResponders() {
			responders = append(responders, r.GetNode()+" "+r.GetInterface()+" "+r.GetAnnouncer())
			if len(r.GetSeenBy()) < 2 || r.GetReason() == "" {
				t.Errorf("%v", r)
			}
		}
		want := []string{"n1 eth0 kernel", "n2 eth0 kernel", "n3 eth0 kernel", "n4 eth0 kernel", "n5 eth0 kernel", "n6 eth0 kernel", "n7 eth0 kernel+user-space"}
		if diff := cmp.Diff(want, responders); diff != "" {
			t.Errorf("responders (-want +got):\n%s", diff)
		}
		if j.GetVerdict() != "contested" || j.GetOwner() != "n7" || j.GetSegment().GetPrefix() != "192.0.2.0/24" {
			t.Errorf("verdict %s, owner %q (%s), segment %v", j.GetVerdict(), j.GetOwner(), j.GetOwnerReason(), j.GetSegment())
		}
		w.rows(t, rows)
	})
}

// rows: each row names observer, NIC and MAC, and by whom it was heard while the rounds ran.
func (w *world) rows(t *testing.T, rows []*vipmovev1.SurveyEvent) {
	t.Helper()
	heard, progress := map[string]bool{}, []string{}
	for _, e := range rows {
		h := e.GetHeard()
		if h == nil {
			progress = append(progress, e.GetProgress())
			continue
		}
		if h.GetInterface() != "eth0" || h.GetReply().GetSenderIp() != testVIP {
			t.Errorf("row %v", h)
		}
		switch h.GetKind() {
		case vipmovev1.ProbeKind_PROBE_KIND_BROADCAST:
			heard[h.GetObserver()+" "+h.GetReply().GetSenderMac()] = true
			if h.GetObserver() == "client" { // its neighbour entry, and so its requests, would follow
				t.Errorf("the witness asked everybody: %v", h)
			}
		case vipmovev1.ProbeKind_PROBE_KIND_ANNOUNCER_QUESTION:
			if h.GetReply().GetSenderMac() != w.lan.host("n7").mac {
				t.Errorf("row %v", h)
			}
		default:
			t.Errorf("row %v", h)
		}
	}
	if len(heard) != 5*6 { // five agents, each hears all but itself
		t.Errorf("%d pairs of observer and responder were shown: %v", len(heard), heard)
	}
	want := []string{"reading what the kernels hold", "asking the wire, round 1 of 1, 6 observers", "asking every responder the announcer question, round 1 of 1"}
	if diff := cmp.Diff(want, progress); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}

func TestASurveyAfterwardsHearsOne(t *testing.T) {
	inWorld(t, 7, func(t *testing.T, w *world) {
		w.watch(w.begin(options()))
		j, _, err := w.survey(&vipmovev1.SurveyRequest{Vip: testVIP, Interface: "eth0", Rounds: 2, Window: durationpb.New(2 * time.Second)})
		if err != nil || j.GetVerdict() != "single" || j.GetOwner() != "n7" || len(j.GetResponders()) != 1 || j.GetResponders()[0].GetAnnouncer() != "user-space" {
			t.Errorf("%v %v", j, err)
		}
	})
}

// Observers that disagree are asked again, up to three times.
func TestASurveyThatDisagreesAsksAgain(t *testing.T) {
	rounds := func(w *world) int {
		r, err := w.operator().TakeSnapshot(w.ctx, &vipmovev1.TakeSnapshotRequest{Survey: &vipmovev1.SurveyRequest{Vip: testVIP}})
		if err != nil {
			w.t.Fatal(err)
		}
		most := uint32(0)
		for _, x := range r.GetSnapshot().GetRounds() {
			if x.GetKind() == vipmovev1.ProbeKind_PROBE_KIND_BROADCAST {
				most = max(most, x.GetNumber())
			}
		}
		return int(most)
	}
	inWorld(t, 3, func(t *testing.T, w *world) {
		if got := rounds(w); got != 1 {
			t.Errorf("%d rounds where all agree", got)
		}
		deaf := w.lan.host("n3").mac // for n2 alone
		w.agents["n2"].answering(func(c *vipmovev1.Command) *vipmovev1.CommandResult {
			p := c.GetProbe()
			if p == nil {
				return nil
			}
			list := w.lan.probe("n2", p)
			for _, r := range list {
				var kept []*vipmovev1.Reply
				for _, reply := range r.GetReplies() {
					if reply.GetSenderMac() != deaf {
						kept = append(kept, reply)
					}
				}
				r.Replies = kept
			}
			return &vipmovev1.CommandResult{Answer: &vipmovev1.CommandResult_Probe{Probe: &vipmovev1.ProbeAnswer{Rounds: list}}}
		})
		if got := rounds(w); got != 3 {
			t.Errorf("%d rounds where observers disagree", got)
		}
		if j, _, err := w.survey(&vipmovev1.SurveyRequest{Vip: testVIP}); err != nil || j.GetVerdict() != "split" {
			t.Errorf("%s %v", j.GetVerdict(), err)
		}
	})
}

func TestASnapshotHoldsAllThatAJudgementReads(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		r, err := w.operator().TakeSnapshot(w.ctx, &vipmovev1.TakeSnapshotRequest{Survey: &vipmovev1.SurveyRequest{Vip: testVIP, Rounds: 1}})
		if err != nil {
			t.Fatal(err)
		}
		s := r.GetSnapshot()
		if s.GetSchemaVersion() != snapshot.SchemaVersion || s.GetVip() != testVIP || s.GetTakenAt() == nil || len(s.GetRequests()) != 1 || s.GetRequests()[0].GetWitness() != "client" {
			t.Errorf("%v %v %v %v", s.GetSchemaVersion(), s.GetVip(), s.GetTakenAt(), s.GetRequests())
		}
		for _, n := range s.GetNodes() {
			if n.GetKernel() == nil || !n.GetConnected() {
				t.Errorf("node %v", n)
			}
		}
		var captures []string
		for _, o := range s.GetOutgoing() {
			captures = append(captures, o.GetNode()+" "+o.GetInterface())
		}
		if diff := cmp.Diff([]string{"n1 eth0", "n2 eth0", "n3 eth0"}, captures); diff != "" { // a witness changes and captures nothing
			t.Errorf("captures (-want +got):\n%s", diff)
		}
		judged, err := snapshot.FromProto(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := diagnose.Judge(judged); got.Verdict != diagnose.VerdictContested || got.Owner != "n3" {
			t.Errorf("offline it is %s of %s", got.Verdict, got.Owner)
		}
	})
}

// What an observer did not do or say is unknown, with its reason; it never counts as silence (I6).
func TestAnObserverThatFailsIsNoSilence(t *testing.T) {
	tests := []struct {
		name, kind string
		how        fault
		says       string
	}{
		{"did not probe", "probe", notDone, "the fake did not do it"},
		{"probed and lost the answer", "probe", dumb, "the answer was lost"},
		{"session ended", "probe", cutAfter, "its session ended"},
		{"did not capture", "capture", notDone, "the fake did not do it"},
		{"lost its capture", "capture", deaf, "the answer was lost"},
		{"could not read", "read_kernel", notDone, "reading the kernel's state: the fake did not do it"},
		{"did not read in time", "read_kernel", dumb, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, 3, func(t *testing.T, w *world) {
				w.agents["n1"].failing(once(tt.kind, 1, tt.how))
				r, err := w.operator().TakeSnapshot(w.ctx, &vipmovev1.TakeSnapshotRequest{Survey: &vipmovev1.SurveyRequest{Vip: testVIP, Rounds: 1}})
				if err != nil {
					t.Fatal(err)
				}
				got := failureOf(r.GetSnapshot(), "n1", tt.kind)
				if tt.says == "" && got != "no kernel" || !strings.Contains(got, tt.says) {
					t.Errorf("n1: %q, want %q", got, tt.says)
				}
			})
		})
	}
	t.Run("answers about fewer requests than it was asked", func(t *testing.T) {
		inWorld(t, 3, func(t *testing.T, w *world) {
			w.agents["n1"].answering(func(c *vipmovev1.Command) *vipmovev1.CommandResult {
				if c.GetProbe() == nil {
					return nil
				}
				return &vipmovev1.CommandResult{Answer: &vipmovev1.CommandResult_Probe{Probe: &vipmovev1.ProbeAnswer{}}}
			})
			r, err := w.operator().TakeSnapshot(w.ctx, &vipmovev1.TakeSnapshotRequest{Survey: &vipmovev1.SurveyRequest{Vip: testVIP, Rounds: 1}})
			if got := failureOf(r.GetSnapshot(), "n1", "probe"); err != nil || !strings.Contains(got, "it answered about 0 requests of 1") {
				t.Errorf("n1: %q %v", got, err)
			}
		})
	})
}

func failureOf(s *vipmovev1.Snapshot, node, kind string) string {
	switch kind {
	case "probe":
		for _, r := range s.GetRounds() {
			if r.GetObserver() == node {
				return fmt.Sprintf("sent %v: %s", r.GetSent(), r.GetSendError())
			}
		}
	case "capture":
		for _, o := range s.GetOutgoing() {
			if o.GetNode() == node {
				return fmt.Sprintf("captured %v: %s", o.GetCaptured(), o.GetError())
			}
		}
	case "read_kernel":
		for _, n := range s.GetNodes() {
			if n.GetName() == node && n.GetKernel() == nil {
				return "no kernel"
			} else if n.GetName() == node {
				return strings.Join(n.GetKernel().GetIncomplete(), "; ")
			}
		}
	}
	return "nothing"
}

func TestBadInputIsRefusedWithoutALook(t *testing.T) {
	tests := []struct {
		name string
		req  *vipmovev1.SurveyRequest
		want string
	}{
		{"no address", &vipmovev1.SurveyRequest{}, "no IP address"},
		{"a prefix", &vipmovev1.SurveyRequest{Vip: "192.0.2.50/32"}, "is a prefix"},
		{"IPv6", &vipmovev1.SurveyRequest{Vip: "2001:db8::50"}, "is IPv6"},
		{"too many rounds", &vipmovev1.SurveyRequest{Vip: testVIP, Rounds: 11}, "11 rounds are too many, at most 10"},
		{"a window that never ends", &vipmovev1.SurveyRequest{Vip: testVIP, Window: durationpb.New(time.Hour)}, "a window of 1h0m0s: give a time up to 30s"},
		{"a window before its beginning", &vipmovev1.SurveyRequest{Vip: testVIP, Window: durationpb.New(-time.Second)}, "a window of -1s"},
	}
	inWorld(t, 2, func(t *testing.T, w *world) {
		for _, tt := range tests {
			_, _, err := w.survey(tt.req)
			refused(t, err, codes.InvalidArgument, tt.want)
			_, err = w.operator().TakeSnapshot(w.ctx, &vipmovev1.TakeSnapshotRequest{Survey: tt.req})
			refused(t, err, codes.InvalidArgument, tt.want)
		}
		_, err := w.operator().MakePlan(w.ctx, &vipmovev1.MakePlanRequest{Options: &vipmovev1.PlanOptions{Vip: "::ffff:192.0.2.50"}})
		refused(t, err, codes.InvalidArgument, "give it as 192.0.2.50")
		if n := w.lan.probes(); n != 0 {
			t.Errorf("the wire was asked %d times", n)
		}
		r, err := w.operator().ListNodes(w.ctx, &vipmovev1.ListNodesRequest{})
		if err != nil || len(r.GetNodes()) != 3 || len(r.GetRequests()) != 1 {
			t.Errorf("nodes %v %v", r, err)
		}
	})
}

// An address that is a node's own, or on no segment, is looked at and refused by the plan.
func TestAnAddressThatIsNoVIPIsNotPlannedFor(t *testing.T) {
	for vip, code := range map[string]string{"192.0.2.11": "VIP_IS_NODE_ADDRESS", "198.51.100.50": "NO_SEGMENT"} {
		t.Run(vip, func(t *testing.T) {
			inWorld(t, 3, func(t *testing.T, w *world) {
				o := &vipmovev1.PlanOptions{Vip: vip}
				p := w.plan(o)
				_, err := w.operator().StartRun(w.ctx, &vipmovev1.StartRunRequest{Options: o, PlanHash: p.GetHash()})
				refused(t, err, codes.FailedPrecondition, code, "nothing was changed")
				w.unchanged(t)
			})
		})
	}
}
