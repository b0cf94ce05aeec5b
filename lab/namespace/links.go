// SPDX-License-Identifier: Apache-2.0

//go:build linux

package namespace

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
)

// AddBridge makes a bridge, without spanning tree (the kernel's default) and
// without multicast snooping, and sets it up.
func (n *Namespace) AddBridge(name string) error {
	snooping := false
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}
	return n.Do(func() error {
		if err := netlink.LinkAdd(bridge); err != nil {
			return fmt.Errorf("adding bridge %s in %s: %w", name, n.name, err)
		}
		if err := setUp(name); err != nil {
			return fmt.Errorf("in %s: %w", n.name, err)
		}
		return nil
	})
}

// Connect joins node and switch by a veth pair: ifname in node, with the MAC
// given (nil: the kernel's choice), and port in sw, enslaved to the bridge
// there. When it returns both ends are up and frames pass: until its link
// watch has seen the carrier the kernel drops them.
func Connect(node *Namespace, ifname string, mac net.HardwareAddr, sw *Namespace, bridge, port string) error {
	err := node.use(func(file *os.File) error {
		return sw.Do(func() error { return addPort(int(file.Fd()), ifname, mac, bridge, port) })
	})
	if err == nil {
		err = node.Do(func() error { return setUp(ifname) })
	}
	if err == nil {
		err = node.Do(func() error { return awaitCarrier(ifname) })
	}
	if err == nil {
		err = sw.Do(func() error { return awaitCarrier(port) })
	}
	if err != nil {
		return fmt.Errorf("connecting %s of %s to %s of %s: %w", ifname, node.name, bridge, sw.name, err)
	}
	return nil
}

// addPort makes the pair in the calling thread's namespace, the peer born in
// the namespace of fd, so that its name never exists here.
func addPort(fd int, ifname string, mac net.HardwareAddr, bridge, port string) error {
	master, err := netlink.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("finding bridge %s: %w", bridge, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = port
	attrs.MasterIndex = master.Attrs().Index
	veth := &netlink.Veth{
		LinkAttrs:        attrs,
		PeerName:         ifname,
		PeerHardwareAddr: mac,
		PeerNamespace:    netlink.NsFd(fd),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("adding veth pair %s: %w", port, err)
	}
	return setUp(port)
}

func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting %s up: %w", name, err)
	}
	return nil
}

// carrierPatience is far above what linkwatch_event takes on a busy machine
// (net/core/link_watch.c: at most a second between two runs).
const carrierPatience = 10 * time.Second

// awaitCarrier waits until the link is operationally up: its queue is active
// then and, on a bridge, its port forwards.
func awaitCarrier(name string) error {
	deadline := time.Now().Add(carrierPatience)
	for {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("finding %s: %w", name, err)
		}
		state := link.Attrs().OperState
		if state == netlink.OperUp {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waiting for the carrier of %s: still %s after %s", name, state, carrierPatience)
		}
		time.Sleep(time.Millisecond)
	}
}

// AddAddress adds an address with its prefix length to a link; scope, label
// and broadcast address are what the kernel gives by default.
func (n *Namespace) AddAddress(link string, p netip.Prefix) error {
	return n.Do(func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return fmt.Errorf("finding %s in %s: %w", link, n.name, err)
		}
		if err := netlink.AddrAdd(l, address(p)); err != nil {
			return fmt.Errorf("adding %s to %s in %s: %w", p, link, n.name, err)
		}
		return nil
	})
}

// RemoveAddress removes an address with exactly this prefix length from a
// link; EADDRNOTAVAIL where the link has no such one.
func (n *Namespace) RemoveAddress(link string, p netip.Prefix) error {
	return n.Do(func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return fmt.Errorf("finding %s in %s: %w", link, n.name, err)
		}
		if err := netlink.AddrDel(l, address(p)); err != nil {
			return fmt.Errorf("removing %s from %s in %s: %w", p, link, n.name, err)
		}
		return nil
	})
}

// Addresses lists the IPv4 addresses of a link, each with the prefix length it
// has there, in the kernel's order.
func (n *Namespace) Addresses(link string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	err := n.Do(func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return fmt.Errorf("finding %s in %s: %w", link, n.name, err)
		}
		addrs, err := netlink.AddrList(l, netlink.FAMILY_V4)
		if err != nil {
			return fmt.Errorf("listing the addresses of %s in %s: %w", link, n.name, err)
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.IPNet.String())
			if err != nil {
				return fmt.Errorf("listing the addresses of %s in %s: %w", link, n.name, err)
			}
			prefixes = append(prefixes, p)
		}
		return nil
	})
	return prefixes, err
}

// address is where netip ends: the netlink library has its own types.
func address(p netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{
		IP:   p.Addr().AsSlice(),
		Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
	}}
}

// AddDummy makes a link that carries addresses and no traffic, as kube-proxy
// makes kube-ipvs0: DOWN and NOARP. It is a dummy where the kernel has them,
// else an ifb, which behaves alike for ARP; kind says which.
func (n *Namespace) AddDummy(name string) (kind string, err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	err = n.Do(func() error {
		dummy := netlink.LinkAdd(&netlink.Dummy{LinkAttrs: attrs})
		if dummy == nil {
			kind = "dummy"
			return nil
		}
		ifb := netlink.LinkAdd(&netlink.Ifb{LinkAttrs: attrs})
		if ifb == nil {
			kind = "ifb"
			return nil
		}
		return fmt.Errorf("adding %s in %s: as dummy: %w, as ifb: %w", name, n.name, dummy, ifb)
	})
	return kind, err
}
