// SPDX-License-Identifier: Apache-2.0

//go:build linux

package oracle

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vipmove/vipmove/lab/namespace"
)

// links of a node. The last is as kube-proxy makes it, DOWN and NOARP.
var links = []string{"lo", "eth0", "eth1", "kube-ipvs0"}

// scopes of a sysctl, conf/all first: writing its forwarding writes everybody's.
var scopes = append([]string{"all"}, links...)

// names of the sysctls that decide who answers ARP.
var names = []string{
	"forwarding", "arp_ignore", "arp_filter", "proxy_arp", "rp_filter", "route_localnet", "accept_local",
	"promote_secondaries", "arp_announce",
}

// node is the kernel that is asked. Everything about it is IPv4.
type node struct {
	*namespace.Namespace
	netlink *netlink.Handle
	index   map[string]int // of each link
	made    string         // listing as it was made
}

// newNode takes a namespace that has its links.
func newNode(ns *namespace.Namespace) (*node, error) {
	n := &node{Namespace: ns, index: map[string]int{}}
	err := ns.Do(func() (err error) {
		n.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening netlink in %s: %w", ns.Name(), err)
	}
	for _, name := range links {
		l, err := n.netlink.LinkByName(name)
		if err != nil {
			return nil, fmt.Errorf("finding %s in %s: %w", name, ns.Name(), err)
		}
		n.index[name] = l.Attrs().Index
		// A kernel delays its proxy answers at random up to this, in hundredths
		// of a second; it decides about nothing.
		if err := ns.SetSysctl(path.Join("net/ipv4/neigh", name, "proxy_delay"), "0"); err != nil {
			return nil, err
		}
	}
	n.made, err = n.listing()
	return n, err
}

func (n *node) set(scope, name, value string) error {
	return n.SetSysctl(path.Join("net/ipv4/conf", scope, name), value)
}

// reset brings the node back to how it was made, and makes sure of it.
func (n *node) reset() error {
	for _, part := range []func() error{n.resetSysctls, n.resetLinks, n.resetAddresses, n.resetRoutes} {
		if err := part(); err != nil {
			return fmt.Errorf("resetting %s: %w", n.Name(), err)
		}
	}
	lo := address{verb: "add", link: "lo", prefix: netip.MustParsePrefix("127.0.0.1/8"), scope: unix.RT_SCOPE_HOST}
	if err := lo.apply(n); err != nil {
		return fmt.Errorf("resetting %s: %s: %w", n.Name(), lo, err)
	}
	now, err := n.listing()
	if err != nil {
		return err
	}
	if now != n.made {
		return fmt.Errorf("resetting %s: it was\n%s\nand is\n%s", n.Name(), n.made, now)
	}
	return nil
}

func (n *node) resetSysctls() error {
	return n.Do(func() error {
		for _, scope := range scopes {
			for _, name := range names {
				file := path.Join("/proc/sys/net/ipv4/conf", scope, name)
				value, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				if strings.TrimSpace(string(value)) == "0" {
					continue
				}
				if err := os.WriteFile(file, []byte("0"), 0); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (n *node) resetLinks() error {
	for _, l := range []link{{"eth0", "arp on"}, {"eth1", "arp on"}, {"eth0", "up"}, {"eth1", "up"}, {"kube-ipvs0", "arp off"}, {"kube-ipvs0", "down"}} {
		if err := l.apply(n); err != nil {
			return fmt.Errorf("%s: %w", l, err)
		}
	}
	return nil
}

// resetAddresses removes all of them. One that went with its primary is no error.
func (n *node) resetAddresses() error {
	list, err := n.netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	for _, a := range slices.Backward(list) {
		to := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: a.LinkIndex}}
		if err := n.netlink.AddrDel(to, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("removing %s: %w", a, err)
		}
	}
	return nil
}

func (n *node) resetRoutes() error {
	list, err := n.routes()
	if err != nil {
		return err
	}
	for _, r := range list {
		if err := n.netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("removing route %s: %w", r, err)
		}
	}
	return nil
}

// routes are those of every table.
func (n *node) routes() ([]netlink.Route, error) {
	return n.netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
}

// listing is all that a configuration can change, as text.
func (n *node) listing() (string, error) {
	var b strings.Builder
	for _, name := range links {
		l, err := n.netlink.LinkByName(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "link %s flags %#x\n", name, l.Attrs().RawFlags&(unix.IFF_UP|unix.IFF_NOARP))
	}
	addresses, err := n.netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return "", err
	}
	for _, a := range addresses {
		fmt.Fprintf(&b, "address %s scope %d flags %#x broadcast %s link %d\n", a, a.Scope, a.Flags, a.Broadcast, a.LinkIndex)
	}
	routes, err := n.routes()
	if err != nil {
		return "", err
	}
	for _, r := range routes {
		fmt.Fprintf(&b, "route %s\n", r)
	}
	err = n.Do(func() error {
		for _, scope := range scopes {
			for _, name := range names {
				value, err := os.ReadFile(path.Join("/proc/sys/net/ipv4/conf", scope, name))
				if err != nil {
					return err
				}
				fmt.Fprintf(&b, "%s %s %s", scope, name, value)
			}
		}
		return nil
	})
	return b.String(), err
}
