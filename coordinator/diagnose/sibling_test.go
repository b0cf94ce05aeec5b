// SPDX-License-Identifier: Apache-2.0

package diagnose_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/handover"
)

// Solve the kind, not the file: every scenario by other names of nodes and links, with other MACs, in another
// subnet, with another prefix length, and with frames about a second VIP in between, is judged and planned alike.
func TestSiblingsOfEveryScenarioAreJudgedAlike(t *testing.T) {
	all := scenarios(t)
	for _, s := range all { // a few of each …
		t.Run(s.name, func(t *testing.T) {
			one := rapid.Custom(func(t *rapid.T) string { return s.differs(t) })
			for seed := range 4 {
				if diff := one.Example(seed); diff != "" {
					t.Errorf("sibling %d: %s", seed, diff)
				}
			}
		})
	}
	rapid.Check(t, func(t *rapid.T) { // … and others every time
		s := rapid.SampledFrom(all).Draw(t, "scenario")
		if diff := s.differs(t); diff != "" {
			t.Fatalf("sibling of %s: %s", s.name, diff)
		}
	})
}

// differs draws a sibling and is empty where it is judged and planned as its scenario is.
func (s scenario) differs(t *rapid.T) string {
	to := drawSibling(t, s)
	sibling := to.snapshot(s.snapshot)
	if rapid.Bool().Draw(t, "second VIP") {
		sibling = besideAnother(sibling)
	}
	if diff := compare(settled(lines(diagnose.Judge(sibling))), settled(to.lines(s.expect))); diff != "" {
		return "judgement (-want +got):\n" + diff
	}
	if diff := comparePlans(handover.Make(sibling, to.options(s.options)), to.lines(s.plan), sibling); diff != "" {
		return "plan " + diff
	}
	return ""
}

// besideAnother adds rounds and frames about another VIP on the same wire. No frame of it is about the first.
func besideAnother(s diagnose.Snapshot) diagnose.Snapshot {
	s = clone(s)
	if !s.VIP.Is4() {
		return s
	}
	second := s.VIP.Next()
	for i := range s.Rounds {
		r := s.Rounds[i]
		other := r
		other.VIP = second
		other.Replies = slices.Clone(r.Replies)
		for k := range other.Replies {
			other.Replies[k].SenderIP = second
		}
		s.Rounds[i].Unsolicited = append(slices.Clone(r.Unsolicited), diagnose.Reply{SenderMAC: mac(0x77), SenderIP: second})
		s.Rounds = append(s.Rounds, other)
	}
	return s
}

// settled puts lists of names in order, which other names change.
func settled(list []string) []string {
	var out []string
	for _, line := range list {
		f := strings.Fields(line)
		if f[0] == "finding" {
			slices.Sort(f[3:])
		}
		if i := slices.Index(f, "list"); i > 2 && f[i-2] == "and" { // "n1 and n2 list this MAC as theirs"
			f[i-3], f[i-1] = min(f[i-3], f[i-1]), max(f[i-3], f[i-1])
		}
		out = append(out, strings.Join(f, " "))
	}
	return out
}

// comparePlans is empty where the plan is the expected one but for which of several equal nodes is the
// canary, and in which order those between canary and survivor come: that is decided by their names.
func comparePlans(p handover.Plan, expect []string, s diagnose.Snapshot) string {
	got := planLines(p)
	want, have := looser(expect), looser(got)
	if diff := compare(have, want); diff != "" {
		return "(-want +got):\n" + diff
	}
	for _, step := range p.Steps {
		for _, n := range s.Nodes {
			if n.Name == step.Node && step.Role == handover.RoleCanary && (n.Name == p.Survivor || slices.Contains(handover.Carriers(s, p.Report), n.Name)) && len(p.Steps) > 2 {
				return "the canary " + n.Name + " survives or carries"
			}
		}
	}
	return ""
}

// looser leaves out what names decide: who is the canary among the idle, and the place of each idle step.
func looser(list []string) []string {
	var out []string
	for _, line := range list {
		f := strings.Fields(line)
		switch {
		case f[0] == "canary" && f[1] != "none":
			continue
		case f[0] == "step":
			if f[1] != "1" && f[3] == "canary" {
				f[3] = "idle" // its second address, beside the first
			}
			out = append(out, fmt.Sprint("role of step ", f[1], ": ", f[3]))
			if f[3] == "canary" || f[3] == "idle" {
				f[3] = "canary or idle"
			}
			out = append(out, fmt.Sprint("step of ", strings.Join(f[2:], " ")))
			continue
		}
		out = append(out, line)
	}
	return out
}

// usable tells whether addresses may stand where a sibling puts them: none is the network or the
// broadcast address of a subnet that it is in.
func usable(s diagnose.Snapshot) bool {
	var subnets []netip.Prefix
	ips := []netip.Addr{s.VIP}
	for _, n := range s.Nodes {
		if n.Kernel == nil {
			continue
		}
		for _, a := range n.Kernel.Addresses {
			ips = append(ips, a.Prefix.Addr())
			if a.Prefix.Addr().Is4() && a.Prefix.Bits() < 31 {
				subnets = append(subnets, a.Prefix.Masked())
			}
		}
	}
	for _, r := range s.Rounds {
		ips = append(ips, r.SenderIP)
	}
	for _, p := range subnets {
		last := p.Addr().As4()
		for i := p.Bits(); i < 32; i++ {
			last[i/8] |= 0x80 >> (i % 8)
		}
		if slices.Contains(ips, p.Addr()) || slices.Contains(ips, netip.AddrFrom4(last)) {
			return false
		}
	}
	return !slices.ContainsFunc(ips, func(a netip.Addr) bool { return a.Is4() && a.As4()[0] == 0 && !a.IsUnspecified() })
}
