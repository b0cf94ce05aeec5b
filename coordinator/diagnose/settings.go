// SPDX-License-Identifier: Apache-2.0

package diagnose

import "slices"

// settings is one way in which everything that decides about a request could be. What is known
// has one value in all of them.
type settings struct {
	arpIgnore, rpFilter                              int
	acceptLocal, routeLocalnet, arpFilter, proxyARP  bool
	forwarding, checksLocalRoutes, localnetElsewhere bool
	apart                                            bool   // local and main are tables of their own, see lookupApart
	vip, sip                                         *route // that win; kind "" is none
	vipApart, sipApart                               *route // in their place when apart
}

// effective has the routes that win in their one place.
func (s settings) effective() settings {
	if s.apart {
		s.vip, s.sip = s.vipApart, s.sipApart
		s.checksLocalRoutes = true // fib_validate_source: or custom rules
	}
	return s
}

// byLocalTable tells whether the VIP's route is found by those who ask table local alone
// (inet_addr_type, __ip_dev_find).
func (s settings) byLocalTable() bool {
	return s.vip.table == tableLocal || s.vip.table == tableMain && !s.apart
}

// variable is one thing that is not known, by its name; clear makes settings alike in it.
type variable struct {
	name  string
	clear func(*settings)
}

// possible are all settings that what is known allows for, and what is not known.
type possible struct {
	all       []settings
	variables []variable
}

// choose multiplies by the values that one thing could have.
func choose[T any](p *possible, name string, values []T, set func(*settings, T)) {
	if len(values) > 1 {
		p.variables = append(p.variables, variable{name: name, clear: func(s *settings) { var zero T; set(s, zero) }})
	}
	if len(values) == 1 {
		for i := range p.all {
			set(&p.all[i], values[0])
		}
		return
	}
	grown := make([]settings, 0, len(p.all)*len(values))
	for _, s := range p.all {
		for _, v := range values {
			set(&s, v)
			grown = append(grown, s)
		}
	}
	p.all = grown
}

// maxOf is IN_DEV_MAXCONF (include/linux/inetdevice.h): the larger of conf/all and the link's.
// unread are values that stand for all that an unreadable one could have.
func maxOf(all, link *int, unread ...int) []int {
	left, right := unread, unread
	if all != nil {
		left = []int{*all}
	}
	if link != nil {
		right = []int{*link}
	}
	var out []int
	for _, a := range left {
		for _, b := range right {
			if v := max(a, b); !slices.Contains(out, v) {
				out = append(out, v)
			}
		}
	}
	return out
}

// orOf is IN_DEV_ORCONF: set in conf/all or on the link.
func orOf(all, link *int) []bool {
	switch {
	case all != nil && *all != 0, link != nil && *link != 0:
		return []bool{true}
	case all == nil || link == nil:
		return []bool{false, true}
	}
	return []bool{false}
}

// only is the value of an optional setting that conf/all does not touch.
func only(link *int) []bool {
	if link == nil {
		return []bool{false, true}
	}
	return []bool{*link != 0}
}

// relevant names the unknown things by which alone the answer changes.
func (p possible) relevant(judge func(settings) Cause) []string {
	var names []string
	for _, v := range p.variables {
		seen := map[settings]Would{}
		for _, s := range p.all {
			a := judge(s).would()
			v.clear(&s)
			if before, ok := seen[s]; ok && before != a {
				names = appendNew(names, v.name)
				break
			}
			seen[s] = a
		}
	}
	return names
}

// ArpIgnore is the effective arp_ignore of a receiving link, the larger of conf/all and its own;
// false where either could not be read.
func (k *Kernel) ArpIgnore(nic string) (int, bool) {
	l := k.link(nic)
	if l == nil || k.All.ArpIgnore == nil || l.Sysctls.ArpIgnore == nil {
		return 0, false
	}
	return max(*k.All.ArpIgnore, *l.Sysctls.ArpIgnore), true
}
