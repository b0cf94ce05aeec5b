// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Scopes of an address (include/uapi/linux/rtnetlink.h).
const (
	scopeLink = 253
	scopeHost = 254
)

// request is one ARP request as the receiving kernel sees it.
type request struct {
	kernel   *Kernel
	nic      *Link
	vip, sip netip.Addr
	ownSIP   bool // sip is an address of this node
	possible possible
}

func newRequest(k *Kernel, nic *Link, vip netip.Addr, sender Sender) *request {
	f := k.fib()
	r := &request{kernel: k, nic: nic, vip: vip, sip: sender.Addr}
	if !r.sip.IsValid() {
		r.sip = neighbourOf(k, f, nic, vip)
	}
	for _, a := range k.Addresses {
		r.ownSIP = r.ownSIP || a.Prefix.Addr() == r.sip
	}
	r.possible = r.allFor(f)
	return r
}

// allFor lists every way in which the settings could be.
func (r *request) allFor(f fib) possible {
	all, own, nic := r.kernel.All, r.nic.Sysctls, " of "+r.nic.Name
	p := possible{all: []settings{{}}}
	choose(&p, "arp_ignore"+nic, maxOf(all.ArpIgnore, own.ArpIgnore, 0, 1, 2, 3, 8, 9), func(s *settings, v int) { s.arpIgnore = v })
	choose(&p, "rp_filter"+nic, maxOf(all.RpFilter, own.RpFilter, 0, 1, 2), func(s *settings, v int) { s.rpFilter = v })
	choose(&p, "accept_local"+nic, orOf(all.AcceptLocal, own.AcceptLocal), func(s *settings, v bool) { s.acceptLocal = v })
	choose(&p, "route_localnet"+nic, orOf(all.RouteLocalnet, own.RouteLocalnet), func(s *settings, v bool) { s.routeLocalnet = v })
	choose(&p, "arp_filter"+nic, orOf(all.ArpFilter, own.ArpFilter), func(s *settings, v bool) { s.arpFilter = v })
	choose(&p, "proxy_arp"+nic, orOf(all.ProxyArp, own.ProxyArp), func(s *settings, v bool) { s.proxyARP = v })
	choose(&p, "forwarding"+nic, only(own.Forwarding), func(s *settings, v bool) { s.forwarding = v })
	choose(&p, "whether a local route was ever added by hand", r.customLocalRoutes(), func(s *settings, v bool) { s.checksLocalRoutes = v })
	choose(&p, "route_localnet of the links that hold the address", r.localnetElsewhere(), func(s *settings, v bool) { s.localnetElsewhere = v })
	order := "the order of its routes to "
	vip, sip := r.kinds(f.lookup(r.vip)), r.kinds(f.lookup(r.sip))
	vipApart, sipApart := r.kinds(f.lookupApart(r.vip)), r.kinds(f.lookupApart(r.sip))
	choose(&p, order+r.vip.String(), vip, func(s *settings, v *route) { s.vip = v })
	choose(&p, order+r.sip.String(), sip, func(s *settings, v *route) { s.sip = v })
	if alike(vip, vipApart) && alike(sip, sipApart) {
		return p
	}
	choose(&p, "whether it ever had policy rules of its own", []bool{false, true}, func(s *settings, v bool) { s.apart = v })
	choose(&p, order+r.vip.String(), vipApart, func(s *settings, v *route) { s.vipApart = v })
	choose(&p, order+r.sip.String(), sipApart, func(s *settings, v *route) { s.sipApart = v })
	return p
}

// kinds keeps one of those that mean the same here: of one kind, by this NIC or by another link.
func (r *request) kinds(routes []route) []*route {
	if len(routes) == 0 {
		return []*route{{}}
	}
	var out []*route
	for i := range routes {
		e := &routes[i]
		if !slices.ContainsFunc(out, func(o *route) bool {
			return o.kind == e.kind && (o.link == r.nic.Name) == (e.link == r.nic.Name)
		}) {
			out = append(out, e)
		}
	}
	return out
}

// alike: it is all the same whether the tables are apart, but for those who ask table local alone.
func alike(together, apart []*route) bool {
	return slices.EqualFunc(together, apart, func(t, a *route) bool { return *t == *a && (t.table != tableMain || t.kind != local) })
}

// customLocalRoutes: the kernel looks closer at senders once a local route was added by hand, and
// goes on when it is gone again (fib_has_custom_local_routes, inet_rtm_newroute).
func (r *request) customLocalRoutes() []bool {
	for _, e := range r.kernel.Routes {
		if e.Type == local && e.Protocol != byKernel && e.Protocol != 0 {
			return []bool{true}
		}
	}
	return []bool{false, true}
}

