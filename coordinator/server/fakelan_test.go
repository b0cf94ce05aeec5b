// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

const testVIP = "192.0.2.50"

// lan is a simulated segment: what each host's kernel holds, who announces, and what was asked. It is the
// truth that the tests look at, and it watches the invariants by itself.
type lan struct {
	mu           sync.Mutex
	hosts        map[string]*host
	names        []string
	announcer    string // node that also answers from user space; "": not running
	picky        bool   // the announcer checks senders: it is silent to the announcer question
	needsAddress bool   // a node serves only while it holds the address
	broken       []string
	watched      bool // invariants are held from the start of a run on
	asked        []asked
}

// host is one machine on the segment.
type host struct {
	name, mac string
	ip        netip.Addr
	held      bool // the kernel has the VIP on kube-ipvs0
	open      bool // removed and not confirmed
	muteUntil time.Time
	boot      string
	bootedAt  time.Time
}

// asked is one probe's ARP requests on one NIC.
type asked struct {
	nic string
	at  time.Time
	n   int
}

// newLAN has n nodes n1..nn that all hold the VIP, the last of them the announcer, and a client.
func newLAN(n int) *lan {
	l := &lan{hosts: map[string]*host{}, announcer: fmt.Sprintf("n%d", n)}
	for i := 1; i <= n; i++ {
		l.add(fmt.Sprintf("n%d", i), 10+i, true)
	}
	l.add("client", 1, false)
	return l
}

func (l *lan) add(name string, last int, held bool) {
	l.names = append(l.names, name)
	l.hosts[name] = &host{name: name, mac: fmt.Sprintf("02:00:00:00:00:%02x", last), ip: netip.AddrFrom4([4]byte{192, 0, 2, byte(last)}),
		held: held, boot: "boot-" + name, bootedAt: time.Now().Add(-time.Hour)}
}

// change changes the truth and looks at the invariants. held may be nil.
func (l *lan) change(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn()
	if l.watched {
		l.check()
	}
}

// check holds I1 (never dark), I2 (one at a time) and I3 (survivor last) on the kernels themselves.
func (l *lan) check() {
	var answering, open []string
	for _, name := range l.names {
		h := l.hosts[name]
		if h.held || name == l.announcer {
			answering = append(answering, name)
		}
		if h.open {
			open = append(open, name)
		}
	}
	if len(answering) == 0 {
		l.broken = append(l.broken, "I1: nobody answers")
	}
	if len(open) > 1 {
		l.broken = append(l.broken, fmt.Sprintf("I2: %v in change at once", open))
	}
	if s := l.hosts[l.announcer]; s != nil && s.open && len(answering) > 1 {
		l.broken = append(l.broken, fmt.Sprintf("I3: the survivor went while %v hold the address", answering))
	}
}

// holders lists who has the VIP.
func (l *lan) holders() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, name := range l.names {
		if l.hosts[name].held {
			out = append(out, name)
		}
	}
	return strings.Join(out, " ")
}

// probes counts those that were sent so far.
func (l *lan) probes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.asked)
}

func (l *lan) host(name string) host {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.hosts[name]
}

// serves: a request whose frames go to this MAC succeeds.
func (l *lan) serves(mac string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.hosts {
		if h.mac == mac {
			return h.name != "client" && (h.held || !l.needsAddress)
		}
	}
	return false
}

// resolve is the first to answer a client, by name; "": nobody.
func (l *lan) resolve() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range l.names {
		if h := l.hosts[name]; h.held || name == l.announcer {
			return h.mac
		}
	}
	return ""
}

// probe is what the observer hears to each request, and counts what it sent.
func (l *lan) probe(observer string, p *vipmovev1.Probe) []*vipmovev1.Round {
	l.mu.Lock()
	defer l.mu.Unlock()
	sent := len(p.GetRequests())
	if p.GetHearingAsk() != "" {
		sent++
	}
	l.asked = append(l.asked, asked{nic: observer + " " + p.GetInterface(), at: time.Now(), n: sent})
	var out []*vipmovev1.Round
	for _, q := range p.GetRequests() {
		r := &vipmovev1.Round{Interface: p.GetInterface(), Vip: p.GetVip(), Kind: q.GetKind(), TargetMac: q.GetTargetMac(), SenderIp: q.GetSenderIp(),
			SentAt: timestamppb.Now(), Window: p.GetWindow(), Sent: true, Number: p.GetNumber()}
		for _, name := range l.names {
			h := l.hosts[name]
			if slices.Contains(p.GetHearingAddresses(), h.ip.String()) && name != observer {
				r.Heard = append(r.Heard, h.mac)
			}
			if name != observer && (q.GetTargetMac() == "" || q.GetTargetMac() == h.mac) {
				r.Replies = append(r.Replies, l.replies(h, q.GetKind())...)
			}
		}
		out = append(out, r)
	}
	return out
}

