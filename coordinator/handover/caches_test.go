// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"strings"
	"testing"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

func TestCachesLagUntilEveryWitnessSendsToTheSurvivor(t *testing.T) {
	for _, c := range []struct {
		name      string
		neighbour string
		edit      func(*diagnose.Snapshot)
		want      diagnose.Code
		says      []string
	}{
		{"the survivor's MAC", mac(3), nil, "", []string{"every witness sends to n3"}},
		{"the survivor's MAC in capitals", strings.ToUpper(mac(3)), nil, "", nil},
		{"a cleaned node's", mac(1), nil, CachesLag, []string{"caches lag", "client", "n1", mac(1), "drain"}},
		{"nobody's", "00:1b:a9:11:22:33", nil, CachesLag, []string{"the unknown MAC 00:1b:a9:11:22:33"}},
		{"a neighbour of the VIP that shows none (I6)", "", nil, CachesLag, []string{"shows no neighbour entry"}},
		{"one of two lags", mac(3), func(s *diagnose.Snapshot) {
			s.Requests = append(s.Requests, diagnose.Requests{Witness: "router", NeighbourMAC: mac(2)})
		}, CachesLag, []string{"router", "n2"}},
		{"a witness behind a router has no entry to show", "", func(s *diagnose.Snapshot) { s.Requests[0].Witness = "far" }, "", []string{"not measured"}},
		{"no witness", "", func(s *diagnose.Snapshot) { s.Requests = nil }, "", []string{"not measured"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, s := inRun(newScene(3), Options{}, "n1", "n2", "n3")
			s.neighbour, s.edit = c.neighbour, c.edit
			got := JudgeCaches(r, s.snapshot())
			if !got.OK || got.Code != c.want {
				t.Errorf("got %+v, want code %q", got, c.want)
			}
			for _, text := range c.says {
				if !strings.Contains(got.Detail, text) {
					t.Errorf("detail %q does not say %q", got.Detail, text)
				}
			}
		})
	}
}

// announced drives a run of three whose announcement comes to this.
func announcedRun(e Event) *world {
	w := newWorld(testPlan(3, Options{Announce: true}))
	w.event(Event{Kind: Started})
	for i := 0; len(w.queue) > 0 && i < 200; i++ {
		f := w.queue[0]
		w.queue = w.queue[1:]
		if f.Kind == DoAnnounce {
			e.Kind, e.Node = Announced, f.Node
			w.event(e)
			continue
		}
		w.carryOut(f)
	}
	return w
}

func TestTheSurvivorAnnouncesAfterTheVerdictAndThenTheRunIsDone(t *testing.T) {
	for _, c := range []struct {
		name string
		e    Event
		code diagnose.Code
	}{
		{"announced", Event{OK: true, Detail: "announced by n3"}, ""},
		{"caches lag all the same", Event{OK: true, Code: CachesLag, Detail: "caches lag"}, CachesLag},
		{"a failed announcement undoes nothing and is said", Event{Detail: "not announced: n3 refused"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := announcedRun(c.e)
			if w.run.State != Done || w.run.Code != c.code || !strings.Contains(w.run.Reason, c.e.Detail) || len(w.broken) > 0 || w.run.EndedAt.IsZero() {
				t.Errorf("%s %s %q, broken %v", w.run.State, w.run.Code, w.run.Reason, w.broken)
			}
			if got := states(w.run); got != "n1=confirmed n2=confirmed n3=confirmed" {
				t.Error(got)
			}
		})
	}
}

func TestACoordinatorThatStopsWhileAnnouncingLooksAgainAndAnnouncesAgain(t *testing.T) {
	w := newWorld(testPlan(2, Options{Announce: true}))
	announcements := 0
	w.fault = func(f Effect) string {
		if f.Kind == DoAnnounce {
			if announcements++; announcements == 1 {
				return "crash"
			}
		}
		return ""
	}
	w.drive()
	if w.run.State != Done || announcements != 2 || len(w.broken) > 0 {
		t.Errorf("%s after %d announcements, broken %v", w.run.State, announcements, w.broken)
	}
}

func TestNothingIsAnnouncedWhere(t *testing.T) {
	for name, plan := range map[string]Plan{
		"it was not asked for":            testPlan(3, Options{}),
		"the survivor has no step at all": func() Plan { p := testPlan(3, Options{Announce: true}); p.Survivor = "n9"; return p }(),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(plan)
			w.fault = func(f Effect) string {
				if f.Kind == DoAnnounce {
					t.Error("announced")
				}
				return ""
			}
			w.drive()
			if w.run.State != Done || len(w.broken) > 0 {
				t.Errorf("%s, broken %v", w.run.State, w.broken)
			}
		})
	}
}

func TestAnAnnouncementBeforeTheVerdictIsAnImpossibleMove(t *testing.T) {
	w := newWorld(testPlan(2, Options{Announce: true}))
	w.event(Event{Kind: Started})
	if _, _, err := w.run.Apply(Event{Kind: Announced, Node: "n2", OK: true}); err == nil {
		t.Error("accepted")
	}
	w.event(Event{Kind: AbortAsked})
	if next, _, err := w.run.Apply(Event{Kind: Announced, Node: "n2", OK: true}); err != nil || next.State == Done {
		t.Errorf("late: %s, %v", next.State, err)
	}
}

// A journal of an earlier version has no announcement, and its verdict ended the run.
func TestAFinalVerdictWithoutAnnouncementEndsTheRunAtOnce(t *testing.T) {
	w := newWorld(testPlan(2, Options{}))
	w.drive()
	if last := w.history[len(w.history)-1]; last.Kind != FinalLooked || w.run.State != Done || w.run.Code != "" {
		t.Errorf("%s after %s", w.run.State, last.Kind)
	}
}

func TestAnnouncingIsPartOfThePlansHash(t *testing.T) {
	with, without := Make(newScene(3).snapshot(), Options{VIP: vip, Announce: true}), Make(newScene(3).snapshot(), Options{VIP: vip})
	if with.Hash == without.Hash || !contains(with.HashedLines, "announce") {
		t.Errorf("hashes %s and %s", with.Hash, without.Hash)
	}
}