// localnetElsewhere matters for arp_ignore 3, which looks at every link's own route_localnet.
func (r *request) localnetElsewhere() []bool {
	for i := range r.kernel.Links {
		l := &r.kernel.Links[i]
		if len(orOf(r.kernel.All.RouteLocalnet, l.Sysctls.RouteLocalnet)) > 1 {
			return []bool{false, true}
		}
	}
	return []bool{false}
}

// judge is unknown where two ways in which the settings could be answer differently.
func (r *request) judge() Answer {
	first := r.decide(r.possible.all[0])
	for _, s := range r.possible.all[1:] {
		if r.decide(s).would() != first.would() {
			return answer(AnswerUnknown, CauseUnknown, "it depends on %s, which is not known",
				strings.Join(r.possible.relevant(r.decide), " and "))
		}
	}
	return Answer{Would: first.would(), Cause: first, Reason: r.explain(first, r.possible.all[0])}
}

// would: two causes make a kernel answer, all others keep it silent.
func (c Cause) would() Would {
	if c == CauseLocal || c == CauseProxy {
		return AnswerYes
	}
	return AnswerNo
}

// decide is arp_process (net/ipv4/arp.c) for a request, with ip_route_input_slow
// (net/ipv4/route.c) for what it calls.
func (r *request) decide(s settings) Cause {
	s = s.effective()
	switch {
	case !r.askable(s):
		return CauseNotLocal
	case r.sip == netip.IPv4Unspecified():
		return r.zeroSender(s)
	case r.martian(s):
		return CauseMartian
	case s.vip.kind == local:
		return r.local(s)
	case s.vip.kind == unicast:
		return r.proxy(s)
	}
	return CauseNotLocal
}

// askable: multicast, broadcast, 0.0.0.0 and, without route_localnet, 127/8 are never answered for.
// The rest of 0/8 is ordinary since Linux 5.3 (ipv4_is_zeronet).
func (r *request) askable(s settings) bool {
	if r.vip.IsLoopback() {
		return s.routeLocalnet
	}
	return r.vip.IsGlobalUnicast() || r.vip.IsLinkLocalUnicast()
}

// zeroSender is the RFC 5227 probe: local and not hidden, without any look at the sender.
func (r *request) zeroSender(s settings) Cause {
	switch {
	case s.vip.kind != local || !s.byLocalTable():
		return CauseNotLocal
	case r.hidden(s):
		return CauseArpIgnore
	}
	return CauseLocal
}

// martian senders are dropped by the route lookup at once.
func (r *request) martian(s settings) bool {
	return r.sip.IsMulticast() || r.sip == limitedBroadcast ||
		(r.sip.IsLoopback() && !r.vip.IsLoopback() && !s.routeLocalnet)
}

func (r *request) local(s settings) Cause {
	switch {
	case r.refusesSource(s):
		return CauseSource
	case r.hidden(s):
		return CauseArpIgnore
	case s.arpFilter && r.filtered(s):
		return CauseArpFilter
	}
	return CauseLocal
}

// proxy is arp_fwd_proxy: forwarding, proxy_arp, and the way to the VIP is another link.
func (r *request) proxy(s settings) Cause {
	switch {
	case !s.forwarding || !s.proxyARP || s.vip.link == r.nic.Name:
		return CauseNotLocal
	case r.refusesSource(s):
		return CauseSource
	}
	return CauseProxy
}

// explain says a decision for people.
func (r *request) explain(c Cause, s settings) string {
	nic := r.nic.Name
	switch c {
	case CauseLocal:
		return fmt.Sprintf("%s is local (%s on %s) and arp_ignore is %d on %s", r.vip, s.vip.prefix, s.vip.link, s.arpIgnore, nic)
	case CauseProxy:
		return fmt.Sprintf("proxy ARP on %s: the route to %s (%s) leaves by %s", nic, r.vip, s.vip.prefix, s.vip.link)
	case CauseArpIgnore:
		return fmt.Sprintf("arp_ignore %d on %s hides %s", s.arpIgnore, nic, r.vip)
	case CauseArpFilter:
		return fmt.Sprintf("arp_filter on %s: the way back to %s is not this link", nic, r.sip)
	case CauseSource:
		return fmt.Sprintf("the sender %s is not accepted on %s (rp_filter %d): the way back is another, or it is this node's own or a broadcast address", r.sip, nic, s.rpFilter)
	case CauseMartian:
		return fmt.Sprintf("the sender %s is martian", r.sip)
	}
	return fmt.Sprintf("%s is neither an address nor a local route here, and no proxy ARP covers it", r.vip)
}
