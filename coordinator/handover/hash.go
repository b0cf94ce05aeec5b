// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sort"
	"strings"
)

// hashedLines are the sorted text lines of plan/v1: what the operator reviewed, and nothing timed.
// Never protobuf or JSON bytes: neither is stable.
func (p Plan) hashedLines() []string {
	o := p.Options
	lines := []string{
		"vip " + o.VIP.String(),
		"segment " + p.Segment.String(),
		"canary " + p.Canary,
		"survivor " + p.Survivor,
		fmt.Sprintf("budget max-parallel=%d ttl=%s dwell=%s canary-soak=%s max-failed=%d", o.MaxParallel, o.TTL, o.Dwell, o.CanarySoak, o.MaxFailed),
	}
	for _, s := range p.Steps {
		a := s.Address
		lines = append(lines, fmt.Sprintf("node %s boot=%s link=%s index=%d address=%s scope=%d label=%q flags=%#x valid=%d preferred=%d peer=%s broadcast=%s %s",
			s.Node, s.BootID, a.Link, a.LinkIndex, a.Prefix, a.Scope, a.Label, a.Flags, a.ValidLifetime, a.PreferredLife, a.Peer, a.Broadcast, s.State))
	}
	for _, c := range o.Overrides {
		lines = append(lines, "override "+string(c))
	}
	for _, n := range o.Without {
		lines = append(lines, "without "+n)
	}
	if o.Owner != "" {
		lines = append(lines, "owner "+o.Owner+" named by the operator")
	}
	if o.Interface != "" {
		lines = append(lines, "interface "+o.Interface)
	}
	if o.NoWitness {
		lines = append(lines, "no-witness")
	}
	if o.Announce {
		lines = append(lines, "announce")
	}
	sort.Strings(lines)
	return lines
}

// hashLines is SHA-256 over "plan/v1" and the lines, newline separated, in lower-case hex.
func hashLines(lines []string) string {
	sum := sha256.Sum256([]byte("plan/v1\n" + strings.Join(lines, "\n") + "\n"))
	return hex.EncodeToString(sum[:])
}
