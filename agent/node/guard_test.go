// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/agent/report"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// refusalRow is one reason for a no: a node as it is, made worse, and an order.
type refusalRow struct {
	code  vipmovev1.Refusal_Code
	name  string
	given func(s *story)                              // before the order
	order func(s *story) *vipmovev1.CommandResult     // nil: prepare, then remove
	says  string                                      // part of the message
	over  bool                                        // an override of the code lets it pass
	entry func(s *story) host.Tuple                   // nil: the VIP on kube-ipvs0
	fence func(f *vipmovev1.Fence, now time.Duration) // edits the fence of the order
	twice func(s *story) *vipmovev1.CommandResult     // an order that must be refused as well
}

func sysctl(v int) *int { return &v }

var refusals = []refusalRow{
	{code: vipmovev1.Refusal_OBSERVE_ONLY, name: "an agent without --act", says: "--act",
		given: func(s *story) { s.policy.Act = false; s.start() }},
	{code: vipmovev1.Refusal_PAUSED_ON_NODE, name: "a pause file", says: "paused is there",
		given: func(s *story) { s.store.paused = errPaused }},
	{code: vipmovev1.Refusal_PAUSED_ON_NODE, name: "a pause file that cannot be looked for", says: "cannot be told",
		given: func(s *story) { s.store.paused = errors.New("input/output error") }},
	{code: vipmovev1.Refusal_LINK_NOT_ALLOWED, name: "a link that nobody allowed", says: "only kube-ipvs0",
		entry: func(s *story) host.Tuple { s.kernel.AddDummy("other0"); return s.kernel.HoldIP("other0", vip) }},
	{code: vipmovev1.Refusal_LINK_NOT_ALLOWED, name: "a real NIC that took the default name", says: "no dummy but bridge",
		entry: func(s *story) host.Tuple {
			s.kernel.DropLink(testDummy)
			s.kernel.AddLink(host.Link{Name: testDummy, Kind: "bridge", Type: "ether"})
			s.kernel.Hold(testDummy, host.Address{Prefix: netip.MustParsePrefix("192.0.2.60/24")})
			return s.kernel.HoldIP(testDummy, vip)
		}},
	{code: vipmovev1.Refusal_LINK_NOT_ALLOWED, name: "a NIC that was not named, its orphan VIP (C46)", says: "only kube-ipvs0",
		entry: func(s *story) host.Tuple {
			s.kernel.Drop(testDummy, s.entry.Prefix)
			return s.kernel.HoldIP("eth0", vip)
		}},
	{code: vipmovev1.Refusal_LINK_NOT_ALLOWED, name: "the default link where others were named", says: "only kube-dummy-if",
		given: func(s *story) { s.policy.Links = []string{"kube-dummy-if"}; s.start() }},
	{code: vipmovev1.Refusal_PREFIX_NOT_ALLOWED, name: "an address outside of the allowed prefixes", says: "no allowed prefix",
		given: func(s *story) {
			s.policy.Prefixes = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
			s.start()
		}},
	{code: vipmovev1.Refusal_PREFIX_NOT_ALLOWED, name: "no allowed prefix at all",
		given: func(s *story) { s.policy.Prefixes = nil; s.start() }},
	{code: vipmovev1.Refusal_NOT_HOST_PREFIX, name: "a /24 and its siblings (C10)", says: "192.0.2.51/24, 192.0.2.52/24",
		entry: func(s *story) host.Tuple { return siblings(s) }},
	{code: vipmovev1.Refusal_NOT_HOST_PREFIX, name: "a /24 where siblings would be promoted (C10)",
		entry: func(s *story) host.Tuple {
			s.kernel.Set(func(w *host.FakeWorld) { w.All.PromoteSecondaries = sysctl(1) })
			return siblings(s)
		}},
	{code: vipmovev1.Refusal_NODE_OWN_ADDRESS, name: "also on a real NIC", says: "eth0",
		given: func(s *story) { s.kernel.HoldIP("eth0", vip) }},
	{code: vipmovev1.Refusal_NODE_OWN_ADDRESS, name: "the node's own /32 on a NIC that was named (C12)", says: "first address of eth9",
		entry: func(s *story) host.Tuple {
			s.policy.Links = []string{testDummy, "eth9"}
			s.start()
			s.kernel.AddNIC("eth9", "02:00:00:00:00:99")
			return s.kernel.HoldIP("eth9", netip.MustParseAddr("192.0.2.99"))
		}},
	{code: vipmovev1.Refusal_GATEWAY_ADDRESS, name: "a gateway of this node",
		entry: func(s *story) host.Tuple { return s.kernel.HoldIP(testDummy, netip.MustParseAddr("192.0.2.1")) }},
	{code: vipmovev1.Refusal_ROUTE_SOURCE, name: "a route's source address", says: "203.0.113.0/24",
		given: func(s *story) {
			s.kernel.AddRoute(host.Route{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Type: "unicast", Table: 254, Link: "eth0", Source: vip})
		}},
	{code: vipmovev1.Refusal_ON_ANOTHER_LINK, name: "also on a dummy that nobody knows", says: "mystery0",
		given: func(s *story) { s.kernel.AddDummy("mystery0"); s.kernel.HoldIP("mystery0", vip) }},
	{code: vipmovev1.Refusal_ON_ANOTHER_LINK, name: "also on lo", says: "lo",
		given: func(s *story) { s.kernel.HoldIP("lo", vip) }},
	{code: vipmovev1.Refusal_LIVE_IPVS_SERVICE, name: "an IPVS service behind it",
		given: func(s *story) {
			s.ipvs(host.IPVS{State: host.IPVSPresent, Services: []host.IPVSService{{Address: vip, Port: 80}}})
		}},
	{code: vipmovev1.Refusal_LIVE_IPVS_SERVICE, name: "an IPVS service by firewall mark", says: "firewall mark",
		given: func(s *story) { s.ipvs(host.IPVS{State: host.IPVSPresent, Services: []host.IPVSService{{FWMark: 1}}}) }},
	{code: vipmovev1.Refusal_IPVS_UNREADABLE, name: "an IPVS table that nobody read",
		given: func(s *story) { s.ipvs(host.IPVS{}) }},
	{code: vipmovev1.Refusal_IPVS_UNREADABLE, name: "an IPVS table that may not be read", says: "denied",
		given: func(s *story) { s.ipvs(host.IPVS{State: host.IPVSUnreadable, Reason: "permission denied"}) }},
	{code: vipmovev1.Refusal_MANAGER_RUNNING, name: "kube-proxy runs here", says: "ipvs", over: true,
		given: func(s *story) { s.kubeProxy(host.KubeProxy{State: host.KubeProxyRunning, Mode: "ipvs"}) }},
	{code: vipmovev1.Refusal_UNKNOWN_MANAGER, name: "something serves kube-proxy's health port", says: "Cilium", over: true,
		given: func(s *story) {
			s.kubeProxy(host.KubeProxy{State: host.KubeProxyUnknownManager, Detail: "Cilium, perhaps"})
		}},
	{code: vipmovev1.Refusal_UNKNOWN_MANAGER, name: "whether kube-proxy runs is not known", over: true,
		given: func(s *story) { s.kubeProxy(host.KubeProxy{State: host.KubeProxyUnknown}) }},
	{code: vipmovev1.Refusal_UNKNOWN_MANAGER, name: "a link whose manager cannot be seen (C02)", over: true, says: "kube-dummy-if",
		entry: func(s *story) host.Tuple {
			s.policy.Links = []string{"kube-dummy-if"}
			s.start()
			s.kernel.AddDummy("kube-dummy-if")
			return s.kernel.HoldIP("kube-dummy-if", netip.MustParseAddr("192.0.2.77"))
		}},
	{code: vipmovev1.Refusal_DUMP_INCOMPLETE, name: "a dump interrupted five times (C09)", says: "links and addresses",
		given: func(s *story) { s.kernel.Break("links and addresses", host.ErrInterrupted) }},
	{code: vipmovev1.Refusal_DUMP_INCOMPLETE, name: "routes that cannot be read", says: "routes",
		given: func(s *story) { s.kernel.Break("routes", errors.New("denied")) }},
	{code: vipmovev1.Refusal_ADDRESS_FAMILY, name: "an IPv6 address (C48)",
		entry: func(s *story) host.Tuple { return s.kernel.HoldIP(testDummy, netip.MustParseAddr("2001:db8::50")) }},
	{code: vipmovev1.Refusal_STALE_TERM, name: "a coordinator that was replaced (I7)", says: "term 1",
		given: func(s *story) { s.term = 2; s.expect(s.prepare(), prepared); s.term = 1 }},
	{code: vipmovev1.Refusal_OTHER_JOURNAL, name: "another coordinator's journal", says: "j2",
		given: func(s *story) { s.expect(s.prepare(), prepared) },
		fence: func(f *vipmovev1.Fence, _ time.Duration) { f.JournalId, f.Term = "j2", 99 }},
	{code: vipmovev1.Refusal_OTHER_JOURNAL, name: "no journal named",
		fence: func(f *vipmovev1.Fence, _ time.Duration) { f.JournalId = "" }},
	{code: vipmovev1.Refusal_WRONG_NODE, name: "another node's order", says: "n2",
		fence: func(f *vipmovev1.Fence, _ time.Duration) { f.Node = "n2" }},
	{code: vipmovev1.Refusal_WRONG_BOOT, name: "an order from before the boot",
		fence: func(f *vipmovev1.Fence, _ time.Duration) { f.BootId = "earlier" }},
	{code: vipmovev1.Refusal_LATE, name: "an order that comes late", says: "1ns after",
		fence: func(f *vipmovev1.Fence, now time.Duration) { f.DeadlineBoottime = durationpb.New(now - 1) }},
	{code: vipmovev1.Refusal_LATE, name: "an order without a deadline",
		fence: func(f *vipmovev1.Fence, _ time.Duration) { f.DeadlineBoottime = nil }},
	{code: vipmovev1.Refusal_NOT_PREPARED, name: "a run that was not prepared (I5)",
		order: func(s *story) *vipmovev1.CommandResult { return s.remove(removeID) }},
	{code: vipmovev1.Refusal_NOT_PREPARED, name: "another plan of the run (I5)", says: "other hash",
		order: afterPrepare(func(f *vipmovev1.Fence) { f.PlanHash = "other hash" })},
	{code: vipmovev1.Refusal_NOT_PREPARED, name: "another step of the run (I5)", says: "n9",
		order: afterPrepare(func(f *vipmovev1.Fence) { f.Step = "n9" })},
	{code: vipmovev1.Refusal_ENTRY_CHANGED, name: "there as /24 now (C07)", says: "192.0.2.50/24",
		given: func(s *story) {
			s.expect(s.prepare(), prepared)
			s.kernel.Drop(testDummy, s.entry.Prefix)
			s.kernel.Hold(testDummy, host.Address{Prefix: netip.MustParsePrefix("192.0.2.50/24")})
		}, order: func(s *story) *vipmovev1.CommandResult { return s.remove(removeID) }},
	{code: vipmovev1.Refusal_ENTRY_CHANGED, name: "there as /32 and as /24", says: "a second time",
		given: func(s *story) { s.kernel.Hold(testDummy, host.Address{Prefix: netip.MustParsePrefix("192.0.2.50/24")}) }},
	{code: vipmovev1.Refusal_ENTRY_CHANGED, name: "another label now", says: `label "other"`,
		given: func(s *story) {
			s.kernel.Drop(testDummy, s.entry.Prefix)
			s.kernel.Hold(testDummy, host.Address{Prefix: s.entry.Prefix, Label: "other"})
		}},
	{code: vipmovev1.Refusal_ENTRY_CHANGED, name: "another entry for the same run", says: "already",
		given: func(s *story) { s.expect(s.prepare(), prepared) },
		entry: func(s *story) host.Tuple { return s.kernel.HoldIP(testDummy, netip.MustParseAddr("192.0.2.51")) }},
	{code: vipmovev1.Refusal_LINK_CHANGED, name: "the link was made anew (index)", says: "index",
		given: func(s *story) {
			s.kernel.DropLink(testDummy)
			s.kernel.AddLink(host.Link{Name: testDummy, Kind: "dummy", Type: "ether", Index: 77})
			s.kernel.HoldIP(testDummy, vip)
		}},
	{code: vipmovev1.Refusal_LINK_CHANGED, name: "the link was renamed", says: "old0",
		given: func(s *story) { s.kernel.RenameLink(testDummy, "old0") }},
	{code: vipmovev1.Refusal_LINK_CHANGED, name: "renamed between the guard and the delete", says: "link has another name",
		given: func(s *story) {
			s.expect(s.prepare(), prepared)
			s.store.onWrite = func(name string, after bool) fault {
				if after && strings.HasPrefix(name, stepPrefix) {
					s.kernel.RenameLink(testDummy, "old0")
				}
				return works
			}
		}, order: func(s *story) *vipmovev1.CommandResult { return s.remove(removeID) },
		twice: func(s *story) *vipmovev1.CommandResult { return s.remove(removeID) }},
	{code: vipmovev1.Refusal_CHANGE_BUDGET_SPENT, name: "the budget of changes", says: "1 are allowed",
		given: func(s *story) {
			s.policy.MaxChanges = 1
			s.start()
			s.expect(s.prepare(), prepared)
			s.expect(s.remove(removeID), removed)
			s.pass(testTTL)
			s.start() // a restart does not forget what was spent
		}, order: func(s *story) *vipmovev1.CommandResult {
			return s.prepare(func(f *vipmovev1.Fence) { f.RunId = "run2" })
		}},
	{code: vipmovev1.Refusal_UNDO_PENDING, name: "another run's undo", says: "run1",
		given: func(s *story) { s.expect(s.prepare(), prepared); s.expect(s.remove(removeID), removed) },
		order: func(s *story) *vipmovev1.CommandResult {
			return s.prepare(func(f *vipmovev1.Fence) { f.RunId = "run2" })
		}},
	{code: vipmovev1.Refusal_STEP_CANCELLED, name: "a step that was cancelled",
		given: func(s *story) { s.expect(s.prepare(), prepared); s.expect(s.restore(false), cancelled) },
		order: func(s *story) *vipmovev1.CommandResult { return s.remove(removeID) }},
	{code: vipmovev1.Refusal_STATE_NOT_DURABLE, name: "a record that cannot be read", says: termFile,
		given: func(s *story) { s.store.files[termFile] = []byte("{"); s.start() }},
	{code: vipmovev1.Refusal_STATE_NOT_DURABLE, name: "a full disk (I9)", says: "no space left",
		given: func(s *story) { s.store.onWrite = func(string, bool) fault { return notDone } }},
	{code: vipmovev1.Refusal_MUTE_UNSUPPORTED, name: "a kernel without nftables for ARP", says: "no nftables",
		given: func(s *story) { s.kernel.FailMute(host.ErrMuteUnsupported) },
		order: func(s *story) *vipmovev1.CommandResult { return s.mute(time.Second) }},
}

