// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Fake is a kernel made of tables in memory. Removal and restore run through
// the same judgement as Linux; only what the kernel itself would do is played.
// Its world is set by the methods of this file, its faults by those of
// fakefaults.go. All methods may be called at any time from any goroutine.
type Fake struct {
	mu sync.Mutex

	// The world.
	links      []Link
	addresses  []Address
	routes     []Route // besides the local ones that addresses bring
	rules      []Rule
	neighbours []Neighbour
	all, def   Sysctls
	sysctls    map[string]Sysctls
	ipForward  *int
	ipvs       IPVS
	kubeProxy  KubeProxy
	arpPath    ARPPath
	bootID     string
	clock      func() time.Duration
	ahead      time.Duration // added to clock

	faults faults

	// What was done to it, and who listens.
	deletes, adds []Tuple
	mutes         []netip.Addr // every one that was begun
	muted         netip.Addr   // the one in force until mutedUntil; zero: none
	mutedUntil    time.Duration
	listeners     map[*listener]struct{}
}

var (
	_ Kernel = (*Fake)(nil)
	_ tables = (*Fake)(nil)
)

// NewFake makes a kernel with lo alone, every sysctl 0, no IPVS and no
// kube-proxy. Its boot clock starts at 1000 s and follows time.Now, also the
// one of a testing/synctest bubble.
func NewFake() *Fake {
	start := time.Now()
	zero := 0
	f := &Fake{
		all: zeroSysctls(), def: zeroSysctls(), sysctls: map[string]Sysctls{},
		ipForward: &zero, ipvs: IPVS{State: IPVSAbsent, Source: "proc"},
		kubeProxy: KubeProxy{State: KubeProxyAbsent}, bootID: "8b9f2a5c-0000-4000-8000-000000000001",
		clock:     func() time.Duration { return 1000*time.Second + time.Since(start) },
		listeners: map[*listener]struct{}{},
	}
	f.AddLink(Link{Name: "lo", Type: "loopback", Up: true, Carrier: true, MTU: 65536, Flags: unix.IFF_UP | unix.IFF_LOOPBACK | unix.IFF_RUNNING | unix.IFF_LOWER_UP})
	f.Hold("lo", Address{Prefix: netip.MustParsePrefix("127.0.0.1/8"), Scope: unix.RT_SCOPE_HOST})
	return f
}

func zeroSysctls() Sysctls {
	zero := func() *int { return new(int) }
	return Sysctls{
		ArpIgnore: zero(), ArpAnnounce: zero(), ArpFilter: zero(), ProxyArp: zero(), RpFilter: zero(),
		PromoteSecondaries: zero(), RouteLocalnet: zero(), AcceptLocal: zero(), Forwarding: zero(),
	}
}

// AddLink adds a link and returns its index: l.Index, or the next free one
// for 0.
func (f *Fake) AddLink(l Link) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.Index == 0 {
		l.Index = 1
		for _, other := range f.links {
			l.Index = max(l.Index, other.Index+1)
		}
	}
	f.links = append(f.links, l)
	f.sysctls[l.Name] = zeroSysctls()
	f.hint(Hint{Kind: LinkChanged, LinkIndex: l.Index})
	return l.Index
}

// AddDummy adds a link like kube-proxy's: DOWN and NOARP.
func (f *Fake) AddDummy(name string) int {
	return f.AddLink(Link{Name: name, Kind: "dummy", Type: "ether", MTU: 1500, MAC: "0e:00:00:00:00:01", Flags: unix.IFF_BROADCAST | unix.IFF_NOARP})
}

// AddNIC adds an Ethernet link that is up.
func (f *Fake) AddNIC(name, mac string) int {
	return f.AddLink(Link{
		Name: name, Type: "ether", MTU: 1500, MAC: mac, PermanentMAC: mac, Up: true, Carrier: true,
		Flags: unix.IFF_UP | unix.IFF_BROADCAST | unix.IFF_RUNNING | unix.IFF_MULTICAST | unix.IFF_LOWER_UP,
	})
}

