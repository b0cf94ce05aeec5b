// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

var (
	vip     = netip.MustParseAddr("192.0.2.50")
	vip32   = netip.MustParsePrefix("192.0.2.50/32")
	subnet  = netip.MustParsePrefix("192.0.2.0/24")
	forever = uint32(4294967295)
)

// scene makes snapshots of the story: n nodes, all with the VIP on kube-ipvs0, the last with an announcer in
// user space, a client as witness.
type scene struct {
	nodes     int
	clean     map[string]bool // nodes whose kernel lost the address
	latent    map[string]bool // arp_ignore 1
	announcer string          // empty: not running
	witness   bool
	neighbour string // MAC that the witness uses
	failing   bool
	edit      func(*diagnose.Snapshot)
}

func newScene(n int) scene {
	return scene{nodes: n, clean: map[string]bool{}, latent: map[string]bool{}, announcer: fmt.Sprintf("n%d", n), witness: true}
}

func mac(i int) string { return fmt.Sprintf("02:00:00:00:00:%02x", i) }
func ip(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)})
}

func ptr(i int) *int { return &i }

func stale() diagnose.Address {
	return diagnose.Address{Link: "kube-ipvs0", LinkIndex: 3, Prefix: vip32, Flags: 0x80, ValidLifetime: forever, PreferredLife: forever}
}

func sysctls(arpIgnore int) diagnose.Sysctls {
	z := ptr(0)
	return diagnose.Sysctls{ArpIgnore: ptr(arpIgnore), ArpAnnounce: z, ArpFilter: z, ProxyArp: z, RpFilter: z,
		PromoteSecondaries: z, RouteLocalnet: z, AcceptLocal: z, Forwarding: z}
}

func (s scene) node(i int) diagnose.Node {
	name, ignore := fmt.Sprintf("n%d", i), 0
	if s.latent[name] {
		ignore = 1
	}
	k := &diagnose.Kernel{BootID: "boot-" + name, All: sysctls(0), IPForward: ptr(1),
		IPVS: diagnose.IPVS{State: diagnose.IPVSAbsent}, KubeProxy: diagnose.KubeProxy{State: diagnose.KubeProxyAbsent},
		Links: []diagnose.Link{
			{Name: "eth0", Index: 2, Kind: "veth", MAC: mac(i), Type: "ether", Up: true, Carrier: true, Flags: 0x1 | 0x2 | 0x40, Sysctls: sysctls(ignore)},
			{Name: "kube-ipvs0", Index: 3, Kind: "dummy", MAC: fmt.Sprintf("06:00:00:00:00:%02x", i), Type: "ether", Flags: 0x2 | 0x80, Sysctls: sysctls(0)}},
		Addresses: []diagnose.Address{
			{Link: "eth0", LinkIndex: 2, Prefix: netip.PrefixFrom(ip(i), 24), Label: "eth0", Flags: 0x80, ValidLifetime: forever, PreferredLife: forever},
			{Link: "kube-ipvs0", LinkIndex: 3, Prefix: netip.MustParsePrefix("10.96.0.1/32"), Flags: 0x80, ValidLifetime: forever, PreferredLife: forever}},
		Routes: []diagnose.Route{
			{Prefix: netip.PrefixFrom(ip(i), 32), Type: "local", Table: 255, Link: "eth0", LinkIndex: 2, Source: ip(i)},
			{Prefix: subnet, Type: "unicast", Table: 254, Link: "eth0", LinkIndex: 2, Source: ip(i)}},
	}
	if !s.clean[name] {
		k.Addresses = append(k.Addresses, stale())
		k.Routes = append(k.Routes, diagnose.Route{Prefix: vip32, Type: "local", Table: 255, Link: "kube-ipvs0", LinkIndex: 3, Source: vip})
	}
	return diagnose.Node{Name: name, Role: diagnose.RoleAgent, Connected: true, CanAct: true, Kernel: k}
}