func (s *story) ipvs(i host.IPVS) { s.kernel.Set(func(w *host.FakeWorld) { w.IPVS = i }) }

func (s *story) kubeProxy(k host.KubeProxy) {
	s.kernel.Set(func(w *host.FakeWorld) { w.KubeProxy = k })
}

func siblings(s *story) host.Tuple {
	s.kernel.Drop(testDummy, s.entry.Prefix)
	var first host.Tuple
	for _, p := range []string{"192.0.2.50/24", "192.0.2.51/24", "192.0.2.52/24"} {
		t := s.kernel.Hold(testDummy, host.Address{Prefix: netip.MustParsePrefix(p)})
		if !first.Prefix.IsValid() {
			first = t
		}
	}
	return first
}

func afterPrepare(c change) func(s *story) *vipmovev1.CommandResult {
	return func(s *story) *vipmovev1.CommandResult {
		s.expect(s.prepare(), prepared)
		return s.remove(removeID, c)
	}
}

// ask sends the row's order: by default a prepare and, where that is not what
// is refused, the removal.
func (row refusalRow) ask(s *story, overrides []string) *vipmovev1.CommandResult {
	if row.order != nil {
		return row.order(s)
	}
	edit := func(f *vipmovev1.Fence) {
		if row.fence != nil {
			row.fence(f, s.kernel.BootTime())
		}
	}
	r := s.prepareEntry(report.AddressToProto(s.entry), overrides, edit)
	if r.GetRefusal() != nil {
		return r
	}
	return s.remove(removeID, edit)
}

