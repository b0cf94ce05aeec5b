// SPDX-License-Identifier: Apache-2.0

package diagnose_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

func diff(a, b any) string {
	return cmp.Diff(a, b, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}, netip.AddrPort{}))
}

// clone copies all that the tests below change.
func clone(s diagnose.Snapshot) diagnose.Snapshot {
	s.Nodes, s.Rounds, s.Outgoing = slices.Clone(s.Nodes), slices.Clone(s.Rounds), slices.Clone(s.Outgoing)
	for i := range s.Nodes {
		if s.Nodes[i].Kernel == nil {
			continue
		}
		k := *s.Nodes[i].Kernel
		k.Links, k.Addresses, k.Routes = slices.Clone(k.Links), slices.Clone(k.Addresses), slices.Clone(k.Routes)
		k.IPVS.Services = slices.Clone(k.IPVS.Services)
		s.Nodes[i].Kernel = &k
	}
	for i := range s.Rounds {
		s.Rounds[i].Replies, s.Rounds[i].Heard = slices.Clone(s.Rounds[i].Replies), slices.Clone(s.Rounds[i].Heard)
	}
	for i := range s.Outgoing {
		s.Outgoing[i].Replies = slices.Clone(s.Outgoing[i].Replies)
	}
	return s
}

func shuffle[T any](t *rapid.T, list []T) []T {
	if len(list) < 2 {
		return list
	}
	return rapid.Permutation(list).Draw(t, "order")
}

func TestOrderOfInputDoesNotChangeTheReport(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := world(t)
		other := clone(s)
		other.Nodes, other.Rounds, other.Outgoing = shuffle(t, other.Nodes), shuffle(t, other.Rounds), shuffle(t, other.Outgoing)
		for _, n := range other.Nodes {
			k := n.Kernel
			k.Links, k.Addresses, k.Routes, k.IPVS.Services = shuffle(t, k.Links), shuffle(t, k.Addresses), shuffle(t, k.Routes), shuffle(t, k.IPVS.Services)
		}
		for i := range other.Rounds {
			other.Rounds[i].Replies, other.Rounds[i].Heard = shuffle(t, other.Rounds[i].Replies), shuffle(t, other.Rounds[i].Heard)
		}
		if d := diff(diagnose.Judge(s), diagnose.Judge(other)); d != "" {
			t.Fatalf("another order of the same evidence (-want +got):\n%s", d)
		}
	})
}

func TestJudgingChangesNothingInTheSnapshot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := world(t)
		before := clone(s)
		diagnose.Judge(s)
		if d := diff(before, s); d != "" {
			t.Fatalf("the snapshot after judging (-want +got):\n%s", d)
		}
	})
}

// shape is a report without its sentences, with names mapped; lists are sorted again.
func shape(r diagnose.Report, name func(string) string) []string {
	names := func(list []string) string {
		var out []string
		for _, n := range list {
			out = append(out, name(n))
		}
		slices.Sort(out)
		return strings.Join(out, ",")
	}
	out := []string{"verdict " + string(r.Verdict), "owner " + name(r.Owner), "segment " + r.Segment.Prefix.String()}
	for n, i := range r.Segment.Interfaces {
		out = append(out, fmt.Sprint("interface ", name(n), " ", name(i)))
	}
	for _, x := range r.Responders {
		out = append(out, fmt.Sprint("responder ", name(x.Node), " ", name(x.Interface), " ", x.MAC, " ", x.Announcer, " ", names(x.SeenBy), x.RepliesPerRequest, x.AnswersQuestion, x.QuestionAsked, x.Mismatched, x.Fastest))
	}
	for _, h := range r.Holders {
		out = append(out, fmt.Sprint("holder ", name(h.Node), " ", name(h.Address.Link), " ", h.Address.Prefix, " ", h.Route != nil, " ", h.State))
	}
	for _, o := range r.Observers {
		out = append(out, fmt.Sprint("observer ", name(o.Observer), " ", name(o.Interface), " ", o.State, " ", o.Replies, o.Rounds))
	}
	for _, f := range r.Findings {
		out = append(out, fmt.Sprint("finding ", f.Severity, " ", f.Code, " ", names(f.Nodes), " ", len(f.Evidence)))
	}
	slices.Sort(out)
	return out
}

func TestNamesOfNodesAndNICsMeanNothing(t *testing.T) {
	renamed := map[string]string{"n1": "zeta", "n2": "alpha", "n3": "worker-3", "n4": "b", "client": "aa", "eth0": "wan7", "eth1": "a0"}
	to := func(n string) string {
		if r, ok := renamed[n]; ok {
			return r
		}
		return n
	}
	same := func(n string) string { return n }
	rapid.Check(t, func(t *rapid.T) {
		s := world(t)
		other := clone(s)
		other.Interface = to(other.Interface)
		for i := range other.Nodes {
			n := &other.Nodes[i]
			n.Name = to(n.Name)
			for j := range n.Kernel.Links {
				n.Kernel.Links[j].Name = to(n.Kernel.Links[j].Name)
			}
			for j := range n.Kernel.Addresses {
				n.Kernel.Addresses[j].Link = to(n.Kernel.Addresses[j].Link)
			}
			for j := range n.Kernel.Routes {
				n.Kernel.Routes[j].Link = to(n.Kernel.Routes[j].Link)
			}
		}
		for i := range other.Rounds {
			other.Rounds[i].Observer, other.Rounds[i].Interface = to(other.Rounds[i].Observer), to(other.Rounds[i].Interface)
		}
		for i := range other.Outgoing {
			other.Outgoing[i].Node, other.Outgoing[i].Interface = to(other.Outgoing[i].Node), to(other.Outgoing[i].Interface)
		}
		if d := cmp.Diff(shape(diagnose.Judge(s), to), shape(diagnose.Judge(other), same)); d != "" {
			t.Fatalf("the same world by other names (-want +got):\n%s", d)
		}
	})
}