// replies of node i to one request by another: kernel, announcer, or both.
func (s scene) replies(i int, kind diagnose.ProbeKind) []diagnose.Reply {
	name, n := fmt.Sprintf("n%d", i), 0
	if !s.clean[name] && !s.latent[name] && kind != diagnose.AnnouncerQuestion {
		n++
	}
	if name == s.announcer {
		n++
	}
	var out []diagnose.Reply
	for range n {
		out = append(out, diagnose.Reply{SenderMAC: mac(i), EthSource: mac(i), SenderIP: vip, After: time.Millisecond})
	}
	return out
}

func (s scene) snapshot() diagnose.Snapshot {
	snap := diagnose.Snapshot{VIP: vip, TakenAt: start}
	observers := []string{}
	for i := 1; i <= s.nodes; i++ {
		snap.Nodes = append(snap.Nodes, s.node(i))
		observers = append(observers, fmt.Sprintf("n%d", i))
	}
	if s.witness {
		snap.Nodes = append(snap.Nodes, diagnose.Node{Name: "client", Role: diagnose.RoleWitness, Connected: true, Kernel: &diagnose.Kernel{
			BootID: "boot-client", All: sysctls(0), IPForward: ptr(0), IPVS: diagnose.IPVS{State: diagnose.IPVSAbsent}, KubeProxy: diagnose.KubeProxy{State: diagnose.KubeProxyAbsent},
			Links:     []diagnose.Link{{Name: "eth0", Index: 2, Kind: "veth", MAC: mac(0xc1), Type: "ether", Up: true, Carrier: true, Flags: 0x43, Sysctls: sysctls(0)}},
			Addresses: []diagnose.Address{{Link: "eth0", LinkIndex: 2, Prefix: netip.MustParsePrefix("192.0.2.1/24"), Label: "eth0", ValidLifetime: forever, PreferredLife: forever}}}})
		observers = append(observers, "client")
		q := diagnose.Requests{Witness: "client", Sent: 1000, Succeeded: 1000, NeighbourMAC: s.neighbour}
		if s.failing {
			q.Failed, q.Succeeded, q.OpenGap, q.LastError = 500, 500, 5*time.Second, "connection refused"
		}
		snap.Requests = []diagnose.Requests{q}
	}
	for _, o := range observers {
		snap.Rounds = append(snap.Rounds, s.round(o, diagnose.Broadcast, 0))
		for i := 1; i <= s.nodes; i++ {
			if o != fmt.Sprintf("n%d", i) {
				snap.Rounds = append(snap.Rounds, s.round(o, diagnose.AnnouncerQuestion, i))
			}
		}
	}
	if s.edit != nil {
		s.edit(&snap)
	}
	return snap
}

// round by one observer; target 0 is a broadcast, which the observer itself does not answer.
func (s scene) round(observer string, kind diagnose.ProbeKind, target int) diagnose.Round {
	r := diagnose.Round{Observer: observer, Interface: "eth0", VIP: vip, Kind: kind, Number: 1, Sent: true,
		SenderIP: netip.MustParseAddr("192.0.2.1"), HearingExpected: target == 0, Heard: []string{mac(0xc1), mac(1), mac(2)}}
	if kind == diagnose.AnnouncerQuestion {
		r.SenderIP, r.TargetMAC = netip.MustParseAddr("127.0.0.1"), mac(target)
	}
	for i := 1; i <= s.nodes; i++ {
		if observer != fmt.Sprintf("n%d", i) && (target == 0 || target == i) {
			r.Replies = append(r.Replies, s.replies(i, kind)...)
		}
	}
	return r
}

// inRun is a run of the scene's plan with the given nodes confirmed and their kernels clean.
func inRun(s scene, o Options, confirmed ...string) (Run, scene) {
	o.VIP = vip
	p := Make(s.snapshot(), o)
	w := newWorld(p)
	w.event(Event{Kind: Started})
	for i := range w.run.Steps {
		w.run.Steps[i].Prepared = true
		if contains(confirmed, w.run.Steps[i].Node) {
			w.run.Steps[i].State = Confirmed
			s.clean[w.run.Steps[i].Node] = true
		}
	}
	return w.run, s
}