// replies of one host to one request: of its kernel, which is silent to 127.0.0.1, and of its announcer.
func (l *lan) replies(h *host, kind vipmovev1.ProbeKind) []*vipmovev1.Reply {
	n := 0
	if h.held && !time.Now().Before(h.muteUntil) && kind != vipmovev1.ProbeKind_PROBE_KIND_ANNOUNCER_QUESTION {
		n++
	}
	if h.name == l.announcer && !(l.picky && kind == vipmovev1.ProbeKind_PROBE_KIND_ANNOUNCER_QUESTION) {
		n++
	}
	var out []*vipmovev1.Reply
	for range n {
		out = append(out, &vipmovev1.Reply{SenderMac: h.mac, EthSource: h.mac, SenderIp: testVIP, After: durationpb.New(time.Millisecond)})
	}
	return out
}

// kernel is a node's inventory as its agent would report it.
func (l *lan) kernel(name string) *vipmovev1.KernelState {
	h := l.host(name)
	zero, one := int32(0), int32(1)
	sysctls := &vipmovev1.Sysctls{ArpIgnore: &zero, ArpAnnounce: &zero, ArpFilter: &zero, ProxyArp: &zero, RpFilter: &zero,
		PromoteSecondaries: &zero, RouteLocalnet: &zero, AcceptLocal: &zero, Forwarding: &zero}
	k := &vipmovev1.KernelState{
		BootId: h.boot, Boottime: durationpb.New(time.Since(h.bootedAt)), ReadAt: timestamppb.Now(), SysctlsAll: sysctls, IpForward: &one,
		Ipvs: &vipmovev1.Ipvs{State: vipmovev1.Ipvs_STATE_ABSENT}, KubeProxy: &vipmovev1.KubeProxy{State: vipmovev1.KubeProxy_STATE_ABSENT},
		ArpPath:   &vipmovev1.ArpPath{},
		Links:     []*vipmovev1.Link{{Name: "eth0", Index: 2, Kind: "veth", Mac: h.mac, Type: "ether", Up: true, Carrier: true, Flags: 0x43, Sysctls: sysctls}},
		Addresses: []*vipmovev1.Address{{Link: "eth0", LinkIndex: 2, Prefix: h.ip.String() + "/24", Label: "eth0", Flags: 0x80, ValidLifetime: forever, PreferredLifetime: forever}},
		Routes: []*vipmovev1.Route{
			{Prefix: h.ip.String() + "/32", Type: "local", Table: 255, Link: "eth0", LinkIndex: 2, Source: h.ip.String(), Protocol: 2},
			{Prefix: "192.0.2.0/24", Type: "unicast", Table: 254, Link: "eth0", LinkIndex: 2, Source: h.ip.String(), Protocol: 2}},
	}
	if name == "client" {
		return k
	}
	k.Links = append(k.Links, &vipmovev1.Link{Name: "kube-ipvs0", Index: 3, Kind: "dummy", Mac: "06" + h.mac[2:], Type: "ether", Flags: 0x82, Sysctls: sysctls})
	k.Addresses = append(k.Addresses, &vipmovev1.Address{Link: "kube-ipvs0", LinkIndex: 3, Prefix: "10.96.0.1/32", Flags: 0x80, ValidLifetime: forever, PreferredLifetime: forever})
	if h.held {
		k.Addresses = append(k.Addresses, staleAddress())
		k.Routes = append(k.Routes, &vipmovev1.Route{Prefix: testVIP + "/32", Type: "local", Table: 255, Link: "kube-ipvs0", LinkIndex: 3, Source: testVIP, Protocol: 2})
	}
	return k
}

const forever = 4294967295

func staleAddress() *vipmovev1.Address {
	return &vipmovev1.Address{Link: "kube-ipvs0", LinkIndex: 3, Prefix: testVIP + "/32", Flags: 0x80, ValidLifetime: forever, PreferredLifetime: forever}
}