func TestTheGuardRefusesWithEveryCode(t *testing.T) {
	seen := map[vipmovev1.Refusal_Code]bool{vipmovev1.Refusal_NONE: true}
	for _, row := range refusals {
		t.Run(row.code.String()+"/"+row.name, func(t *testing.T) {
			seen[row.code] = true
			s := newStory(t)
			if row.given != nil {
				row.given(s)
			}
			if row.entry != nil {
				s.entry = row.entry(s)
			}
			before := len(s.kernel.Deletes())
			got := s.refuses(row.ask(s, nil), row.code)
			if !strings.Contains(got.GetMessage(), row.says) {
				t.Errorf("message %q does not say %q", got.GetMessage(), row.says)
			}
			if row.twice != nil {
				s.refuses(row.twice(s), row.code)
			}
			if s.refused[row.code] == 0 {
				t.Error("the refusal was not counted")
			}
			if after := len(s.kernel.Deletes()); after != before {
				t.Errorf("refused, and %d addresses deleted", after-before)
			}
		})
	}
	for number, name := range vipmovev1.Refusal_Code_name {
		if !seen[vipmovev1.Refusal_Code(number)] {
			t.Errorf("no row exercises %s", name)
		}
	}
}

// TestOnlyTheManagerCanBeOverridden: every refusal with every override set.
func TestOnlyTheManagerCanBeOverridden(t *testing.T) {
	var all []string
	for _, name := range vipmovev1.Refusal_Code_name {
		all = append(all, name)
	}
	for _, row := range refusals {
		if row.order != nil {
			continue // its refusal comes before any entry is looked at
		}
		t.Run(row.code.String()+"/"+row.name, func(t *testing.T) {
			s := newStory(t)
			if row.given != nil {
				row.given(s)
			}
			if row.entry != nil {
				s.entry = row.entry(s)
			}
			if s.prepareSeen() {
				return // its run is prepared without overrides already
			}
			r := row.ask(s, all)
			if row.over {
				s.expect(r, removed)
				return
			}
			s.refuses(r, row.code)
		})
	}
}

