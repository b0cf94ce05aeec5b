// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net/netip"
)

// Tuple is one address on one link, with everything needed to take off exactly
// that and to put exactly that back. It is written to disk as JSON before the
// address is deleted.
type Tuple struct {
	Link              string       `json:"link"`
	LinkIndex         int          `json:"linkIndex"`
	Prefix            netip.Prefix `json:"prefix"` // the address with its prefix length, not masked
	Peer              netip.Prefix `json:"peer"`   // zero = none
	Broadcast         netip.Addr   `json:"broadcast"`
	Scope             uint8        `json:"scope"` // RT_SCOPE_*
	Label             string       `json:"label"`
	Flags             uint32       `json:"flags"`             // IFA_F_*
	ValidLifetime     uint32       `json:"validLifetime"`     // seconds; 0 = not recorded, taken as Forever
	PreferredLifetime uint32       `json:"preferredLifetime"` // seconds
	Metric            uint32       `json:"metric"`
	Protocol          uint8        `json:"protocol"`
}

// Tuple is the address as a tuple.
func (a Address) Tuple() Tuple {
	return Tuple{
		Link: a.Link, LinkIndex: a.LinkIndex,
		Prefix: a.Prefix, Peer: a.Peer, Broadcast: a.Broadcast,
		Scope: a.Scope, Label: a.Label, Flags: a.Flags,
		ValidLifetime: a.ValidLifetime, PreferredLifetime: a.PreferredLifetime,
		Metric: a.Metric, Protocol: a.Protocol,
	}
}

// String names the address and the link.
func (t Tuple) String() string { return fmt.Sprintf("%s on %s", t.Prefix, t.Link) }

// is says whether a is the address that t names: same link, prefix, peer,
// scope and label. Flags and lifetimes change by themselves.
func (t Tuple) is(a Address) bool {
	return a.LinkIndex == t.LinkIndex && a.Prefix == t.Prefix && a.Peer == t.Peer &&
		a.Scope == t.Scope && a.Label == t.Label
}

// differs says in what a, an address with t's IP, is not t.
func (t Tuple) differs(a Address) string {
	switch {
	case a.Prefix != t.Prefix:
		return fmt.Sprintf("present as /%d", a.Prefix.Bits())
	case a.Peer != t.Peer && a.Peer.IsValid():
		return "present with peer " + a.Peer.String()
	case a.Peer != t.Peer:
		return "present without a peer"
	case a.Label != t.Label:
		return fmt.Sprintf("present with label %q", a.Label)
	case a.Scope != t.Scope:
		return fmt.Sprintf("present with scope %d", a.Scope)
	}
	return "present"
}

// Result is what became of a Remove or a Restore.
type Result uint8

// Results. The zero value is Unknown.
const (
	Unknown        Result = iota // the listing that would tell could not be read
	Removed                      // was there, was deleted, is in no listing
	AlreadyAbsent                // nothing had to be deleted; a clean listing proves it
	StillPresent                 // a listing shows it, or its local route
	Refused                      // nothing was sent to the kernel
	Restored                     // was not there, was added, is listed
	AlreadyPresent               // nothing had to be added; a clean listing proves it
	Failed                       // it is not there as recorded
)

var resultNames = [...]string{"unknown", "removed", "already absent", "still present", "refused", "restored", "already present", "failed"}

// String is the word for logs and for people.
func (r Result) String() string {
	if int(r) < len(resultNames) {
		return resultNames[r]
	}
	return fmt.Sprintf("result %d", uint8(r))
}

// Outcome is what became of a Remove or a Restore, with what proves it.
type Outcome struct {
	Result Result
	Sent   bool      // the kernel was asked for the change
	Detail string    // a sentence where there is more to say, e.g. "present as /24"
	Left   []Address // the link's addresses afterwards; nil = not known
	// Covering are the local routes that still cover the address afterwards,
	// through other links or wider prefixes: the kernel may answer because of them.
	Covering []Route
}
