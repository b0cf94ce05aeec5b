// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/agent/wire"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

const metricsDoc = "../../docs/metrics.md"

// section is the part of docs/metrics.md under a heading.
func section(t *testing.T, heading string) string {
	t.Helper()
	b, err := os.ReadFile(metricsDoc)
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(b), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", metricsDoc, heading)
	}
	text, _, _ := strings.Cut(after, "\n## ")
	return text
}

var documentedRow = regexp.MustCompile("(?m)^\\| `(vipmove_[a-z_]+)` \\| ([a-z]+) \\|([^|]*)\\| (.+) \\|$")

func kindName(v prometheus.ValueType) string {
	if v == prometheus.CounterValue {
		return "counter"
	}
	return "gauge"
}

func TestEveryMetricIsDocumentedAndEveryDocumentedOneExists(t *testing.T) {
	documented, registered := map[string]string{}, map[string]string{}
	for _, row := range documentedRow.FindAllStringSubmatch(section(t, "Agent"), -1) {
		labels := strings.ReplaceAll(strings.TrimSpace(row[3]), "`", "")
		documented[row[1]] = fmt.Sprintf("%s [%s] %s", row[2], labels, row[4])
	}
	for _, m := range metrics {
		registered[m.name] = fmt.Sprintf("%s [%s] %s", kindName(m.kind), strings.Join(m.labels, ", "), m.help)
	}
	if diff := cmp.Diff(registered, documented); diff != "" {
		t.Errorf("%s (-registered +documented):\n%s", metricsDoc, diff)
	}
	for _, owner := range owners {
		if !strings.Contains(section(t, "Agent"), "| `"+owner+"` |") {
			t.Errorf("%s does not explain owner %q", metricsDoc, owner)
		}
	}
}

// scraped is an agent's collector without the agent running.
func scraped(t *testing.T, s *story) *Node {
	t.Helper()
	n, err := New(Config{
		Name: testNode, Version: "v0", Kernel: s.kernel, Policy: s.policy, Coordinators: []string{"unix:/nowhere"},
		Rights: func() string { return "" },
	})
	if err != nil {
		t.Fatal(err)
	}
	n.steps = s.steps
	return n
}

// gather is every series with its value.
func gather(t *testing.T, n *Node) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector{n})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := m.GetGauge().GetValue()
			if m.GetCounter() != nil {
				value = m.GetCounter().GetValue()
			}
			series[strings.Join(append([]string{f.GetName()}, labels...), " ")] = value
		}
	}
	return series
}

func TestAScrapeShowsEveryFamily(t *testing.T) {
	n := scraped(t, newStory(t))
	n.view.watch([]netip.Addr{vip})
	n.view.listen([]string{"eth0"})
	n.view.round(eth0, vip, []wire.Result{heardFrom(mac2)})
	n.watch.failed["eth1"] = "down"
	n.countRefusal(vipmovev1.Refusal_LATE)
	series := gather(t, n)
	for _, m := range metrics {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(series)), func(k string) bool { return strings.Split(k, " ")[0] == m.name }) {
			t.Errorf("no series of %s", m.name)
		}
	}
	for name, want := range map[string]float64{
		"vipmove_build_info version=v0":                               1,
		"vipmove_can_act":                                             1,
		"vipmove_session_connected":                                   0,
		"vipmove_undo_pending":                                        0,
		"vipmove_held_addresses interface=kube-ipvs0":                 45,
		"vipmove_stale_addresses interface=kube-ipvs0":                45,
		"vipmove_observer_up interface=eth1":                          0,
		"vipmove_kernel_unreadable_parts":                             0,
		"vipmove_refusals_total refusal=LATE":                         1,
		"vipmove_refusals_total refusal=STALE_TERM":                   0,
		"vipmove_vip_owner interface=eth0 owner=other vip=192.0.2.50": 1,
		"vipmove_vip_owner interface=eth0 owner=self vip=192.0.2.50":  0,
		"vipmove_vip_responders interface=eth0 vip=192.0.2.50":        1,
		"vipmove_netlink_dump_interrupted_total":                      0,
	} {
		if got, ok := series[name]; !ok || got != want {
			t.Errorf("%s = %v (there: %v), want %v", name, got, ok, want)
		}
	}
	if _, ok := series["vipmove_refusals_total refusal=NONE"]; ok {
		t.Error("NONE is counted as a refusal")
	}
}

