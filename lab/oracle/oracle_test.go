// SPDX-License-Identifier: Apache-2.0

//go:build linux

package oracle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
)

const (
	drawsEnv = "VIPMOVE_ORACLE_DRAWS"
	seedEnv  = "VIPMOVE_ORACLE_SEED"
)

func fromEnv(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// worlds differ in what a draw cannot take back: one segment or two, a kernel in
// which a local route was once added by hand or not, and one with policy rules.
func worlds(t *testing.T) []*world {
	t.Helper()
	return []*world{
		newWorld(t, 1, false, false), newWorld(t, 1, true, false), newWorld(t, 1, true, true),
		newWorld(t, 2, false, false), newWorld(t, 2, true, false), newWorld(t, 2, true, true),
	}
}

func TestTheKernelAnswersAsPredicted(t *testing.T) {
	namespacetest.Require(t)
	draws, seed := fromEnv(t, drawsEnv, 500), fromEnv(t, seedEnv, rand.Uint64())
	t.Logf("%s=%d %s=%d", seedEnv, seed, drawsEnv, draws)
	all := worlds(t)
	tallies := make([]*tally, len(all))
	t.Run("worlds", func(t *testing.T) {
		for i, w := range all {
			tallies[i] = newTally()
			t.Run(w.String(), func(t *testing.T) {
				t.Parallel()
				for number := uint64(i); number < draws; number += uint64(len(all)) {
					w.play(t, seed, number, tallies[i])
				}
			})
		}
	})
	sum := newTally()
	for _, one := range tallies {
		sum.add(one)
	}
	t.Logf("%s", sum)
	if draws >= 500 && !t.Failed() {
		sum.covers(t)
	}
}

func (w *world) String() string {
	name := fmt.Sprintf("segments=%d", w.bridges)
	if w.localRoutes {
		name += ",local routes"
	}
	if w.rules {
		name += ",rules"
	}
	return name
}

// play is one draw.
func (w *world) play(t *testing.T, seed, number uint64, count *tally) {
	t.Helper()
	c, questions := newDice(seed, number).draw(w)
	o, err := w.put(t.Context(), c, questions, diagnose.WouldAnswer)
	if err != nil {
		t.Fatalf("draw %d:\n%s%v", number, c, err)
	}
	count.take(o)
	for _, j := range o.judged {
		switch {
		case j.predicted.Would == diagnose.AnswerUnknown && !o.done.unknowable(j.predicted):
			t.Errorf("draw %d: %s, although all of it can be read\n%s", number, j, o.done)
		case j.wrong():
			c, j := w.shrink(t.Context(), o.done, j, diagnose.WouldAnswer)
			t.Errorf("draw %d: %s\n%s", number, j, c)
		}
	}
}

// unknowable says whether what a prediction depends on is nowhere to be read.
func (c configuration) unknowable(a diagnose.Answer) bool {
	return strings.Contains(a.Reason, "whether a local route was ever added by hand") ||
		strings.Contains(a.Reason, "whether it ever had policy rules of its own") ||
		strings.Contains(a.Reason, "the order of its routes") && c.kernelChooses()
}

// Two things decide that no kernel tells. Where they do the prediction is unknown,
// and here is why it cannot be anything else.
func TestWhatCannotBeReadDecides(t *testing.T) {
	namespacetest.Require(t)
	fresh, customised, ruled := newWorld(t, 1, false, false), newWorld(t, 1, true, false), newWorld(t, 1, true, true)
	at := func(link, prefix string) step {
		return address{verb: "add", link: link, prefix: netip.MustParsePrefix(prefix)}
	}
	for _, tt := range []struct {
		reason string
		c      configuration
		sender string
		heard  map[*world]int
	}{
		{"whether a local route was ever added by hand", configuration{at("eth0", "192.0.2.11/24"), at("kube-ipvs0", "192.0.2.50/32")}, "192.0.2.255", map[*world]int{fresh: 1, customised: 0}},
		{"whether it ever had policy rules of its own", configuration{at("eth0", "192.0.2.11/25"), at("lo", "192.0.2.50/16")}, "192.0.2.1", map[*world]int{customised: 1, ruled: 0}},
	} {
		for w, heard := range tt.heard {
			q := question{vip: netip.MustParseAddr("192.0.2.50"), sender: netip.MustParseAddr(tt.sender), nic: "eth0"}
			o, err := w.put(t.Context(), tt.c, []question{q}, diagnose.WouldAnswer)
			check(t, err)
			if j := o.judged[0]; j.heard != heard || j.predicted.Would != diagnose.AnswerUnknown || !strings.Contains(j.predicted.Reason, tt.reason) {
				t.Errorf("%s: %s; want unknown by %q, and %d replies\n%s", w, j, tt.reason, heard, o.done)
			}
		}
	}
}

// shrink leaves out every step without which the same request still shows a
// difference.
func (w *world) shrink(ctx context.Context, c configuration, wrong judged, predict predictor) (configuration, judged) {
	for again := true; again; {
		again = false
		for i := len(c) - 1; i >= 0; i-- {
			less := slices.Delete(slices.Clone(c), i, i+1)
			o, err := w.put(ctx, less, []question{wrong.question}, predict)
			if err != nil || len(o.done) != len(less) {
				continue
			}
			for _, j := range o.judged {
				if j.hearer == wrong.hearer && j.wrong() {
					c, wrong, again = less, j, true
				}
			}
		}
	}
	return c, wrong
}
