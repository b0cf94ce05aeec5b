// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// gather scrapes once: "name{labels}" to value, and name to "type labels".
func (w *world) gather(t *testing.T) (values map[string]float64, kinds map[string]string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(w.server); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values, kinds = map[string]float64{}, map[string]string{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var names, labels []string
			for _, l := range m.GetLabel() {
				names, labels = append(names, l.GetName()), append(labels, l.GetValue())
			}
			kinds[f.GetName()] = strings.ToLower(f.GetType().String()) + " " + strings.Join(names, " ")
			values[strings.TrimSpace(f.GetName()+" "+strings.Join(labels, " "))] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values, kinds
}

func TestMetricsTellTheFleetAndItsRuns(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		before, _ := w.gather(t)
		want := map[string]float64{
			"vipmove_coordinator_observers_connected agent": 3, "vipmove_coordinator_observers_connected witness": 1,
			"vipmove_coordinator_observers_known agent": 3, "vipmove_coordinator_observers_known witness": 1,
			"vipmove_coordinator_undo_pending": 0, "vipmove_coordinator_term": 1,
			"vipmove_coordinator_requests_total succeeded": before["vipmove_coordinator_requests_total succeeded"], "vipmove_coordinator_requests_total failed": 0,
		}
		for _, s := range runStates {
			want["vipmove_coordinator_runs "+string(s)] = 0
		}
		if diff := cmp.Diff(want, before); diff != "" {
			t.Errorf("at first (-want +got):\n%s", diff)
		}
		id := w.begin(options())
		w.untilStep(id, "n2", "verified")
		during, _ := w.gather(t)
		w.agents["n2"].leave()
		w.witness.restart()
		w.witness.lose(7)
		w.watch(id)
		w.witness.leave()
		w.wait(reconnect)
		after, _ := w.gather(t)
		if during["vipmove_coordinator_undo_pending"] != 1 || during["vipmove_coordinator_runs running"] != 1 || during["vipmove_coordinator_requests_total succeeded"] <= before["vipmove_coordinator_requests_total succeeded"] {
			t.Errorf("in a run: %v", during)
		}
		if after["vipmove_coordinator_observers_connected agent"] != 2 || after["vipmove_coordinator_observers_known agent"] != 3 || after["vipmove_coordinator_observers_connected witness"] != 0 {
			t.Errorf("after n2 left: %v", after)
		}
		if after["vipmove_coordinator_runs needs-decision"] != 1 || after["vipmove_coordinator_requests_total failed"] != 7 || after["vipmove_coordinator_requests_total succeeded"] < during["vipmove_coordinator_requests_total succeeded"] {
			t.Errorf("in the end: %v", after)
		}
	})
}

func TestMetricsAreInOrderForPrometheus(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(w.server)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil || len(problems) != 0 {
			t.Errorf("%v %v", problems, err)
		}
	})
}

var metricRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([^|]*)\\| ([^|]+) \\|$")

// docs/metrics.md has every metric with its type, labels and their values, and no other.
func TestMetricsAreAsDocumented(t *testing.T) {
	content, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(content), "\n## Coordinator\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("docs/metrics.md has no section for the coordinator")
	}
	documented := map[string]string{}
	for _, m := range metricRow.FindAllStringSubmatch(section, -1) {
		documented[m[1]] = m[2] + " " + strings.TrimSpace(strings.ReplaceAll(m[3], "`", ""))
	}
	inWorld(t, 1, func(t *testing.T, w *world) {
		values, kinds := w.gather(t)
		if diff := cmp.Diff(documented, kinds); diff != "" {
			t.Errorf("(-documented +registered):\n%s", diff)
		}
		for name := range values {
			if _, label, ok := strings.Cut(name, " "); ok && !strings.Contains(section, fmt.Sprintf("`%s`", label)) {
				t.Errorf("label value %q is not documented", label)
			}
		}
	})
}

// A label comes from a closed set, whatever observers say of themselves.
func TestMetricsDoNotGrowWithTheFleet(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		few, _ := w.gather(t)
		for i := range 50 {
			w.server.fleet.Remember(fmt.Sprintf("x%d", i), vipmovev1.ObserverRole(i))
		}
		many, _ := w.gather(t)
		if len(few) != len(many) {
			t.Errorf("%d series with one agent, %d with 51 observers", len(few), len(many))
		}
	})
}
