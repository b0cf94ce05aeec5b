// SPDX-License-Identifier: Apache-2.0

package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/vipmove/vipmove/coordinator/handover"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

var (
	descConnected = prometheus.NewDesc("vipmove_coordinator_observers_connected", "Observers with an open session, by role.", []string{"role"}, nil)
	descKnown     = prometheus.NewDesc("vipmove_coordinator_observers_known", "Observers that ever had a session, by role.", []string{"role"}, nil)
	descUndo      = prometheus.NewDesc("vipmove_coordinator_undo_pending", "Nodes with a removal that is not confirmed.", nil, nil)
	descTerm      = prometheus.NewDesc("vipmove_coordinator_term", "Term that this coordinator leads with.", nil, nil)
	descRun       = prometheus.NewDesc("vipmove_coordinator_runs", "Runs in the journal, by state.", []string{"state"}, nil)
	descRequests  = prometheus.NewDesc("vipmove_coordinator_requests_total", "Requests that witnesses sent since this coordinator first heard of them, by outcome.", []string{"outcome"}, nil)
)

var runStates = []handover.RunState{handover.Planned, handover.Running, handover.Paused, handover.Aborting, handover.Done, handover.RolledBack, handover.NeedsDecision}

// Describe implements prometheus.Collector.
func (s *Server) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, ch) }

// Collect implements prometheus.Collector: everything is read at scrape time.
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	connected, known, undo := map[string]float64{"agent": 0, "witness": 0}, map[string]float64{"agent": 0, "witness": 0}, 0.0
	for _, n := range s.fleet.Nodes() {
		role := "agent"
		if n.GetRole() == vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS {
			role = "witness"
		}
		known[role]++
		if n.GetConnected() {
			connected[role]++
		}
		if n.GetPendingUndo() != nil {
			undo++
		}
	}
	for role := range known {
		gauge(descConnected, connected[role], role)
		gauge(descKnown, known[role], role)
	}
	gauge(descUndo, undo)
	gauge(descTerm, float64(s.cfg.Journal.Term()))
	runs := map[handover.RunState]float64{}
	for _, id := range s.driver.ids() {
		if v, _, ok := s.driver.view(id); ok {
			runs[v.run.State]++
		}
	}
	for _, state := range runStates {
		gauge(descRun, runs[state], string(state))
	}
	t := marks{}.since(s.fleet.Tallies(), s.now())
	ch <- prometheus.MustNewConstMetric(descRequests, prometheus.CounterValue, float64(t.sent-t.failed), "succeeded")
	ch <- prometheus.MustNewConstMetric(descRequests, prometheus.CounterValue, float64(t.failed), "failed")
}
