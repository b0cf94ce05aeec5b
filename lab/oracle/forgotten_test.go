// SPDX-License-Identifier: Apache-2.0

//go:build linux

package oracle

import (
	"net/netip"
	"slices"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

// forgotten are things that a prediction could overlook. Each makes a kernel's
// inventory one without; what pointers in it point to is not its own.
var forgotten = map[string]func(*diagnose.Kernel){
	"arp_ignore of all":        func(k *diagnose.Kernel) { k.All.ArpIgnore = new(int) },
	"arp_ignore of the link":   everyLink(func(l *diagnose.Link) { l.Sysctls.ArpIgnore = new(int) }),
	"arp_filter of all":        func(k *diagnose.Kernel) { k.All.ArpFilter = new(int) },
	"arp_filter of the link":   everyLink(func(l *diagnose.Link) { l.Sysctls.ArpFilter = new(int) }),
	"rp_filter of all":         func(k *diagnose.Kernel) { k.All.RpFilter = new(int) },
	"rp_filter of the link":    everyLink(func(l *diagnose.Link) { l.Sysctls.RpFilter = new(int) }),
	"accept_local of all":      func(k *diagnose.Kernel) { k.All.AcceptLocal = new(int) },
	"accept_local of the link": everyLink(func(l *diagnose.Link) { l.Sysctls.AcceptLocal = new(int) }),
	"route_localnet":           func(k *diagnose.Kernel) { k.All.RouteLocalnet = new(int); everyLink(withoutLocalnet)(k) },
	"proxy_arp of all":         func(k *diagnose.Kernel) { k.All.ProxyArp = new(int) },
	"proxy_arp of the link":    everyLink(func(l *diagnose.Link) { l.Sysctls.ProxyArp = new(int) }),
	"forwarding":               everyLink(func(l *diagnose.Link) { l.Sysctls.Forwarding = new(int) }),
	"that forwarding is each link's own": everyLink(func(l *diagnose.Link) {
		one := 1
		l.Sysctls.Forwarding = &one
	}),

	"whether a link is up": everyLink(func(l *diagnose.Link) { l.Up = true }),
	"NOARP":                everyLink(func(l *diagnose.Link) { l.Flags &^= 0x80 }),
	"scopes":               everyAddress(func(a *diagnose.Address) { a.Scope = 0 }),
	"prefix lengths":       everyAddress(func(a *diagnose.Address) { a.Prefix = netip.PrefixFrom(a.Prefix.Addr(), 32) }),
	"peers":                everyAddress(func(a *diagnose.Address) { a.Peer = netip.Prefix{} }),
	"which link an address is on": everyAddress(func(a *diagnose.Address) {
		a.Link, a.LinkIndex = "eth0", 0
	}),

	"routes":              func(k *diagnose.Kernel) { k.Routes = nil },
	"local routes":        withoutRoutes("local"),
	"rejecting routes":    withoutRoutes("blackhole", "unreachable", "prohibit", "throw"),
	"broadcast routes":    withoutRoutes("broadcast"),
	"routing tables":      everyRoute(func(r *diagnose.Route) { r.Table = tableMain }),
	"the order of routes": func(k *diagnose.Kernel) { slices.Reverse(k.Routes) },
	"where a route leads": everyRoute(func(r *diagnose.Route) { r.Link, r.LinkIndex = "kube-ipvs0", 0 }),
}

// rare are those that fewer than one draw in fifty shows.
var rare = []string{"proxy_arp of the link", "whether a link is up", "scopes", "prefix lengths", "peers", "rejecting routes", "broadcast routes"}

func withoutLocalnet(l *diagnose.Link) { l.Sysctls.RouteLocalnet = new(int) }

func everyLink(change func(*diagnose.Link)) func(*diagnose.Kernel) {
	return func(k *diagnose.Kernel) {
		for i := range k.Links {
			change(&k.Links[i])
		}
	}
}

func everyAddress(change func(*diagnose.Address)) func(*diagnose.Kernel) {
	return func(k *diagnose.Kernel) {
		for i := range k.Addresses {
			change(&k.Addresses[i])
		}
	}
}

func everyRoute(change func(*diagnose.Route)) func(*diagnose.Kernel) {
	return func(k *diagnose.Kernel) {
		for i := range k.Routes {
			change(&k.Routes[i])
		}
	}
}

func withoutRoutes(kinds ...string) func(*diagnose.Kernel) {
	return func(k *diagnose.Kernel) {
		k.Routes = slices.DeleteFunc(k.Routes, func(r diagnose.Route) bool { return slices.Contains(kinds, r.Type) })
	}
}