// DropLink removes a link and its addresses.
func (f *Fake) DropLink(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	index := f.indexOf(name)
	f.links = slices.DeleteFunc(f.links, func(l Link) bool { return l.Index == index })
	f.addresses = slices.DeleteFunc(f.addresses, func(a Address) bool { return a.LinkIndex == index })
	f.hint(Hint{Kind: LinkChanged, LinkIndex: index, Gone: true})
}

// RenameLink gives a link another name.
func (f *Fake) RenameLink(name, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.links {
		if f.links[i].Name == name {
			f.links[i].Name = to
			f.sysctls[to] = f.sysctls[name]
			f.hint(Hint{Kind: LinkChanged, LinkIndex: f.links[i].Index})
		}
	}
	for i := range f.addresses {
		if f.addresses[i].Link == name {
			f.addresses[i].Link = to
		}
	}
}

// Hold puts an address on a link, as another program would, and returns it as
// the kernel then lists it. Without lifetimes it is for ever. An address that
// is there already stays as it is.
func (f *Fake) Hold(link string, a Address) Tuple {
	f.mu.Lock()
	defer f.mu.Unlock()
	a.LinkIndex = f.indexOf(link)
	t, _ := f.insert(a.Tuple())
	return t
}

// HoldIP is Hold for a host address with nothing special.
func (f *Fake) HoldIP(link string, ip netip.Addr) Tuple {
	return f.Hold(link, Address{Prefix: netip.PrefixFrom(ip, ip.BitLen())})
}

// Drop takes an address off a link, as another program would.
func (f *Fake) Drop(link string, p netip.Prefix) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.take(func(a Address) bool { return a.Link == link && a.Prefix == p })
}

// AddRoute adds a route. The local routes of addresses come by themselves.
func (f *Fake) AddRoute(r Route) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.LinkIndex = f.indexOf(r.Link)
	r.Links = []int{r.LinkIndex}
	f.routes = append(f.routes, r)
	f.hint(Hint{Kind: RouteChanged, LinkIndex: r.LinkIndex, Address: r.Prefix.Addr()})
}

// Set changes the rest of the world under the lock.
func (f *Fake) Set(change func(*FakeWorld)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := FakeWorld{
		All: f.all, Default: f.def, Sysctls: f.sysctls, IPForward: f.ipForward,
		IPVS: f.ipvs, KubeProxy: f.kubeProxy, ARPPath: f.arpPath, Rules: f.rules, Neighbours: f.neighbours, BootID: f.bootID,
	}
	change(&w)
	f.all, f.def, f.sysctls, f.ipForward = w.All, w.Default, w.Sysctls, w.IPForward
	f.ipvs, f.kubeProxy, f.arpPath, f.rules, f.neighbours, f.bootID = w.IPVS, w.KubeProxy, w.ARPPath, w.Rules, w.Neighbours, w.BootID
}

// FakeWorld is the part of a Fake that has no behaviour.
type FakeWorld struct {
	All, Default Sysctls
	Sysctls      map[string]Sysctls // by link name
	IPForward    *int
	IPVS         IPVS
	KubeProxy    KubeProxy
	ARPPath      ARPPath
	Rules        []Rule
	Neighbours   []Neighbour
	BootID       string
}

// SetBootTime stops the boot clock at d; from then on only Advance moves it.
func (f *Fake) SetBootTime(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clock, f.ahead = func() time.Duration { return d }, 0
}

// Advance moves the boot clock on.
func (f *Fake) Advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead += d
}

// Deletes are the delete requests that reached the kernel, in order.
func (f *Fake) Deletes() []Tuple {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.deletes)
}

// Adds are the add requests that reached the kernel, in order.
func (f *Fake) Adds() []Tuple {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.adds)
}

// indexOf is a mistake in the test when there is no such link.
func (f *Fake) indexOf(name string) int {
	for _, l := range f.links {
		if l.Name == name {
			return l.Index
		}
	}
	panic(fmt.Sprintf("fake kernel: no link %q", name))
}
