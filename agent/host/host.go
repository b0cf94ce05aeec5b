// SPDX-License-Identifier: Apache-2.0

// Package host is what this node's kernel says, and the one thing we change:
// one host address on one link, taken off or put back. Beside that, Mute keeps
// the kernel's own ARP replies for one address back for a moment.
//
// It is the agent's only door to netlink. Every answer is either complete or
// says that it is not: a dump that the kernel marked as interrupted is thrown
// away and asked for again, and after the last try the list stays nil and
// State.Incomplete says so in a sentence. Unknown is never absent.
//
// Everything acts on the network namespace of the calling thread; an agent
// has only one.
package host

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// Kernel is the node's kernel. Linux is the real one, Fake a scripted one; one
// contract test runs on both.
type Kernel interface {
	// State reads everything a judgement needs about this node. watched are
	// the VIPs whose routes and neighbour entries are wanted. What could not
	// be read is in State.Incomplete; the error is non-nil only when ctx ended.
	State(ctx context.Context, watched []netip.Addr) (State, error)

	// ListLink lists the addresses of one link, and asks the kernel for that
	// link only. The list is complete or the error is non-nil (ErrNoLink,
	// ErrInterrupted, …).
	ListLink(ctx context.Context, index int) ([]Address, error)

	// Remove deletes exactly t. A fresh listing of the link and of the local
	// table decides the outcome, whatever the kernel answered to the delete.
	// The error is nil only for Removed and AlreadyAbsent.
	Remove(ctx context.Context, t Tuple) (Outcome, error)

	// Restore puts t back. The error is nil only for Restored and
	// AlreadyPresent.
	Restore(ctx context.Context, t Tuple) (Outcome, error)

	// Mute drops this kernel's own ARP replies for ip, at most for d (up to
	// MaxMute), which the kernel itself keeps; lift ends it. One at a time.
	// Programs that answer without the kernel go on. ErrMuteUnsupported where
	// nftables has no ARP family.
	Mute(ip netip.Addr, d time.Duration) (lift func() error, err error)

	// ClearMute ends a mute that an earlier process may have left.
	ClearMute() error

	// BootTime is CLOCK_BOOTTIME: it goes on while the machine sleeps and no
	// one can set it.
	BootTime() time.Duration

	// BootID is the kernel's random id of this boot
	// (/proc/sys/kernel/random/boot_id).
	BootID() (string, error)

	// Changes calls fn for what the kernel reports to have changed, until ctx
	// ends or hints were lost (ErrOverflow). A hint is a reason to look, never
	// a fact. The first hint is Subscribed: only from then on is nothing
	// missed, so dump after it. On any error: subscribe, dump, start over.
	Changes(ctx context.Context, fn func(Hint)) error
}

// Errors that callers tell apart. They come wrapped with what was being done.
var (
	// ErrInterrupted: the tables changed during every try of a dump
	// (NLM_F_DUMP_INTR, include/uapi/linux/netlink.h).
	ErrInterrupted = errors.New("interrupted by changes")
	// ErrNoLink: no link has that index now.
	ErrNoLink = errors.New("no such link")
	// ErrLinkRenamed: the link of that index has another name now.
	ErrLinkRenamed = errors.New("link has another name")
	// ErrNotHostPrefix: not a /32 or /128, so siblings could go with it.
	ErrNotHostPrefix = errors.New("not a host prefix")
	// ErrStillPresent: the listing shows the address, or a local route for it.
	ErrStillPresent = errors.New("still present")
	// ErrNotRestored: the listing does not show the address as recorded.
	ErrNotRestored = errors.New("not restored")
	// ErrOverflow: the kernel dropped change notifications (ENOBUFS).
	ErrOverflow = errors.New("change notifications were lost")
)

// HintKind is what a Hint is about.
type HintKind string

// Kinds of hints.
const (
	Subscribed     HintKind = "subscribed"
	LinkChanged    HintKind = "link"
	AddressChanged HintKind = "address"
	RouteChanged   HintKind = "route"
)

// Hint says that something changed in the kernel.
type Hint struct {
	Kind      HintKind
	LinkIndex int        // 0 where the kernel names none
	Address   netip.Addr // of an address hint, or the destination of a route hint
	Gone      bool       // deleted rather than new or changed
}