func refused(r diagnose.Report) bool {
	return slices.ContainsFunc(r.Findings, func(f diagnose.Finding) bool { return f.Severity == diagnose.Refuse })
}

// forget makes one thing of an agent unknown.
func forget(t *rapid.T, s diagnose.Snapshot) (diagnose.Snapshot, string) {
	s = clone(s)
	var agents []int
	for i, n := range s.Nodes {
		if n.Role == diagnose.RoleAgent {
			agents = append(agents, i)
		}
	}
	n := &s.Nodes[rapid.SampledFrom(agents).Draw(t, "of")]
	k := n.Kernel
	what := rapid.SampledFrom([]string{"kernel", "session", "part", "ipvs", "ipvs reading", "kube-proxy", "arp path", "setting", "setting of all"}).Draw(t, "forget")
	switch what {
	case "kernel":
		n.Kernel = nil
	case "session":
		n.Connected, n.Kernel = false, nil
	case "part":
		k.Incomplete = append(slices.Clone(k.Incomplete), "addresses: interrupted")
	case "ipvs":
		k.IPVS = diagnose.IPVS{}
	case "ipvs reading":
		k.IPVS = diagnose.IPVS{State: diagnose.IPVSUnreadable, Reason: "permission denied"}
	case "kube-proxy":
		k.KubeProxy = diagnose.KubeProxy{}
	case "arp path":
		k.ARPPath = diagnose.ARPPath{Unknown: true, Reasons: []string{"nftables: table arp"}}
	default:
		of := &k.All
		if what == "setting" {
			of = &k.Links[rapid.IntRange(0, len(k.Links)-1).Draw(t, "link")].Sysctls
		}
		fields := []**int{&of.ArpIgnore, &of.ArpFilter, &of.RpFilter, &of.RouteLocalnet, &of.AcceptLocal, &of.ProxyArp, &of.Forwarding}
		*rapid.SampledFrom(fields).Draw(t, "setting") = nil
	}
	return s, fmt.Sprintf("%s of %s", what, n.Name)
}

// I6: what stood in the way of a plan does not go away because less is known. (An observer that turns
// deaf is left out by rule, C25; that is no matter of this test.)
func TestForgettingNeverPermits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := world(t)
		before := diagnose.Judge(s)
		for range rapid.IntRange(1, 3).Draw(t, "times") {
			var what string
			s, what = forget(t, s)
			after := diagnose.Judge(s)
			if refused(before) && !refused(after) {
				t.Fatalf("refused before, permitted once the %s is unknown:\n%s", what, strings.Join(lines(before), "\n"))
			}
			if s.Nodes[0].Kernel == nil || slices.ContainsFunc(s.Nodes, func(n diagnose.Node) bool { return n.Kernel == nil }) {
				return
			}
			before = after
		}
	})
}

// I6: an unknown is no owner and no clean node. Forgetting makes nothing stale or latent, and proves nobody.
func TestForgettingProvesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := world(t)
		before := diagnose.Judge(s)
		less, what := forget(t, s)
		after := diagnose.Judge(less)
		if before.Owner == "" && after.Owner != "" {
			t.Fatalf("%s is proven once the %s is unknown: %s", after.Owner, what, after.OwnerReason)
		}
		planned := func(r diagnose.Report) (out []string) {
			for _, h := range r.Holders {
				if h.State == diagnose.HolderStale || h.State == diagnose.HolderLatent {
					out = append(out, fmt.Sprint(h.Node, h.Address.Link, h.Address.Prefix, h.Route != nil))
				}
			}
			return out
		}
		had := planned(before)
		for _, h := range planned(after) {
			if !slices.Contains(had, h) {
				t.Fatalf("%s may be removed once the %s is unknown", h, what)
			}
		}
	})
}

// The worlds above are worth something only if they reach the states that the properties are about.
func TestDrawnWorldsReachEveryVerdict(t *testing.T) {
	met, permitted, owners := map[diagnose.Verdict]int{}, 0, 0
	draw := rapid.Custom(func(t *rapid.T) diagnose.Report { return diagnose.Judge(world(t)) })
	for seed := range 500 {
		r := draw.Example(seed)
		met[r.Verdict]++
		if !refused(r) {
			permitted++
		}
		if r.Owner != "" {
			owners++
		}
	}
	for _, v := range []diagnose.Verdict{diagnose.VerdictNone, diagnose.VerdictSingle, diagnose.VerdictFlux, diagnose.VerdictContested,
		diagnose.VerdictForeign, diagnose.VerdictSplit, diagnose.VerdictUnknown} {
		if met[v] == 0 {
			t.Errorf("no drawn world has verdict %s", v)
		}
	}
	if permitted == 0 || owners == 0 {
		t.Errorf("%d drawn worlds are permitted and %d have an owner", permitted, owners)
	}
	t.Logf("%v, permitted %d, owners %d", met, permitted, owners)
}
