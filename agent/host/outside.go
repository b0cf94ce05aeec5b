// SPDX-License-Identifier: Apache-2.0

package host

import "net/netip"

// IPVSState says how much is known about this kernel's virtual services.
type IPVSState string

// States of IPVS. The zero value is not one of them.
const (
	IPVSAbsent     IPVSState = "absent"     // no ip_vs in this kernel now
	IPVSNone       IPVSState = "none"       // ip_vs is there, without a service
	IPVSPresent    IPVSState = "present"    // there are services
	IPVSUnreadable IPVSState = "unreadable" // unknown; Reason says why
)

// IPVS is the kernel's table of virtual services.
type IPVS struct {
	State    IPVSState
	Reason   string // of IPVSUnreadable
	Services []IPVSService
	Source   string // netlink, proc or "netlink and proc"
}

// IPVSService is one virtual service. One with a firewall mark has no address:
// any address may be behind it.
type IPVSService struct {
	Address  netip.Addr
	Port     uint16
	Protocol string // tcp, udp, sctp; "" with a mark
	FWMark   uint32
}

// Serves says whether a service of this table stands behind ip: one with that
// address, or one with a firewall mark, of which nobody can tell.
func (i IPVS) Serves(ip netip.Addr) bool {
	for _, s := range i.Services {
		if s.Address == ip || !s.Address.IsValid() {
			return true
		}
	}
	return false
}

// KubeProxyState says whether a kube-proxy runs on this node.
type KubeProxyState string

// States of kube-proxy.
const (
	KubeProxyAbsent         KubeProxyState = "absent"          // nothing listens on its ports
	KubeProxyRunning        KubeProxyState = "running"         // it names its mode
	KubeProxyUnknownManager KubeProxyState = "unknown-manager" // something else answers, Cilium perhaps
	KubeProxyUnknown        KubeProxyState = "unknown"         // no answer and no refusal
)

// KubeProxy is what answered on kube-proxy's own ports.
type KubeProxy struct {
	State  KubeProxyState
	Mode   string // ipvs, iptables, nftables, … while running
	Detail string // a sentence for people
}

// ARPPath is what stands between the wire and the kernel's ARP code and could
// silence it. It is a list, not a judgement: Cilium's programs are in it too.
type ARPPath struct {
	Unknown bool     // something is there, or something could not be read
	Reasons []string // a sentence for each hook
	Hooks   []ARPHook
}

// ARPHook is one thing on the ARP path.
type ARPHook struct {
	Kind   string // nftables, arptables, tc, tcx, xdp
	Link   string // "" = any link
	Detail string
	Unread bool // it could not be read: nobody knows whether something is there
}

// add puts a hook on the list, with its sentence.
func (a *ARPPath) add(h ARPHook) {
	a.Unknown = true
	a.Hooks = append(a.Hooks, h)
	a.Reasons = append(a.Reasons, h.String())
}

// String is the sentence for people.
func (h ARPHook) String() string {
	s := h.Kind
	if h.Link != "" {
		s += " on " + h.Link
	}
	if h.Unread {
		return s + " could not be read: " + h.Detail
	}
	return s + ": " + h.Detail
}
