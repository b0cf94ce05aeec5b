// SPDX-License-Identifier: Apache-2.0

package server

import (
	"time"

	"github.com/vipmove/vipmove/coordinator/fleet"
)

// staleReport is how old a witness's newest report may be before requests count as not measured now.
// Witnesses report five times a second.
const staleReport = 2 * time.Second

// marks are witnesses' tallies at one moment, by witness.
type marks map[string]fleet.Tally

// delta is what requests did since a mark.
type delta struct {
	sent, failed uint64
	openGap      time.Duration // longest open gap of any connected witness
	longestGap   time.Duration // longest gap of any witness that reported since the mark, an open one included; those before it count too
	measured     bool          // a connected witness reports, and has sent, since the mark
}

func marksOf(list []fleet.Tally) marks {
	out := marks{}
	for _, t := range list {
		out[t.Witness] = t
	}
	return out
}

// since adds up all witnesses. One that is not in the marks counts from its first report on. One that left
// since then keeps what it had counted, and measures nothing.
func (m marks) since(list []fleet.Tally, now time.Time) delta {
	var d delta
	for _, t := range list {
		was := m[t.Witness]
		d.sent += t.Sent - was.Sent
		d.failed += t.Failed - was.Failed
		if t.Reports > was.Reports {
			d.longestGap = max(d.longestGap, t.LongestGap, t.OpenGap)
		}
		if !t.Connected {
			continue
		}
		d.openGap = max(d.openGap, t.OpenGap)
		if t.Reports > was.Reports && t.Sent > was.Sent && now.Sub(t.ReportedAt) <= staleReport {
			d.measured = true
		}
	}
	return d
}

// plus joins two stretches of time, the later one as argument.
func (d delta) plus(later delta) delta {
	return delta{sent: d.sent + later.sent, failed: d.failed + later.failed, openGap: later.openGap,
		longestGap: max(d.longestGap, later.longestGap), measured: later.measured}
}
