// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"net/netip"
	"slices"
)

// lookup gives the entries that could win for ip, more than one where their order is not listed; the
// zero route is none. Without policy rules of its own a kernel has local and main in one trie
// (fib_table_lookup, net/ipv4/fib_trie.c), so the longest prefix of both wins, local before main.
// What they miss or throw is looked for in default; what they reject too, by some kernels
// (fib_lookup, include/net/ip_fib.h: every error went on once, now only EAGAIN does).
func (f fib) lookup(ip netip.Addr) []route {
	f = f.covering(ip)
	best := f.longest(tableMain, tableLocal)
	if !goesOn(best) && !best[0].rejects() {
		return best
	}
	found := slices.DeleteFunc(f.longest(tableDefault, tableDefault), route.rejects)
	if !goesOn(best) && len(found) > 0 {
		found = append(found, route{})
	}
	return found
}

// lookupApart is lookup once the kernel was given a policy rule of its own, even one that is gone
// or for marked packets only: local and main are apart for good (fib_unmerge,
// net/ipv4/fib_frontend.c) and asked in turn, and what rejects ends the search (fib_rules_lookup,
// net/core/fib_rules.c). Where a rule is about unmarked packets too, neither is right.
func (f fib) lookupApart(ip netip.Addr) []route {
	f = f.covering(ip)
	for _, table := range []uint32{tableLocal, tableMain, tableDefault} {
		if best := f.longest(table, table); !goesOn(best) {
			return slices.DeleteFunc(best, route.rejects)
		}
	}
	return nil
}

// goesOn: the next table is asked (EAGAIN).
func goesOn(found []route) bool { return len(found) == 0 || found[0].kind == throw }

// covering are the entries whose prefix holds ip. Where the kernel's own entries of table local are
// listed, so are all others, and what the addresses should have made and did not is not there.
func (f fib) covering(ip netip.Addr) fib {
	var all, listed fib
	complete := false
	for _, r := range f {
		if !r.prefix.Contains(ip) {
			continue
		}
		all = append(all, r)
		if r.listed.listed {
			listed = append(listed, r)
			complete = complete || r.table == tableLocal && r.listed.protocol == byKernel
		}
	}
	if complete {
		return listed
	}
	return all
}

// firstOf keeps the first of routes to the same prefix, which is the one that wins: a kernel lists
// them as it looks at them. With it stay those that may be ways of the same multipath route. All
// stay where one is not listed and so has no place.
func firstOf(same []route) []route {
	if slices.ContainsFunc(same, func(r route) bool { return !r.listed.listed }) {
		return same
	}
	for i, r := range same {
		if r.kind != unicast || r.listed != same[0].listed || r.listed.protocol == byKernel {
			return same[:max(i, 1)]
		}
	}
	return same
}

// rejects: fib_props (net/ipv4/fib_semantics.c) gives these an error, so the lookup finds nothing.
func (r route) rejects() bool {
	switch r.kind {
	case unicast, local, broadcast, anycast, multicast:
		return false
	}
	return true
}

// longest lists the entries of the longest prefix in the highest table of the range that could win.
func (f fib) longest(low, high uint32) []route {
	var best []route
	for _, r := range f {
		if r.table < low || r.table > high {
			continue
		}
		if len(best) > 0 {
			if r.prefix.Bits() < best[0].prefix.Bits() || (r.prefix.Bits() == best[0].prefix.Bits() && r.table < best[0].table) {
				continue
			}
			if r.prefix.Bits() > best[0].prefix.Bits() || r.table > best[0].table {
				best = best[:0]
			}
		}
		if !slices.ContainsFunc(best, func(b route) bool { return b.kind == r.kind && b.link == r.link }) {
			best = append(best, r)
		}
	}
	best = firstOf(best)
	slices.SortFunc(best, func(a, b route) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.link, b.link)) })
	return best
}
