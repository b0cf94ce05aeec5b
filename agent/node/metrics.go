// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vipmove/vipmove/agent/host"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// scrapeTime bounds how long a scrape waits for the kernel.
const scrapeTime = 5 * time.Second

// metric is one family, as docs/metrics.md describes it.
type metric struct {
	name   string
	kind   prometheus.ValueType
	labels []string
	help   string
}

// The families. Every label is from a closed set: watched VIPs, NICs that are
// listened on, allowed links, the values of owners, the codes of Refusal.
var (
	vipOwner        = metric{"vipmove_vip_owner", prometheus.GaugeValue, []string{"vip", "interface", "owner"}, "1 for who answers ARP for the VIP as this node sees it, else 0."}
	vipResponders   = metric{"vipmove_vip_responders", prometheus.GaugeValue, []string{"vip", "interface"}, "Other stations that answered this node's last whole probe round for the VIP."}
	heldAddresses   = metric{"vipmove_held_addresses", prometheus.GaugeValue, []string{"interface"}, "Host addresses on an allowed link."}
	staleAddresses  = metric{"vipmove_stale_addresses", prometheus.GaugeValue, []string{"interface"}, "Host addresses on an allowed link with no IPVS service behind them while kube-proxy does not run."}
	observerUp      = metric{"vipmove_observer_up", prometheus.GaugeValue, []string{"interface"}, "1 while ARP is listened for on the NIC."}
	connected       = metric{"vipmove_session_connected", prometheus.GaugeValue, nil, "1 while there is a session with a coordinator."}
	canAct          = metric{"vipmove_can_act", prometheus.GaugeValue, nil, "1 while this agent would not refuse every change."}
	undoPending     = metric{"vipmove_undo_pending", prometheus.GaugeValue, nil, "1 while a removal is neither confirmed nor put back."}
	undoBlocked     = metric{"vipmove_undo_blocked", prometheus.GaugeValue, nil, "1 while an address should be put back and cannot be."}
	refusalsTotal   = metric{"vipmove_refusals_total", prometheus.CounterValue, []string{"refusal"}, "Orders that this agent refused, by reason."}
	dumpInterrupted = metric{"vipmove_netlink_dump_interrupted_total", prometheus.CounterValue, nil, "Netlink dumps that changes interrupted and that were asked for again."}
	unreadable      = metric{"vipmove_kernel_unreadable_parts", prometheus.GaugeValue, nil, "Parts of the kernel's state that could not be read at this scrape."}
	buildInfo       = metric{"vipmove_build_info", prometheus.GaugeValue, []string{"version"}, "1, with the version of this agent."}
)

var metrics = []metric{
	vipOwner, vipResponders, heldAddresses, staleAddresses, observerUp, connected, canAct,
	undoPending, undoBlocked, refusalsTotal, dumpInterrupted, unreadable, buildInfo,
}

func (m metric) desc() *prometheus.Desc { return prometheus.NewDesc(m.name, m.help, m.labels, nil) }

func (m metric) value(v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(m.desc(), m.kind, v, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// collector reads everything at scrape time, from where it is kept.
type collector struct{ node *Node }

// Describe lists the families.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, m := range metrics {
		out <- m.desc()
	}
}

// Collect reads the kernel, the steps and the view.
func (c collector) Collect(out chan<- prometheus.Metric) {
	n := c.node
	pending := n.steps.Pending()
	out <- buildInfo.value(1, n.cfg.Version)
	out <- connected.value(truth(n.session.Connected()))
	out <- canAct.value(truth(n.steps.CannotAct() == nil))
	out <- undoPending.value(truth(pending != nil))
	out <- undoBlocked.value(truth(pending.GetBlocked() != ""))
	for number, name := range vipmovev1.Refusal_Code_name {
		if number != int32(vipmovev1.Refusal_NONE) {
			out <- refusalsTotal.value(float64(n.refused[number].Load()), name)
		}
	}
	for nic, up := range n.watch.sensors() {
		out <- observerUp.value(truth(up), nic)
	}
	c.collectView(out)
	c.collectKernel(out)
	out <- dumpInterrupted.value(float64(n.kernel.retries.Load()))
}

func (c collector) collectView(out chan<- prometheus.Metric) {
	for _, p := range c.node.view.places() {
		owner, responders, known := c.node.view.owner(p)
		for _, value := range owners {
			out <- vipOwner.value(truth(value == owner), p.vip.String(), p.nic, value)
		}
		if known {
			out <- vipResponders.value(float64(responders), p.vip.String(), p.nic)
		}
	}
}

// collectKernel leaves out what it cannot know: a gap in a series is not a 0.
func (c collector) collectKernel(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	state, err := c.node.kernel.State(ctx, nil)
	if err != nil {
		out <- unreadable.value(1)
		return
	}
	out <- unreadable.value(float64(len(state.Incomplete)))
	for _, l := range state.Links {
		if c.node.cfg.Policy.allowsLink(l) != "" {
			continue
		}
		held, stale, known := countAddresses(state, l.Index)
		out <- heldAddresses.value(float64(held), l.Name)
		if known {
			out <- staleAddresses.value(float64(stale), l.Name)
		}
	}
}

// countAddresses counts host addresses on a link, and those of them that are
// stale as far as a node can tell; known is false where it cannot.
func countAddresses(s host.State, index int) (held, stale int, known bool) {
	readable := []host.IPVSState{host.IPVSAbsent, host.IPVSNone, host.IPVSPresent}
	known = slices.Contains(readable, s.IPVS.State) && s.KubeProxy.State != host.KubeProxyUnknown && s.KubeProxy.State != ""
	for _, a := range s.Addresses {
		// A link-local address is the kernel's own making, never stale (CASES.md C06).
		if a.LinkIndex != index || !a.Prefix.IsSingleIP() || a.Prefix.Addr().IsLinkLocalUnicast() {
			continue
		}
		held++
		if s.KubeProxy.State != host.KubeProxyRunning && !s.IPVS.Serves(a.Prefix.Addr()) {
			stale++
		}
	}
	return held, stale, known
}

// countingKernel counts interrupted dumps, whoever asked for them.
type countingKernel struct {
	host.Kernel
	retries atomic.Uint64
}

// State reads the node's kernel.
func (k *countingKernel) State(ctx context.Context, watched []netip.Addr) (host.State, error) {
	s, err := k.Kernel.State(ctx, watched)
	k.retries.Add(uint64(s.DumpRetries))
	return s, err
}
