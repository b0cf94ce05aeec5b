// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"testing"
	"time"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

func good(s scene) Look {
	return Look{Snapshot: s.snapshot(), Sent: 100, Measured: true, ThroughSent: 3, ThroughSucceeded: 3}
}

func TestBaselineLetsAStepBeginOnlyOnEvidence(t *testing.T) { // I1, I6
	for _, c := range []struct {
		name string
		node string
		edit func(*scene, *Look, *Run)
		want diagnose.Code
	}{
		{"all is as planned", "n1", nil, ""},
		{"the survivor, when all others are clean", "n3", func(s *scene, _ *Look, r *Run) {
			s.clean["n1"], s.clean["n2"] = true, true
			r.Steps[0].State, r.Steps[1].State = Confirmed, Confirmed
		}, ""},
		{"the node was rebooted", "n1", func(s *scene, _ *Look, _ *Run) {
			s.edit = func(x *diagnose.Snapshot) { x.Nodes[0].Kernel.BootID = "other" }
		}, WorldChanged},
		{"the address is gone already", "n1", func(s *scene, _ *Look, _ *Run) { s.clean["n1"] = true }, WorldChanged},
		{"the kernel was read in part", "n1", func(s *scene, _ *Look, _ *Run) {
			s.edit = func(x *diagnose.Snapshot) { x.Nodes[0].Kernel.Incomplete = []string{"dump interrupted"} }
		}, EvidenceUnknown},
		{"the node does not answer although it should", "n1", func(s *scene, _ *Look, _ *Run) {
			s.edit = func(x *diagnose.Snapshot) {
				for i := range x.Rounds {
					var kept []diagnose.Reply
					for _, p := range x.Rounds[i].Replies {
						if p.SenderMAC != mac(1) {
							kept = append(kept, p)
						}
					}
					x.Rounds[i].Replies = kept
				}
			}
		}, EvidenceUnknown},
		{"the announcer stopped", "n1", func(s *scene, _ *Look, _ *Run) { s.announcer = "" }, LastResponder},
		{"the announcer moved", "n1", func(s *scene, _ *Look, _ *Run) { s.announcer = "n2" }, SurvivorMoved},
		{"a foreign machine answers", "n1", func(s *scene, _ *Look, _ *Run) {
			s.edit = func(x *diagnose.Snapshot) {
				for i := range x.Rounds {
					x.Rounds[i].Replies = append(x.Rounds[i].Replies, diagnose.Reply{SenderMAC: "00:1b:a9:11:22:33", EthSource: "00:1b:a9:11:22:33", SenderIP: vip})
				}
			}
		}, diagnose.ForeignResponder},
		{"a confirmed node has it again", "n2", func(s *scene, _ *Look, r *Run) { r.Steps[0].State = Confirmed }, AddressCameBack},
		{"requests failed", "n1", func(_ *scene, l *Look, _ *Run) { l.Failed = 1 }, RequestBudget},
		{"requests hang", "n1", func(_ *scene, l *Look, _ *Run) { l.OpenGap = 3 * time.Second }, RequestBudget},
		{"the witness fell silent", "n1", func(_ *scene, l *Look, _ *Run) { l.Measured = false }, EvidenceUnknown},
		{"the node does not serve", "n1", func(_ *scene, l *Look, _ *Run) { l.ThroughSucceeded = 2 }, NodeDoesNotServe},
		{"nobody observes", "n1", func(s *scene, _ *Look, _ *Run) {
			s.edit = func(x *diagnose.Snapshot) { x.Rounds = nil }
		}, EvidenceUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(3)
			r, s := inRun(s, Options{})
			l := Look{}
			if c.edit != nil {
				c.edit(&s, &l, &r)
			}
			base := good(s)
			if l.Failed != 0 {
				base.Failed = l.Failed
			}
			base.OpenGap = l.OpenGap
			if c.name == "the witness fell silent" {
				base.Measured = false
			}
			if l.ThroughSucceeded != 0 {
				base.ThroughSucceeded = l.ThroughSucceeded
			}
			got := JudgeBaseline(r, c.node, base)
			if got.OK != (c.want == "") || got.Code != c.want || !got.OK && got.Detail == "" {
				t.Errorf("got %+v, want code %q", got, c.want)
			}
		})
	}
}

