// SPDX-License-Identifier: Apache-2.0

package server

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// remains lists node=what for every responder that was muted.
func remains(j *vipmovev1.Judgement) string {
	var out []string
	for _, r := range j.GetResponders() {
		if r.GetMuted() != "" {
			out = append(out, r.GetNode()+"="+r.GetMuted())
		}
	}
	return strings.Join(out, " ")
}

// An announcer that checks senders is silent to the announcer question: only a mute shows it.
func TestAMuteShowsWhoRemainsAndLeavesNobodyMute(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		w.lan.change(func() { w.lan.picky = true })
		before, _, err := w.survey(&vipmovev1.SurveyRequest{Vip: testVIP})
		if err != nil || before.GetOwner() != "" || remains(before) != "" {
			t.Errorf("without a mute: owner %q, %s, %v", before.GetOwner(), remains(before), err)
		}
		begun := time.Now()
		j, _, err := w.survey(&vipmovev1.SurveyRequest{Vip: testVIP, Mute: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := remains(j); got != "n1=silent n2=silent n3=silent n4=answers" || j.GetOwner() != "n4" || j.GetVerdict() != "contested" {
			t.Errorf("verdict %s, owner %q (%s), %s", j.GetVerdict(), j.GetOwner(), j.GetOwnerReason(), got)
		}
		if took := time.Since(begun); took > 6*time.Second {
			t.Errorf("it took %s", took)
		}
		for _, name := range []string{"n1", "n2", "n3", "n4"} {
			if w.agents[name].orders("mute") != 2 || time.Now().Before(w.lan.host(name).muteUntil) {
				t.Errorf("%s: %d orders, mute until %s", name, w.agents[name].orders("mute"), w.lan.host(name).muteUntil)
			}
		}
		if w.witness.orders("mute") != 0 {
			t.Error("the witness was ordered to be mute")
		}
	})
}

// Whatever goes wrong with one mute makes that one responder unknown, and nothing else (I6).
func TestAMuteThatWentWrongProvesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		given func(w *world, n1 *fakeAgent)
		want  string
		says  string
	}{
		"refused": {func(_ *world, n1 *fakeAgent) {
			n1.refuse = func(string) vipmovev1.Refusal_Code { return vipmovev1.Refusal_MUTE_UNSUPPORTED }
		}, "n1=unknown", "MUTE_UNSUPPORTED"},
		"not done and error":        {func(_ *world, n1 *fakeAgent) { n1.failing(always("mute", notDone)) }, "n1=unknown", "did not do it"},
		"done and error":            {func(_ *world, n1 *fakeAgent) { n1.failing(always("mute", doneError)) }, "n1=unknown", "lost the answer"},
		"the lift's answer is lost": {func(_ *world, n1 *fakeAgent) { n1.failing(once("mute", 2, dumb)) }, "n1=unknown", "ended before"},
		"nobody hears of it":        {func(_ *world, n1 *fakeAgent) { n1.failing(always("mute", deaf)) }, "n1=unknown", "waiting for the answer"},
		"it ended in between": {func(w *world, n1 *fakeAgent) {
			n1.answering(func(c *vipmovev1.Command) *vipmovev1.CommandResult {
				if c.GetMute().GetDuration().AsDuration() == 0 && c.GetMute() != nil {
					w.lan.change(func() { w.lan.hosts["n1"].muteUntil = time.Time{} })
					return &vipmovev1.CommandResult{Answer: &vipmovev1.CommandResult_Mute{Mute: &vipmovev1.MuteAnswer{}}}
				}
				return nil
			})
		}, "n1=unknown", "ended before"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 3, func(t *testing.T, w *world) {
				c.given(w, w.agents["n1"])
				j, _, err := w.survey(&vipmovev1.SurveyRequest{Vip: testVIP, Mute: true})
				if err != nil || remains(j) != c.want+" n2=silent n3=answers" || !strings.Contains(j.GetResponders()[0].GetMutedReason(), c.says) {
					t.Errorf("%s (%s), %v", remains(j), j.GetResponders()[0].GetMutedReason(), err)
				}
				if j.GetOwner() != "n3" { // by the announcer question, as ever
					t.Errorf("owner %q: %s", j.GetOwner(), j.GetOwnerReason())
				}
			})
		})
	}
}

func TestNothingIsMutedBesideARun(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		id := w.begin(options())
		_, _, err := w.survey(&vipmovev1.SurveyRequest{Vip: testVIP, Mute: true})
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), id) {
			t.Errorf("%v", err)
		}
		if r, _ := w.watch(id); r.GetState() != "done" {
			t.Errorf("%s %s", r.GetState(), r.GetReason())
		}
		for _, a := range w.agents {
			if a.orders("mute") > 0 {
				t.Errorf("%s was muted", a.name)
			}
		}
	})
}
