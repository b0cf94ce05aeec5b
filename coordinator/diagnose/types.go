// SPDX-License-Identifier: Apache-2.0

// Package diagnose judges a snapshot: who answers ARP for a VIP, seen by whom, and why.
// It is pure: it knows no clock, no goroutine, no I/O and no wire format.
package diagnose

import (
	"net/netip"
	"time"
)

// Snapshot is everything one judgement reads; docs/design.md section 4.
type Snapshot struct {
	VIP       netip.Addr
	Interface string // NIC named by the operator; empty: the segment rule decides
	TakenAt   time.Time
	Nodes     []Node
	Rounds    []Round
	Outgoing  []Outgoing
	Requests  []Requests
	Without   []string // nodes that the operator leaves out, a recorded override
}

// Role of an observer.
type Role string

// Roles: an agent may hold addresses and change them, a witness only observes.
const (
	RoleAgent   Role = "agent"
	RoleWitness Role = "witness"
)

// Node is one observer and what its kernel holds. Kernel is nil where it is not known.
type Node struct {
	Name            string
	Role            Role
	Connected       bool
	CanAct          bool
	CannotActReason string
	ControlPlane    bool
	Kernel          *Kernel
	PendingUndo     *PendingUndo
}

// PendingUndo is a removal that nobody confirmed yet.
type PendingUndo struct {
	RunID, Step string
	Prefix      netip.Prefix
	Blocked     string // why the agent cannot put it back; empty when it can
}

// Kernel is one inventory (netlink, /proc/sys, IPVS).
type Kernel struct {
	BootID     string
	Links      []Link
	Addresses  []Address
	Routes     []Route
	All        Sysctls // conf/all
	IPForward  *int
	IPVS       IPVS
	KubeProxy  KubeProxy
	Neighbours []Neighbour
	ARPPath    ARPPath
	Incomplete []string // what could not be read; not empty: unknown, never clean
}

// Link is a network device. Index and MasterIndex are kernel ifindexes.
type Link struct {
	Name                     string
	Index                    int
	Kind                     string
	MasterIndex, ParentIndex int
	MAC, PermanentMAC        string // lower case, colons; empty when none
	Flags                    uint32 // IFF_*, include/uapi/linux/if.h
	Up, Carrier              bool
	Type                     string // ether, loopback, …
	BridgePort               bool
	Sysctls                  Sysctls
}

// Sysctls of one link or of conf/all; nil means that it could not be read.
type Sysctls struct {
	ArpIgnore, ArpAnnounce, ArpFilter, ProxyArp, RpFilter *int
	PromoteSecondaries, RouteLocalnet, AcceptLocal        *int
	Forwarding                                            *int
}

// Address is one exact tuple as listed by the kernel.
type Address struct {
	Link          string
	LinkIndex     int
	Prefix        netip.Prefix // exact, not masked
	Scope         uint8        // RT_SCOPE_*
	Label         string
	Flags         uint32 // IFA_F_*
	ValidLifetime uint32 // seconds, 0xffffffff is forever
	PreferredLife uint32
	Peer          netip.Prefix
	Broadcast     netip.Addr
}

// Route is a kernel route; Type as `ip route` names it. A Kernel lists those that cover the VIP, in
// any table, and those that say where a sender is: with a gateway or a source.
type Route struct {
	Prefix    netip.Prefix
	Type      string
	Table     uint32
	Link      string
	LinkIndex int
	Source    netip.Addr
	Gateway   netip.Addr
	Scope     uint8
	Protocol  uint8
}

// IPVSState tells how much is known of the kernel's IPVS table.
type IPVSState string

// States of the IPVS table. Absent (no ip_vs in this kernel) counts as no service; unreadable is unknown.
const (
	IPVSUnknown    IPVSState = ""
	IPVSAbsent     IPVSState = "absent"
	IPVSNone       IPVSState = "none"
	IPVSPresent    IPVSState = "present"
	IPVSUnreadable IPVSState = "unreadable"
)

// IPVS is the node's IPVS table as far as it could be read.
type IPVS struct {
	State    IPVSState
	Reason   string
	Services []netip.AddrPort
	Marks    int // services by firewall mark: any address may be behind one
}

// KubeProxyState tells whether kube-proxy was seen on the node.
type KubeProxyState string

// States of kube-proxy on a node.
const (
	KubeProxyUnknown        KubeProxyState = ""
	KubeProxyAbsent         KubeProxyState = "absent"
	KubeProxyRunning        KubeProxyState = "running"
	KubeProxyUnknownManager KubeProxyState = "unknown-manager"
)

// KubeProxy is what the node's kube-proxy endpoint said.
type KubeProxy struct {
	State        KubeProxyState
	Mode, Detail string
}

// Neighbour is one entry of the kernel's neighbour table.
type Neighbour struct {
	IP               netip.Addr
	MAC, Link, State string
}

// ARPPath is what else could silence or answer ARP in this kernel.
type ARPPath struct {
	Unknown bool
	Reasons []string
}

// ProbeKind is the form of an ARP request; docs/design.md sections 4 and 7.
type ProbeKind string

// Forms of an ARP request.
const (
	Broadcast         ProbeKind = "broadcast"
	ZeroSender        ProbeKind = "zero-sender"
	AnnouncerQuestion ProbeKind = "announcer-question"
	Unicast           ProbeKind = "unicast"
)

// Round is one request by one observer and everything heard in its window.
type Round struct {
	Observer, Interface string
	VIP                 netip.Addr
	Kind                ProbeKind
	TargetMAC           string
	SenderIP            netip.Addr
	Number              int
	Sent                bool
	SendError           string
	Replies             []Reply
	Unsolicited         []Reply  // announcements and overheard replies: a hint, never an answer
	Heard               []string // MACs of other observers whose broadcasts were heard
	HearingExpected     bool     // other observers broadcast in this window
	Dropped             int
	Truncated           bool
	Muted               bool // the kernel of the MAC asked was mute for the VIP all the while
}

// Reply is one ARP reply frame that came in, or in Unsolicited an announcement of either form.
type Reply struct {
	SenderMAC, EthSource string
	SenderIP             netip.Addr
	VLAN                 uint16        // not 0: of another segment than the NIC's own
	After                time.Duration // since the request left
}

// Outgoing is a node's own replies seen leaving one of its NICs.
type Outgoing struct {
	Node, Interface string
	Captured        bool
	Error           string
	Replies         []OutgoingReply
}

// OutgoingReply is one reply of this node's, by its target.
type OutgoingReply struct {
	SenderMAC, TargetMAC string
	TargetIP             netip.Addr
}

// Requests is a witness's running count of real requests to the VIP.
type Requests struct {
	Witness                 string
	Sent, Succeeded, Failed uint64
	NeighbourMAC            string
	OpenGap                 time.Duration
	LastError               string
}