func (s *story) prepareSeen() bool { return len(s.steps.ledger.prepared) > 0 }

func TestAnOverrideOfTheManagerNeverCoversALiveAddress(t *testing.T) {
	s := newStory(t)
	s.kubeProxy(host.KubeProxy{State: host.KubeProxyRunning, Mode: "ipvs"})
	s.ipvs(host.IPVS{State: host.IPVSPresent, Services: []host.IPVSService{{Address: vip, Port: 443}}})
	r := s.prepareEntry(report.AddressToProto(s.entry), []string{"MANAGER_RUNNING", "LIVE_IPVS_SERVICE"})
	s.refuses(r, vipmovev1.Refusal_LIVE_IPVS_SERVICE)
}

func TestTheOrphanOnANamedNICMayGo(t *testing.T) { // CASES.md C46
	s := newStory(t)
	s.policy.Links = []string{"eth0"}
	s.start()
	s.kernel.Drop(testDummy, s.entry.Prefix)
	s.entry = s.kernel.HoldIP("eth0", vip)
	s.expect(s.prepareEntry(report.AddressToProto(s.entry), []string{"UNKNOWN_MANAGER"}), prepared)
	s.expect(s.remove(removeID), removed)
}

func TestOtherIPVSServicesAreNoReason(t *testing.T) {
	for _, table := range []host.IPVS{
		{State: host.IPVSNone},
		{State: host.IPVSPresent, Services: []host.IPVSService{{Address: netip.MustParseAddr("10.96.0.10"), Port: 53}}},
	} {
		s := newStory(t)
		s.ipvs(table)
		s.expect(s.prepare(), prepared)
		s.expect(s.remove(removeID), removed)
	}
}

func TestTheGuardLooksAgainAtTheRemoval(t *testing.T) {
	s := newStory(t)
	s.expect(s.prepare(), prepared)
	s.kubeProxy(host.KubeProxy{State: host.KubeProxyRunning, Mode: "ipvs"}) // kubeadm upgrade, between the two
	s.refuses(s.remove(removeID), vipmovev1.Refusal_MANAGER_RUNNING)
	s.wantHeld(true)
}
