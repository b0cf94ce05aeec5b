// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vipmove/vipmove/lab/namespace"
	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
)

func TestMain(m *testing.M) { os.Exit(namespacetest.Main(m)) }

// world is a kernel that a test can also change behind the Kernel's back.
type world interface {
	Kernel
	addDummy(name string) int                 // DOWN
	hold(link string, a Address) Tuple        // another program's address, as then listed
	drop(link string, p netip.Prefix)         // another program's delete
	dropLink(name string)                     //
	renameLink(name, to string)               //
	addLocalRoute(p netip.Prefix, dev string) // ip route add local P dev DEV table local
	deny(denied bool)                         // CAP_NET_ADMIN
	raw() []string                            // every address, told by someone else than the code under test
}

var (
	vip      = netip.MustParseAddr("192.0.2.50")
	vip32    = netip.MustParsePrefix("192.0.2.50/32")
	vip24    = netip.MustParsePrefix("192.0.2.50/24")
	node     = netip.MustParsePrefix("192.0.2.11/24")
	vipSix   = netip.MustParseAddr("2001:db8::50")
	vip128   = netip.MustParsePrefix("2001:db8::50/128")
	eth0MAC  = "02:00:00:00:00:11"
	watchVIP = []netip.Addr{vip, vipSix}
)

// clusterIPs are the 44 dead ones of the story.
func clusterIPs() []netip.Prefix {
	var list []netip.Prefix
	for i := byte(1); i <= 44; i++ {
		list = append(list, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 96, 0, i}), 32))
	}
	return list
}

// story gives a world the links and addresses of one node of the story, and
// returns the VIP on kube-ipvs0 as it is listed.
func story(w world) Tuple {
	w.addDummy("kube-ipvs0")
	ips := clusterIPs()
	for _, p := range ips[:20] {
		w.hold("kube-ipvs0", Address{Prefix: p})
	}
	t := w.hold("kube-ipvs0", Address{Prefix: vip32})
	for _, p := range ips[20:] {
		w.hold("kube-ipvs0", Address{Prefix: p})
	}
	return t
}

// fakeWorld is the Fake.
type fakeWorld struct{ *Fake }

func newFakeWorld(testing.TB) world {
	f := NewFake()
	f.AddNIC("eth0", eth0MAC)
	f.Hold("eth0", Address{Prefix: node})
	return fakeWorld{f}
}

func (w fakeWorld) addDummy(name string) int          { return w.AddDummy(name) }
func (w fakeWorld) hold(link string, a Address) Tuple { return w.Hold(link, a) }
func (w fakeWorld) drop(link string, p netip.Prefix)  { w.Drop(link, p) }
func (w fakeWorld) dropLink(name string)              { w.DropLink(name) }
func (w fakeWorld) renameLink(name, to string)        { w.RenameLink(name, to) }
func (w fakeWorld) deny(denied bool)                  { w.Deny(denied) }
func (w fakeWorld) addLocalRoute(p netip.Prefix, dev string) {
	w.AddRoute(Route{Prefix: p, Type: "local", Table: LocalTable, Link: dev, Scope: unix.RT_SCOPE_HOST})
}
func (w fakeWorld) raw() []string {
	var list []string
	for _, a := range w.addresses {
		list = append(list, fmt.Sprintf("%+v", a))
	}
	return list
}

// linuxWorld is the kernel of a network namespace.
type linuxWorld struct {
	t      testing.TB
	ns     *namespace.Namespace
	linux  *Linux
	denied bool
}

func newLinuxWorld(t testing.TB) world { return newNamespaceWorld(t, Options{}) }

func newNamespaceWorld(t testing.TB, o Options) *linuxWorld {
	t.Helper()
	ns, sw := namespacetest.NewT(t, "n1"), namespacetest.NewT(t, "switch")
	mac, err := net.ParseMAC(eth0MAC)
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	w := &linuxWorld{t: t, ns: ns, linux: l}
	w.must(sw.AddBridge("br0"))
	w.must(namespace.Connect(ns, "eth0", mac, sw, "br0", "n1"))
	// Its link-local address would come, and settle, at a moment of its own.
	w.must(ns.SetSysctl("net/ipv6/conf/eth0/disable_ipv6", "1"))
	w.must(ns.AddAddress("eth0", node))
	return w
}

func (w *linuxWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// do runs fn in the namespace, with or without CAP_NET_ADMIN.
func (w *linuxWorld) do(fn func() error) {
	w.t.Helper()
	w.must(w.ns.Do(func() error {
		if !w.denied {
			return fn()
		}
		return withoutNetAdmin(fn)
	}))
}

// withoutNetAdmin runs fn with the capability taken off the calling thread.
func withoutNetAdmin(fn func() error) error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&h, &caps[0]); err != nil {
		return err
	}
	less := caps
	less[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	if err := unix.Capset(&h, &less[0]); err != nil {
		return err
	}
	return errors.Join(fn(), unix.Capset(&h, &caps[0]))
}

