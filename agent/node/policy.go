// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vipmove/vipmove/agent/host"
)

// DefaultLink is the dummy link that kube-proxy in IPVS mode makes.
const DefaultLink = "kube-ipvs0"

// Policy is what the node's administrator allows this agent, by file or flag;
// nothing of it ever comes from the wire.
type Policy struct {
	Act      bool           // false: the agent only looks
	Links    []string       // links it may change; none: DefaultLink, if that is a dummy
	Prefixes []netip.Prefix // ranges that an address must lie in
	// MaxChanges is how many addresses may be taken off within ChangeWindow,
	// whoever asks.
	MaxChanges int
}

// ChangeWindow is the time, on CLOCK_BOOTTIME, that Policy.MaxChanges is about.
const ChangeWindow = time.Hour

// managedDummies are links that some software makes to hold service addresses
// and that carry no traffic themselves. An address may be on one of them and
// on an allowed link; the copy on the other is left alone.
var managedDummies = []string{DefaultLink, "kube-dummy-if", "nodelocaldns"}

// facts are what the guard has to know about this agent at this moment.
type facts struct {
	Node     string
	BootID   string
	Boottime time.Duration
	Paused   string // path of the pause file when it is there, or a sentence why nobody knows; empty: not paused
	NoRights string // why the kernel would not let this process change addresses; empty: it would
	Damaged  string // why records cannot be trusted or written; empty: they can
	Pending  *Step  // the open undo of this node, if any
	Changes  int    // addresses taken off within ChangeWindow
}

// allowsLink says why not, or nothing. A link that is no dummy has to be named.
func (p Policy) allowsLink(l host.Link) string {
	switch {
	case slices.Contains(p.Links, l.Name):
		return ""
	case len(p.Links) > 0:
		return "only " + strings.Join(p.Links, ", ") + " may be changed here"
	case l.Name != DefaultLink:
		return "only " + DefaultLink + " may be changed here"
	case carries(l):
		return "it is no dummy but " + cmp.Or(l.Kind, "a NIC")
	}
	return ""
}

// carries reports whether a link can carry traffic. An ifb stands for a dummy
// where the kernel has none.
func carries(l host.Link) bool { return l.Kind != "dummy" && l.Kind != "ifb" }

func (p Policy) allowsPrefix(a netip.Addr) bool {
	return slices.ContainsFunc(p.Prefixes, func(r netip.Prefix) bool { return r.Contains(a) })
}

// sameEntry reports whether the kernel's address is exactly the entry: link,
// prefix, peer, scope and label. Flags and lifetimes change by themselves.
func sameEntry(t host.Tuple, a host.Address) bool {
	return a.LinkIndex == t.LinkIndex && a.Link == t.Link && a.Prefix == t.Prefix && a.Peer == t.Peer &&
		a.Scope == t.Scope && a.Label == t.Label
}

// listed finds the entry in a listing.
func listed(t host.Tuple, list []host.Address) (host.Address, bool) {
	for _, a := range list {
		if sameEntry(t, a) {
			return a, true
		}
	}
	return host.Address{}, false
}

// absent reports whether neither an address with the entry's IP nor a local
// route for it is left on the entry's link: nothing there is to take off.
// It says nothing of an incomplete state.
func absent(t host.Tuple, s host.State) bool {
	ip := t.Prefix.Addr()
	for _, a := range s.Addresses {
		if a.LinkIndex == t.LinkIndex && a.Prefix.Addr() == ip {
			return false
		}
	}
	for _, r := range s.Routes {
		if r.Type == "local" && r.LinkIndex == t.LinkIndex && r.Prefix == netip.PrefixFrom(ip, ip.BitLen()) {
			return false
		}
	}
	return true
}
