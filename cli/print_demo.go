// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"fmt"
	"strings"
	"time"
)

// demoSummary draws the figures of a demo.
func (p *printer) demoSummary(r demoReport) {
	p.field("before", fmt.Sprintf("%s, verdict %s", count(r.RespondersBefore, "responder"), p.style.word(r.VerdictBefore)))
	p.field("after", fmt.Sprintf("%s, verdict %s", count(r.RespondersAfter, "responder"), p.style.word(r.VerdictAfter)))
	p.field("owner", orText(r.Owner, "none"))
	p.field("order", strings.Join(r.Order, " "))
	p.field("left", addressesLeft(r.AddressesLeft))
	gap := span(time.Duration(r.Requests.LongestGapMs * float64(time.Millisecond)))
	p.field("requests", fmt.Sprintf("%d failed of %d, longest gap %s; bounds the loss rate below %s at 95 %%",
		r.Requests.Failed, r.Requests.Sent, gap, percent(r.Requests.LossBoundPercent)))
	p.field("took", fmt.Sprintf("%.1fs", r.DurationSeconds))
}

func addressesLeft(left map[string]int) string {
	counts := make(map[string]uint32, len(left))
	for node, n := range left {
		counts[node] = uint32(n)
	}
	return groupedByCount(counts) + " (addresses on kube-ipvs0)"
}
