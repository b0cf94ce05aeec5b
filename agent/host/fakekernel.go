// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// BootTime is the clock that Advance moves.
func (f *Fake) BootTime() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clock() + f.ahead
}

// BootID is FakeWorld.BootID, unless it was broken.
func (f *Fake) BootID() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.faults.broken["boot id"]; err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return f.bootID, nil
}

// State reads the fake's world; see Kernel.
func (f *Fake) State(ctx context.Context, watched []netip.Addr) (State, error) {
	st := State{BootTime: f.BootTime()}
	var err error
	if st.BootID, err = f.BootID(); err != nil {
		st.missing("boot id", err)
	}
	st.DumpRetries, err = uninterrupted(ctx, noPause, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.interrupted() {
			return ErrInterrupted
		}
		if err := f.faults.broken["links and addresses"]; err != nil {
			return err
		}
		st.Links, st.Addresses = slices.Clone(f.links), slices.Clone(f.addresses)
		return nil
	})
	if ctx.Err() != nil {
		return State{}, fmt.Errorf("reading this node's state: %w", ctx.Err())
	}
	if err != nil {
		st.missing("links and addresses", err)
	}
	f.rest(&st, watched)
	return st, nil
}

// rest fills in what is neither link nor address.
func (f *Fake) rest(st *State, watched []netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	covers := func(r Route) bool {
		return slices.ContainsFunc(watched, r.Covers) || r.Type == "unicast" && (len(r.Gateways) > 0 || r.Source.IsValid())
	}
	for part, read := range map[string]func(){
		"routes":        func() { st.Routes = filter(append(f.localRoutes(), f.routes...), covers) },
		"routing rules": func() { st.Rules = slices.Clone(f.rules) },
		"neighbours": func() {
			st.Neighbours = filter(f.neighbours, func(n Neighbour) bool { return slices.Contains(watched, n.IP) })
		},
	} {
		if err := f.faults.broken[part]; err != nil {
			st.missing(part, err)
		} else {
			read()
		}
	}
	slices.Sort(st.Incomplete)
	st.LinkSysctls = map[string]Sysctls{}
	for _, l := range st.Links {
		st.LinkSysctls[l.Name] = Sysctls{}
	}
	if f.faults.broken["sysctls"] == nil {
		st.AllSysctls, st.DefaultSysctls, st.IPForward = f.all, f.def, f.ipForward
		maps.Copy(st.LinkSysctls, f.sysctls)
	}
	st.IPVS, st.KubeProxy, st.ARPPath = f.ipvs, f.kubeProxy, f.arpPath
	if st.IPVS.State == IPVSUnreadable {
		st.Incomplete = append(st.Incomplete, "IPVS services: "+st.IPVS.Reason)
	}
}

func filter[T any](list []T, keep func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(v T) bool { return !keep(v) })
}

func noPause(context.Context, int) {}

// ListLink lists one link; see Kernel.
func (f *Fake) ListLink(ctx context.Context, index int) ([]Address, error) {
	list, err := f.list(ctx, index)
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of link index %d: %w", index, err)
	}
	return list, nil
}

// Remove deletes exactly t; see Kernel.
func (f *Fake) Remove(ctx context.Context, t Tuple) (Outcome, error) { return remove(ctx, f, t) }

// Restore puts t back; see Kernel.
func (f *Fake) Restore(ctx context.Context, t Tuple) (Outcome, error) { return restore(ctx, f, t) }

func (f *Fake) name(index int) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, err := f.linkByIndex(index)
	if err != nil {
		return "", ErrNoLink
	}
	return l.Name, nil
}

func (f *Fake) list(ctx context.Context, index int) (list []Address, err error) {
	_, err = uninterrupted(ctx, noPause, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.interrupted() {
			return ErrInterrupted
		}
		if _, err := f.linkByIndex(index); err != nil {
			return ErrNoLink
		}
		if err := f.faults.broken["links and addresses"]; err != nil {
			return err
		}
		list = filter(f.addresses, func(a Address) bool { return a.LinkIndex == index })
		return nil
	})
	return list, err
}

func (f *Fake) local(_ context.Context, ip netip.Addr) ([]Route, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.faults.broken["routes"]; err != nil {
		return nil, err
	}
	return filter(append(f.localRoutes(), f.routes...), func(r Route) bool {
		return r.Table == LocalTable && r.Type == "local" && r.Covers(ip)
	}), nil
}