func (w *linuxWorld) State(ctx context.Context, watched []netip.Addr) (st State, err error) {
	w.do(func() error { st, err = w.linux.State(ctx, watched); return nil })
	return st, err
}

func (w *linuxWorld) ListLink(ctx context.Context, index int) (list []Address, err error) {
	w.do(func() error { list, err = w.linux.ListLink(ctx, index); return nil })
	return list, err
}

func (w *linuxWorld) Remove(ctx context.Context, t Tuple) (out Outcome, err error) {
	w.do(func() error { out, err = w.linux.Remove(ctx, t); return nil })
	return out, err
}

func (w *linuxWorld) Restore(ctx context.Context, t Tuple) (out Outcome, err error) {
	w.do(func() error { out, err = w.linux.Restore(ctx, t); return nil })
	return out, err
}

func (w *linuxWorld) Mute(ip netip.Addr, d time.Duration) (lift func() error, err error) {
	w.do(func() error { lift, err = w.linux.Mute(ip, d); return nil })
	return lift, err
}

func (w *linuxWorld) ClearMute() (err error) {
	w.do(func() error { err = w.linux.ClearMute(); return nil })
	return err
}

func (w *linuxWorld) BootTime() time.Duration { return w.linux.BootTime() }
func (w *linuxWorld) BootID() (string, error) { return w.linux.BootID() }

func (w *linuxWorld) Changes(ctx context.Context, fn func(Hint)) error {
	// Not through do: it may be called on another goroutine than the test's.
	return w.ns.Do(func() error { return w.linux.Changes(ctx, fn) })
}

func (w *linuxWorld) addDummy(name string) int {
	w.t.Helper()
	if _, err := w.ns.AddDummy(name); err != nil {
		w.t.Fatal(err)
	}
	return w.link(name).Attrs().Index
}

func (w *linuxWorld) link(name string) (l netlink.Link) {
	w.t.Helper()
	w.do(func() (err error) { l, err = netlink.LinkByName(name); return err })
	return l
}

// hold goes through vishvananda/netlink, as kube-proxy does.
func (w *linuxWorld) hold(link string, a Address) Tuple {
	w.t.Helper()
	l := w.link(link)
	n := &netlink.Addr{
		IPNet: ipNet(a.Prefix), Label: a.Label, Scope: int(a.Scope), Flags: int(a.Flags),
		ValidLft: int(a.ValidLifetime), PreferedLft: int(a.PreferredLifetime),
	}
	if a.Peer.IsValid() {
		n.Peer = ipNet(a.Peer)
	}
	if a.Broadcast.IsValid() {
		n.Broadcast = a.Broadcast.AsSlice()
	}
	w.do(func() error { return netlink.AddrAdd(l, n) })
	list, err := w.ListLink(w.t.Context(), l.Attrs().Index)
	w.must(err)
	for _, listed := range list {
		if listed.Prefix == a.Prefix {
			return listed.Tuple()
		}
	}
	w.t.Fatalf("%s is not listed on %s after it was added", a.Prefix, link)
	return Tuple{}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func (w *linuxWorld) drop(link string, p netip.Prefix) {
	w.t.Helper()
	l := w.link(link)
	w.do(func() error { return netlink.AddrDel(l, &netlink.Addr{IPNet: ipNet(p)}) })
}

func (w *linuxWorld) dropLink(name string) {
	w.t.Helper()
	l := w.link(name)
	w.do(func() error { return netlink.LinkDel(l) })
}

func (w *linuxWorld) renameLink(name, to string) {
	w.t.Helper()
	l := w.link(name)
	w.do(func() error { return netlink.LinkSetName(l, to) })
}

func (w *linuxWorld) addLocalRoute(p netip.Prefix, dev string) {
	w.t.Helper()
	l := w.link(dev)
	w.do(func() error {
		return netlink.RouteAdd(&netlink.Route{
			Dst: ipNet(p), LinkIndex: l.Attrs().Index, Table: LocalTable, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
		})
	})
}

func (w *linuxWorld) deny(denied bool) { w.denied = denied }

func (w *linuxWorld) raw() []string {
	w.t.Helper()
	var list []string
	w.do(func() error {
		all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
		for _, a := range all {
			list = append(list, fmt.Sprintf("%d %s label %q flags %#x scope %d peer %v broadcast %v lifetimes %d %d",
				a.LinkIndex, a.IPNet, a.Label, a.Flags&^unix.IFA_F_TENTATIVE, a.Scope, a.Peer, a.Broadcast, a.ValidLft, a.PreferedLft))
		}
		return err
	})
	return list
}
