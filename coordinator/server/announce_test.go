// SPDX-License-Identifier: Apache-2.0

package server

import (
	"strings"
	"testing"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// The witness's entry names n1, the carrier, which goes on serving: nothing moves it but the survivor's announcement.
func TestTheEndOfARunSaysWhatCachesDo(t *testing.T) {
	announce := func(w *world) *vipmovev1.PlanOptions { o := options(); o.Announce = true; return o }
	for name, c := range map[string]struct {
		given    func(w *world)
		announce bool
		code     string
		says     []string
		orders   int
	}{
		"without an announcement caches lag": {func(w *world) { w.witness.sticks(false) }, false, "CACHES_LAG", []string{"exactly one machine answers: n3", "caches lag: witness client still sends to node n1"}, 0},
		"announced, and caches follow":       {func(w *world) { w.witness.sticks(false) }, true, "", []string{"announced by n3", "every witness sends to n3"}, 1},
		"announced, and caches lag":          {func(w *world) { w.witness.sticks(true) }, true, "CACHES_LAG", []string{"announced by n3", "caches lag"}, 1},
		"refused": {func(w *world) {
			w.witness.sticks(false)
			w.agents["n3"].refuse = func(kind string) vipmovev1.Refusal_Code {
				if kind == "announce" {
					return vipmovev1.Refusal_PAUSED_ON_NODE
				}
				return vipmovev1.Refusal_NONE
			}
		}, true, "CACHES_LAG", []string{"not announced: n3 refused (PAUSED_ON_NODE)", "caches lag"}, 1},
		"not done and error": {func(w *world) { w.witness.sticks(false); w.agents["n3"].failing(always("announce", notDone)) }, true, "CACHES_LAG", []string{"not announced"}, 1},
		"done and error":     {func(w *world) { w.witness.sticks(false); w.agents["n3"].failing(always("announce", doneError)) }, true, "", []string{"not announced", "every witness sends to n3"}, 1},
		"done, no answer":    {func(w *world) { w.witness.sticks(false); w.agents["n3"].failing(always("announce", dumb)) }, true, "", []string{"it may have announced", "every witness sends to n3"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 3, func(t *testing.T, w *world) {
				c.given(w)
				o := options()
				if c.announce {
					o = announce(w)
				}
				r, _ := w.watch(w.begin(o))
				if r.GetState() != "done" || r.GetReasonCode() != c.code || w.lan.holders() != "" || r.GetVerdictAfter() != "single" {
					t.Errorf("%s %s: %s", r.GetState(), r.GetReasonCode(), r.GetReason())
				}
				for _, text := range c.says {
					if !strings.Contains(r.GetReason(), text) {
						t.Errorf("reason %q does not say %q", r.GetReason(), text)
					}
				}
				if (r.GetNextStep() != "") != (c.code != "") {
					t.Errorf("next step %q", r.GetNextStep())
				}
				for _, a := range w.agents {
					if want := map[bool]int{true: c.orders}[a.name == "n3"]; a.orders("announce") != want {
						t.Errorf("%s was told to announce %d times, want %d", a.name, a.orders("announce"), want)
					}
				}
			})
		})
	}
}
