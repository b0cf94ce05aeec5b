// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// collector gathers facts into findings: one for each code and severity, with the nodes it was
// seen on and a line of evidence for each.
type collector struct {
	vip   netip.Addr
	found map[collected]*Finding
}

type collected struct {
	code     Code
	severity Severity
}

func newCollector(vip netip.Addr) *collector {
	return &collector{vip: vip, found: map[collected]*Finding{}}
}

// add notes one fact. node may be empty; evidence is one sentence, without a full stop.
func (c *collector) add(code Code, s Severity, node, evidence string) {
	key := collected{code, s}
	f := c.found[key]
	if f == nil {
		f = &Finding{Code: code, Severity: s, Subject: c.vip.String()}
		c.found[key] = f
	}
	if node != "" && !slices.Contains(f.Nodes, node) {
		f.Nodes = append(f.Nodes, node)
	}
	if evidence != "" && !slices.Contains(f.Evidence, evidence) {
		f.Evidence = append(f.Evidence, evidence)
	}
}

var severityRank = map[Severity]int{Refuse: 0, Warn: 1, Info: 2}

// sorted gives the findings with their sentences: refusals first, then by code.
func (c *collector) sorted() []Finding {
	var out []Finding
	for _, f := range c.found {
		slices.Sort(f.Nodes)
		slices.Sort(f.Evidence)
		words := strings.NewReplacer("{vip}", f.Subject, "{nodes}", and(f.Nodes))
		f.Message, f.NextStep = words.Replace(catalogue[f.Code].message), words.Replace(catalogue[f.Code].next)
		out = append(out, *f)
	}
	slices.SortFunc(out, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(severityRank[a.Severity], severityRank[b.Severity]), cmp.Compare(a.Code, b.Code))
	})
	return out
}

// and joins names as people do; beyond eight it counts.
func and(names []string) string {
	const most = 8
	switch n := len(names); {
	case n == 0:
		return "no node"
	case n == 1:
		return names[0]
	case n > most:
		return strings.Join(names[:most], ", ") + " and " + count(n-most, "more", "more")
	default:
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
}

func (c *collector) has(code Code) bool {
	for k := range c.found {
		if k.code == code {
			return true
		}
	}
	return false
}
