// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"syscall"
)

// tables is the little that Remove and Restore need of a kernel. list and
// local give complete answers or an error.
type tables interface {
	name(index int) (string, error)
	list(ctx context.Context, index int) ([]Address, error)
	local(ctx context.Context, ip netip.Addr) ([]Route, error)
	add(t Tuple) error
	del(t Tuple) error
}

// remove deletes exactly t and lets a fresh listing say what came of it.
func remove(ctx context.Context, k tables, t Tuple) (Outcome, error) {
	doing := fmt.Sprintf("removing %s from %s", t.Prefix, t.Link)
	before, out, err := look(ctx, k, t)
	if err != nil {
		return out, fmt.Errorf("%s: %w", doing, err)
	}
	there := find(before, t)
	var sent error
	if there {
		sent = k.del(t)
	}
	// From here on the listing must be made whatever becomes of the caller.
	out, err = judgeRemoval(context.WithoutCancel(ctx), k, t, there, sent)
	if err != nil {
		err = fmt.Errorf("%s: %w", doing, err)
	}
	return out, err
}

// judgeRemoval lists again. sent is what the kernel answered to the delete.
func judgeRemoval(ctx context.Context, k tables, t Tuple, asked bool, sent error) (Outcome, error) {
	out := Outcome{Sent: asked}
	left, err := k.list(ctx, t.LinkIndex)
	if err != nil {
		return out, errors.Join(denied(sent), fmt.Errorf("listing %s afterwards: %w", t.Link, err))
	}
	out.Left = left
	routes, err := k.local(ctx, t.Prefix.Addr())
	if err != nil {
		return out, errors.Join(denied(sent), fmt.Errorf("listing the local table afterwards: %w", err))
	}
	out.Detail, out.Covering = remains(left, routes, t)
	if out.Detail != "" {
		out.Result = StillPresent
		if asked && sent == nil && find(left, t) {
			out.Detail = "present again right after it was deleted: something puts it back"
		}
		if sent != nil {
			return out, fmt.Errorf("%w: %w (%s)", denied(sent), ErrStillPresent, out.Detail)
		}
		return out, fmt.Errorf("%w: %s, not removed", ErrStillPresent, out.Detail)
	}
	switch {
	case !asked:
		out.Result = AlreadyAbsent
	case errors.Is(sent, syscall.EADDRNOTAVAIL):
		out.Result, out.Detail = AlreadyAbsent, "it vanished between listing and delete"
	case sent != nil:
		out.Result, out.Detail = Removed, fmt.Sprintf("the kernel answered %q and the address is gone", sent)
	default:
		out.Result = Removed
	}
	return out, nil
}

// remains says in what form t's IP is still held on its link, "" for none, and
// which other local routes cover it.
func remains(left []Address, routes []Route, t Tuple) (detail string, covering []Route) {
	ip := t.Prefix.Addr()
	if a, ok := nearest(left, t); ok {
		detail = t.differs(a)
	}
	for _, r := range routes {
		own := r.Type == "local" && r.LinkIndex == t.LinkIndex && r.Prefix == netip.PrefixFrom(ip, ip.BitLen())
		if own && detail == "" {
			detail = fmt.Sprintf("no address, but local route %s on %s", r.Prefix, t.Link)
		}
		if !own {
			covering = append(covering, r)
		}
	}
	return detail, covering
}

// restore adds exactly t and lets a fresh listing say what came of it.
func restore(ctx context.Context, k tables, t Tuple) (Outcome, error) {
	doing := fmt.Sprintf("restoring %s on %s", t.Prefix, t.Link)
	before, out, err := look(ctx, k, t)
	if err != nil {
		return out, fmt.Errorf("%s: %w", doing, err)
	}
	if find(before, t) {
		return Outcome{Result: AlreadyPresent, Left: before}, nil
	}
	sent := k.add(t)
	out = Outcome{Sent: true}
	out.Left, err = k.list(context.WithoutCancel(ctx), t.LinkIndex)
	switch {
	case err != nil:
		err = errors.Join(denied(sent), fmt.Errorf("listing %s afterwards: %w", t.Link, err))
	case find(out.Left, t):
		out.Result = Restored
		if sent != nil {
			out.Detail = fmt.Sprintf("the kernel answered %q and the address is there", sent)
		}
		return out, nil
	case sent != nil:
		out.Result, out.Detail = Failed, absence(out.Left, t)
		err = fmt.Errorf("%w: %w (%s)", denied(sent), ErrNotRestored, out.Detail)
	default:
		out.Result, out.Detail = Failed, absence(out.Left, t)
		err = fmt.Errorf("%w: %s", ErrNotRestored, out.Detail)
	}
	return out, fmt.Errorf("%s: %w", doing, err)
}

// look is what comes before any change: t must be a host address, its link
// must be the one that was recorded, and the link must be listable.
func look(ctx context.Context, k tables, t Tuple) ([]Address, Outcome, error) {
	refused := Outcome{Result: Refused}
	if !t.Prefix.IsValid() || !t.Prefix.IsSingleIP() {
		return nil, refused, fmt.Errorf("%w: addresses of the same subnet could go with it", ErrNotHostPrefix)
	}
	if err := ctx.Err(); err != nil {
		return nil, refused, err
	}
	name, err := k.name(t.LinkIndex)
	if err != nil {
		return nil, refused, fmt.Errorf("looking up link index %d: %w", t.LinkIndex, err)
	}
	if name != t.Link {
		return nil, refused, fmt.Errorf("%w: index %d is %s now", ErrLinkRenamed, t.LinkIndex, name)
	}
	before, err := k.list(ctx, t.LinkIndex)
	if err != nil {
		return nil, Outcome{}, fmt.Errorf("listing %s before: %w", t.Link, err)
	}
	return before, Outcome{}, nil
}

func find(list []Address, t Tuple) bool {
	for _, a := range list {
		if t.is(a) {
			return true
		}
	}
	return false
}

// nearest is the address of t's IP that is most like t, whatever order the
// kernel lists them in.
func nearest(list []Address, t Tuple) (found Address, ok bool) {
	for _, a := range list {
		switch {
		case a.Prefix.Addr() != t.Prefix.Addr():
		case t.is(a):
			return a, true
		case !ok, a.Prefix == t.Prefix, found.Prefix != t.Prefix && a.Prefix.Bits() > found.Prefix.Bits():
			found, ok = a, true
		}
	}
	return found, ok
}

// absence says what is there instead of t.
func absence(list []Address, t Tuple) string {
	if a, ok := nearest(list, t); ok {
		return t.differs(a)
	}
	return "the listing does not show it"
}

// permissionError tells an operator what a refused request needs.
type permissionError struct{ err error }

func (e *permissionError) Error() string { return "permission denied (needs CAP_NET_ADMIN)" }
func (e *permissionError) Unwrap() error { return e.err }

// denied names the capability where the kernel refused for want of it.
func denied(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return &permissionError{err}
	}
	return err
}
