// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// State reads this node; see Kernel.
func (l *Linux) State(ctx context.Context, watched []netip.Addr) (State, error) {
	st := State{BootTime: l.BootTime()}
	var err error
	if st.BootID, err = l.BootID(); err != nil {
		st.missing("boot id", err)
	}
	r := inventory{Linux: l, state: &st, watched: watched, names: map[int]string{}}
	r.tables(ctx)
	l.sysctls(&st)
	var repeats int
	st.IPVS, repeats = l.ipvs(ctx)
	st.DumpRetries += repeats
	if st.IPVS.State == IPVSUnreadable {
		st.Incomplete = append(st.Incomplete, "IPVS services: "+st.IPVS.Reason)
	}
	st.KubeProxy = l.proxy.ask(ctx)
	st.ARPPath = l.arpPath(st.Links, st.Addresses, r.programs)
	if err := ctx.Err(); err != nil {
		return State{}, fmt.Errorf("reading this node's state: %w", err)
	}
	return st, nil
}

// missing notes a part that could not be read.
func (s *State) missing(part string, err error) {
	s.Incomplete = append(s.Incomplete, fmt.Sprintf("%s: %v", part, denied(err)))
}

// inventory reads the kernel's tables into a State.
type inventory struct {
	*Linux
	state    *State
	watched  []netip.Addr
	names    map[int]string    // link index to name, of the last clean list
	programs map[string]uint32 // XDP program by link name
}

func (r *inventory) tables(ctx context.Context) {
	st := r.state
	s, err := openSocket()
	if err != nil {
		st.missing("links, addresses, routes, rules and neighbours", err)
		return
	}
	defer s.close()
	r.clean(ctx, "links and addresses", func() (err error) {
		st.Links, st.Addresses, err = r.linksAndAddresses(ctx, s)
		return err
	})
	r.clean(ctx, "routes", func() (err error) {
		st.Routes, err = r.routes(ctx, s)
		return err
	})
	r.clean(ctx, "routing rules", func() error {
		v4, err := listRules(unix.AF_INET, "ipv4")
		if err != nil {
			return err
		}
		v6, err := listRules(unix.AF_INET6, "ipv6")
		if err == nil {
			st.Rules = append(v4, v6...)
		}
		return err
	})
	r.clean(ctx, "neighbours", func() (err error) {
		want := make(map[netip.Addr]bool, len(r.watched))
		for _, ip := range r.watched {
			want[ip] = true
		}
		st.Neighbours, err = s.neighbours(ctx, want, r.name)
		return err
	})
	st.Incomplete = append(st.Incomplete, unreadGateways(st.Routes)...)
}

// unreadGateways names the routes whose gateway is in a nexthop object that
// the kernel does not spell out (net.ipv4.nexthop_compat_mode=0): it could be
// any address, the one to be removed too.
func unreadGateways(routes []Route) []string {
	var list []string
	for _, r := range routes {
		if r.NextHop != 0 && len(r.Links) == 0 && len(r.Gateways) == 0 {
			list = append(list, fmt.Sprintf("routes: gateway of %s is in nexthop object %d, which is not read", r.Prefix, r.NextHop))
		}
	}
	return list
}

// clean reads one part until it is not interrupted, or notes it as missing.
func (r *inventory) clean(ctx context.Context, part string, once func() error) {
	repeats, err := uninterrupted(ctx, r.pause, once)
	r.state.DumpRetries += repeats
	if err != nil {
		r.state.missing(part, err)
	}
}

// linksAndAddresses lists both so that they belong together: every address is
// on a listed link. On an error both lists are nil.
func (r *inventory) linksAndAddresses(ctx context.Context, s *socket) ([]Link, []Address, error) {
	links, programs, err := r.listLinks()
	if err != nil {
		return nil, nil, err
	}
	addresses, err := s.addresses(ctx, 0)
	if err != nil {
		return nil, nil, err
	}
	names := make(map[int]string, len(links))
	for _, l := range links {
		names[l.Index] = l.Name
	}
	for i := range addresses {
		a := &addresses[i]
		if a.Link = names[a.LinkIndex]; a.Link == "" {
			return nil, nil, ErrInterrupted // its link came between the two dumps
		}
	}
	r.names, r.programs = names, programs
	return links, addresses, nil
}

func (r *inventory) name(index int) string { return r.names[index] }

// routes lists what Route says.
func (r *inventory) routes(ctx context.Context, s *socket) ([]Route, error) {
	keep := func(route Route) bool {
		if route.Type == "cached" {
			return false
		}
		for _, ip := range r.watched {
			if route.Covers(ip) {
				return true
			}
		}
		return route.Type == "unicast" &&
			(len(route.Gateways) > 0 || route.Source.IsValid() || route.NextHop != 0)
	}
	v4, err := s.routes(ctx, unix.AF_INET, 0, keep)
	if err != nil {
		return nil, fmt.Errorf("IPv4: %w", err)
	}
	v6, err := s.routes(ctx, unix.AF_INET6, 0, keep)
	if err != nil {
		return nil, fmt.Errorf("IPv6: %w", err)
	}
	list := append(v4, v6...)
	for i := range list {
		list[i].Link = r.names[list[i].LinkIndex]
	}
	return list, nil
}