func TestThePendingUndoIsAMetric(t *testing.T) {
	s := removedOnce(t)
	if got := gather(t, scraped(t, s)); got["vipmove_undo_pending"] != 1 || got["vipmove_undo_blocked"] != 0 || got["vipmove_held_addresses interface=kube-ipvs0"] != 44 {
		t.Errorf("series %v", got)
	}
	s.kernel.Deny(true)
	s.pass(testTTL)
	if got := gather(t, scraped(t, s)); got["vipmove_undo_pending"] != 1 || got["vipmove_undo_blocked"] != 1 {
		t.Errorf("series %v", got)
	}
}

// TestStaleIsOnlyWhatANodeCanKnow: a gap where it cannot (I6).
func TestStaleIsOnlyWhatANodeCanKnow(t *testing.T) {
	const gap = -1
	one := host.IPVS{State: host.IPVSPresent, Services: []host.IPVSService{{Address: vip, Port: 80}}}
	for name, tt := range map[string]struct {
		ipvs  host.IPVS
		proxy host.KubeProxyState
		stale float64
	}{
		"nothing behind them":             {host.IPVS{State: host.IPVSNone}, host.KubeProxyAbsent, 45},
		"one service":                     {one, host.KubeProxyAbsent, 44},
		"a service by mark hides them":    {host.IPVS{State: host.IPVSPresent, Services: []host.IPVSService{{FWMark: 1}}}, host.KubeProxyAbsent, 0},
		"Cilium serves the health port":   {host.IPVS{State: host.IPVSNone}, host.KubeProxyUnknownManager, 45},
		"kube-proxy runs":                 {host.IPVS{State: host.IPVSNone}, host.KubeProxyRunning, 0},
		"nobody knows about kube-proxy":   {host.IPVS{State: host.IPVSNone}, host.KubeProxyUnknown, gap},
		"the IPVS table cannot be read":   {host.IPVS{State: host.IPVSUnreadable}, host.KubeProxyAbsent, gap},
		"the IPVS table was not read yet": {host.IPVS{}, host.KubeProxyAbsent, gap},
	} {
		s := newStory(t)
		s.ipvs(tt.ipvs)
		s.kubeProxy(host.KubeProxy{State: tt.proxy})
		s.kernel.Hold(testDummy, host.Address{Prefix: netip.MustParsePrefix("fe80::1/64"), Scope: 253}) // CASES.md C06
		got, ok := gather(t, scraped(t, s))["vipmove_stale_addresses interface=kube-ipvs0"]
		if tt.stale == gap && ok || tt.stale != gap && (!ok || got != tt.stale) {
			t.Errorf("%s: %v (there: %v), want %v", name, got, ok, tt.stale)
		}
	}
}

func TestAKernelThatCannotBeReadLeavesAGap(t *testing.T) {
	s := newStory(t)
	s.kernel.InterruptDumps(7)
	n := scraped(t, s)
	got := gather(t, n)
	if _, ok := got["vipmove_held_addresses interface=kube-ipvs0"]; ok || got["vipmove_kernel_unreadable_parts"] != 1 || got["vipmove_netlink_dump_interrupted_total"] == 0 {
		t.Errorf("series %v", got)
	}
	if got := gather(t, n); got["vipmove_held_addresses interface=kube-ipvs0"] != 45 {
		t.Errorf("series %v after it can be read again", got)
	}
}
