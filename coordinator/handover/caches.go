// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"strings"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

// JudgeCaches says whether every witness's neighbour entry for the VIP is the survivor's MAC, after a verdict that it
// alone answers. Always OK: a cache that lags undoes nothing. Code CachesLag names witnesses and the nodes that still
// carry; old entries work until such a node is drained. Where no witness shows an entry nothing is known, and that is said.
func JudgeCaches(r Run, s diagnose.Snapshot) Check {
	rep := diagnose.Judge(s)
	right := map[string]bool{}
	for _, resp := range rep.Responders {
		if resp.Node == r.Plan.Survivor {
			right[strings.ToLower(resp.MAC)] = true
		}
	}
	seen, lag := 0, []string(nil)
	for _, q := range s.Requests {
		mac := strings.ToLower(q.NeighbourMAC)
		switch {
		case right[mac]:
			seen++
		case mac != "":
			lag = append(lag, fmt.Sprintf("witness %s still sends to %s", q.Witness, carrier(s, mac)))
		case rep.Segment.Interfaces[q.Witness] != "": // a neighbour of the VIP that shows no entry: unknown is not right (I6)
			lag = append(lag, fmt.Sprintf("witness %s shows no neighbour entry", q.Witness))
		}
	}
	switch {
	case len(lag) > 0:
		return Check{OK: true, Code: CachesLag, Detail: fmt.Sprintf("caches lag: %s; do not drain a node that still carries before they have followed", strings.Join(lag, ", "))}
	case seen == 0:
		return Check{OK: true, Detail: "neighbour entries: not measured"}
	}
	return Check{OK: true, Detail: fmt.Sprintf("every witness sends to %s", r.Plan.Survivor)}
}

// carrier names the node with that MAC, by the agents' own inventories.
func carrier(s diagnose.Snapshot, mac string) string {
	for _, n := range s.Nodes {
		if n.Kernel == nil || n.Role != diagnose.RoleAgent {
			continue
		}
		for _, l := range n.Kernel.Links {
			if strings.EqualFold(l.MAC, mac) {
				return "node " + n.Name + " (" + mac + ")"
			}
		}
	}
	return "the unknown MAC " + mac
}
