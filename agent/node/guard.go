// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"

	"github.com/vipmove/vipmove/agent/host"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// checkNode refuses what this node does not allow now, whatever the entry.
func checkNode(p Policy, f facts) *vipmovev1.Refusal {
	switch {
	case !p.Act:
		return refuse(vipmovev1.Refusal_OBSERVE_ONLY, "start the agent with --act and --allow-prefix to let it change addresses",
			"this agent only looks (--act is not set)")
	case f.NoRights != "":
		return refuse(vipmovev1.Refusal_OBSERVE_ONLY, "give the agent the capability NET_ADMIN (deploy/, level act)",
			"this agent cannot change addresses: %s", f.NoRights)
	case f.Paused != "":
		return refuse(vipmovev1.Refusal_PAUSED_ON_NODE, "remove the file when whoever put it there agrees",
			"changes are paused on this node: %s", f.Paused)
	case f.Damaged != "":
		return refuse(vipmovev1.Refusal_STATE_NOT_DURABLE, "make the state directory readable and writable, then restart the agent",
			"this agent cannot trust its records: %s", f.Damaged)
	case f.Pending != nil:
		return refuse(vipmovev1.Refusal_UNDO_PENDING, "confirm or restore that step first, or wait for its deadline",
			"step %s of run %s still has %s to confirm or to put back", f.Pending.Step, f.Pending.RunID, f.Pending.Entry)
	case f.Changes >= p.MaxChanges:
		return refuse(vipmovev1.Refusal_CHANGE_BUDGET_SPENT, "wait, or raise --max-changes on this node",
			"%d addresses were taken off within %v, %d are allowed", f.Changes, ChangeWindow, p.MaxChanges)
	}
	return nil
}

// checkEntry refuses what may never be taken off this node, by the entry and
// the kernel's state (docs/design.md section 7). What is absent altogether is
// no reason: the caller asks for that apart.
func checkEntry(p Policy, s host.State, entry Prepared) *vipmovev1.Refusal {
	for _, check := range []func(Policy, host.State, Prepared) *vipmovev1.Refusal{
		checkForm, checkReadable, checkComplete, checkLink, checkOwn, checkOtherLinks, checkListing, checkIPVS, checkManager,
	} {
		if r := check(p, s, entry); r != nil {
			return r
		}
	}
	return nil
}

// checkForm looks at the entry and the configured prefixes alone.
func checkForm(p Policy, s host.State, e Prepared) *vipmovev1.Refusal {
	prefix := e.Entry.Prefix
	switch {
	case !prefix.Addr().Is4():
		return refuse(vipmovev1.Refusal_ADDRESS_FAMILY, "leave it: a /128 on a dummy link answers no neighbour solicitation",
			"%s is not IPv4, and only IPv4 is handled", prefix)
	case !prefix.IsSingleIP():
		return refuse(vipmovev1.Refusal_NOT_HOST_PREFIX, "have whoever added it with that prefix length remove it",
			"%s is no /32%s", prefix, collateral(e.Entry, s))
	case !p.allowsPrefix(prefix.Addr()):
		return refuse(vipmovev1.Refusal_PREFIX_NOT_ALLOWED, "add its range with --allow-prefix on this node, if the administrator agrees",
			"%s is in no allowed prefix", prefix.Addr())
	}
	return nil
}

// collateral names the addresses that the kernel would drop together with the
// entry: its secondaries, unless promote_secondaries is set on the link or on
// all (inet_del_ifa, net/ipv4/devinet.c).
func collateral(t host.Tuple, s host.State) string {
	set := func(v *int) bool { return v != nil && *v != 0 }
	if set(s.AllSysctls.PromoteSecondaries) || set(s.LinkSysctls[t.Link].PromoteSecondaries) {
		return ""
	}
	var siblings []string
	for _, a := range s.Addresses {
		if a.LinkIndex == t.LinkIndex && a.Prefix.Masked() == t.Prefix.Masked() && a.Prefix != t.Prefix {
			siblings = append(siblings, a.Prefix.String())
		}
	}
	if siblings == nil {
		return ""
	}
	return "; the kernel would drop " + strings.Join(siblings, ", ") + " with it (promote_secondaries is 0)"
}

// checkComplete: half a listing proves nothing (I6).
func checkComplete(_ Policy, s host.State, _ Prepared) *vipmovev1.Refusal {
	if len(s.Incomplete) == 0 {
		return nil
	}
	return refuse(vipmovev1.Refusal_DUMP_INCOMPLETE, "ask again; if it stays, see the agent's log for what cannot be read",
		"the kernel's state is incomplete: %s", strings.Join(s.Incomplete, "; "))
}

// checkLink: the link is the planned one and one that may be changed.
func checkLink(p Policy, s host.State, e Prepared) *vipmovev1.Refusal {
	const next = "make a new plan: links have changed since"
	i := slices.IndexFunc(s.Links, func(l host.Link) bool { return l.Index == e.Entry.LinkIndex })
	if i < 0 {
		return refuse(vipmovev1.Refusal_LINK_CHANGED, next, "no link has index %d any more", e.Entry.LinkIndex)
	}
	link := s.Links[i]
	if link.Name != e.Entry.Link {
		return refuse(vipmovev1.Refusal_LINK_CHANGED, next, "link index %d is %s now, not %s", link.Index, link.Name, e.Entry.Link)
	}
	if why := p.allowsLink(link); why != "" {
		return refuse(vipmovev1.Refusal_LINK_NOT_ALLOWED, "name the link with --allow-link on this node, if the administrator agrees",
			"%s: %s", link.Name, why)
	}
	return nil
}

// checkListing: what the kernel has is exactly the entry, or nothing.
func checkListing(_ Policy, s host.State, e Prepared) *vipmovev1.Refusal {
	const next = "make a new plan from what is there now"
	_, found := listed(e.Entry, s.Addresses)
	for _, a := range s.Addresses {
		if a.LinkIndex != e.Entry.LinkIndex || a.Prefix.Addr() != e.Entry.Prefix.Addr() || sameEntry(e.Entry, a) {
			continue
		}
		if found {
			return refuse(vipmovev1.Refusal_ENTRY_CHANGED, next, "%s is on %s a second time, as %s", e.Entry.Prefix, e.Entry.Link, describe(a))
		}
		return refuse(vipmovev1.Refusal_ENTRY_CHANGED, next, "%s is there as %s, not as planned (%s)",
			a.Prefix.Addr(), describe(a), describeTuple(e.Entry))
	}
	return nil
}