// localRoutes are those that the kernel makes for addresses: IPv4 on any link,
// IPv6 on links that are up.
func (f *Fake) localRoutes() []Route {
	var list []Route
	for _, a := range f.addresses {
		ip := a.Prefix.Addr()
		if l, err := f.linkByIndex(a.LinkIndex); err != nil || ip.Is6() && !l.Up {
			continue
		}
		r := Route{
			Prefix: netip.PrefixFrom(ip, ip.BitLen()), Type: "local", Table: LocalTable,
			Link: a.Link, LinkIndex: a.LinkIndex, Links: []int{a.LinkIndex},
			Scope: unix.RT_SCOPE_HOST, Protocol: unix.RTPROT_KERNEL,
		}
		if ip.Is4() {
			r.Source = ip
		}
		list = append(list, r)
	}
	return list
}

func (f *Fake) del(t Tuple) error {
	f.step(Deleting, t)
	err := f.request(&f.deletes, &f.faults.del, t, func() error {
		if _, err := f.linkByIndex(t.LinkIndex); err != nil {
			return err
		}
		gone := f.take(func(a Address) bool { return sameHost(a, t) && (t.Label == "" || a.Label == t.Label) })
		if !gone {
			return syscall.EADDRNOTAVAIL
		}
		return nil
	})
	f.step(Deleted, t)
	return err
}

func (f *Fake) add(t Tuple) error {
	f.step(Adding, t)
	err := f.request(&f.adds, &f.faults.add, t, func() error {
		_, err := f.insert(t)
		return err
	})
	f.step(Added, t)
	return err
}

// request plays one change: refused, answered by the script, or done.
func (f *Fake) request(log *[]Tuple, script *[]answer, t Tuple, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	*log = append(*log, t)
	if f.faults.denied {
		return syscall.EPERM
	}
	scripted, ok := next(script)
	if !ok {
		return do()
	}
	if scripted.done {
		return errors.Join(do(), scripted.err)
	}
	return scripted.err
}

// take removes the addresses that match.
func (f *Fake) take(match func(Address) bool) bool {
	before := len(f.addresses)
	f.addresses = slices.DeleteFunc(f.addresses, func(a Address) bool {
		if !match(a) {
			return false
		}
		f.hint(Hint{Kind: AddressChanged, LinkIndex: a.LinkIndex, Address: a.Prefix.Addr(), Gone: true})
		return true
	})
	return len(f.addresses) < before
}

// insert adds an address as the kernel would store it.
func (f *Fake) insert(t Tuple) (Tuple, error) {
	l, err := f.linkByIndex(t.LinkIndex)
	if err != nil {
		return t, err
	}
	a := t.address()
	a.Link = l.Name
	if a.ValidLifetime == 0 {
		a.ValidLifetime, a.PreferredLifetime = Forever, Forever
	}
	a.Flags &= settableFlags
	if a.ValidLifetime == Forever {
		a.Flags |= unix.IFA_F_PERMANENT
	}
	if a.Prefix.Addr().Is4() && a.Label == "" {
		a.Label = l.Name
	}
	for _, other := range f.addresses {
		if other.LinkIndex != a.LinkIndex {
			continue
		}
		if other.Prefix == a.Prefix || a.Prefix.Addr().Is6() && other.Prefix.Addr() == a.Prefix.Addr() {
			return t, syscall.EEXIST
		}
		if a.Prefix.Addr().Is4() && subnet(other.Prefix) == subnet(a.Prefix) {
			a.Flags |= unix.IFA_F_SECONDARY
		}
	}
	f.addresses = append(f.addresses, a)
	f.hint(Hint{Kind: AddressChanged, LinkIndex: a.LinkIndex, Address: a.Prefix.Addr()})
	return a.Tuple(), nil
}

// listener is one subscription. Its channel holds what the kernel's socket
// buffer would.
type listener struct {
	hints chan Hint
	lost  chan struct{}
}

// Changes delivers a hint for every change of the world; see Kernel.
func (f *Fake) Changes(ctx context.Context, fn func(Hint)) error {
	l := &listener{hints: make(chan Hint, 1024), lost: make(chan struct{})}
	f.mu.Lock()
	f.listeners[l] = struct{}{}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.listeners, l)
		f.mu.Unlock()
	}()
	fn(Hint{Kind: Subscribed})
	for {
		select {
		case h := <-l.hints:
			fn(h)
		case <-l.lost:
			return fmt.Errorf("listening for kernel changes: %w", ErrOverflow)
		case <-ctx.Done():
			return fmt.Errorf("listening for kernel changes: %w", ctx.Err())
		}
	}
}

// hint tells every listener; one that is too slow loses its subscription.
func (f *Fake) hint(h Hint) {
	for l := range f.listeners {
		select {
		case l.hints <- h:
		default:
			close(l.lost)
			delete(f.listeners, l)
		}
	}
}