func TestAStepIsVerifiedByListingWireAndRequests(t *testing.T) {
	for _, c := range []struct {
		name  string
		node  string
		clean []string
		edit  func(*scene, *Look)
		want  diagnose.Code
	}{
		{"gone and silent", "n1", []string{"n1"}, nil, ""},
		{"the survivor, one reply fewer", "n3", []string{"n1", "n2", "n3"}, nil, ""},
		{"listed again", "n1", nil, nil, AddressCameBack},
		{"gone from the listing and still answering", "n1", []string{"n1"}, func(s *scene, _ *Look) {
			s.edit = func(x *diagnose.Snapshot) {
				for i := range x.Rounds {
					if x.Rounds[i].Kind == diagnose.Broadcast && x.Rounds[i].Observer != "n1" {
						x.Rounds[i].Replies = append(x.Rounds[i].Replies, diagnose.Reply{SenderMAC: mac(1), EthSource: mac(1), SenderIP: vip})
					}
				}
			}
		}, StillAnswers},
		{"a local route is left", "n1", []string{"n1"}, func(s *scene, _ *Look) {
			s.edit = func(x *diagnose.Snapshot) {
				k := x.Nodes[0].Kernel
				k.Routes = append(k.Routes, diagnose.Route{Prefix: vip32, Type: "local", Table: 255, Link: "kube-ipvs0", LinkIndex: 3})
			}
		}, AddressCameBack},
		{"the node cannot be read any more", "n1", []string{"n1"}, func(s *scene, _ *Look) {
			s.edit = func(x *diagnose.Snapshot) { x.Nodes[0].Kernel = nil }
		}, EvidenceUnknown},
		{"the survivor fell silent", "n1", []string{"n1"}, func(s *scene, _ *Look) { s.announcer = ""; s.clean["n3"] = true }, LastResponder},
		{"it serves only while it holds the address", "n1", []string{"n1"}, func(_ *scene, l *Look) { l.ThroughSucceeded = 0 }, NodeDoesNotServe},
		{"a request failed", "n1", []string{"n1"}, func(_ *scene, l *Look) { l.Failed = 1 }, RequestBudget},
		{"only one observer is left that hears", "n1", []string{"n1"}, func(s *scene, _ *Look) {
			s.edit = func(x *diagnose.Snapshot) {
				for i := range x.Rounds {
					if o := x.Rounds[i].Observer; o != "n2" {
						x.Rounds[i].Sent, x.Rounds[i].SendError, x.Rounds[i].Replies, x.Rounds[i].Heard = false, "network is down", nil, nil
					}
				}
			}
		}, EvidenceUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, s := inRun(newScene(3), Options{})
			for _, n := range c.clean {
				s.clean[n] = true
			}
			l := good(s)
			if c.edit != nil {
				c.edit(&s, &l)
			}
			l.Snapshot = s.snapshot()
			got := JudgeVerified(r, c.node, l)
			if got.OK != (c.want == "") || got.Code != c.want {
				t.Errorf("got %+v, want code %q", got, c.want)
			}
		})
	}
}

func TestTheFinalVerdictIsTheSurvivorAlone(t *testing.T) {
	all := []string{"n1", "n2", "n3"}
	for _, c := range []struct {
		name  string
		clean []string
		edit  func(*scene, *Look)
		want  diagnose.Code
	}{
		{"only the survivor answers", all, nil, ""},
		{"another node still answers", all, func(s *scene, _ *Look) { delete(s.clean, "n2") }, VerdictNotSingle},
		{"nobody answers", all, func(s *scene, _ *Look) { s.announcer = "" }, VerdictNotSingle},
		{"the only one that answers is another", all, func(s *scene, _ *Look) { s.announcer = "n1" }, SurvivorMoved},
		{"requests stopped", all, func(_ *scene, l *Look) { l.OpenGap = time.Minute }, RequestBudget},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, s := inRun(newScene(3), Options{}, c.clean...)
			for i := range r.Steps {
				r.Steps[i].State = Pending // what the plan's steps say is not under test here
			}
			l := good(s)
			if c.edit != nil {
				c.edit(&s, &l)
			}
			l.Snapshot = s.snapshot()
			if got := JudgeFinal(r, l); got.OK != (c.want == "") || got.Code != c.want {
				t.Errorf("got %+v, want code %q", got, c.want)
			}
		})
	}
}
