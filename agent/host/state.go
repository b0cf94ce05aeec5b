// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"time"
)

// State is what this node's kernel says at one moment. A list that could not
// be read completely is nil and named in Incomplete.
type State struct {
	BootID   string
	BootTime time.Duration // CLOCK_BOOTTIME when the reading began

	Links      []Link
	Addresses  []Address
	Routes     []Route // see Route for which
	Rules      []Rule
	Neighbours []Neighbour // entries of watched addresses only

	AllSysctls     Sysctls            // net/ipv4/conf/all
	DefaultSysctls Sysctls            // net/ipv4/conf/default
	LinkSysctls    map[string]Sysctls // net/ipv4/conf/NAME, by link name
	IPForward      *int               // net/ipv4/ip_forward; nil = could not be read

	IPVS      IPVS
	KubeProxy KubeProxy
	ARPPath   ARPPath

	// Incomplete has one sentence for each part that could not be read. A part
	// named here is unknown, never clean.
	Incomplete []string
	// DumpRetries counts the interrupted dumps that were asked for again.
	DumpRetries int
}

// Link is a network interface (rtnetlink(7), RTM_NEWLINK).
type Link struct {
	Name         string
	Index        int
	Kind         string // IFLA_INFO_KIND: bridge, veth, dummy, …; "" for hardware and lo
	MasterIndex  int    // bond, bridge or VRF it belongs to; 0 = none
	ParentIndex  int    // IFLA_LINK: lower link of a VLAN, peer of a veth; 0 = none, or in another namespace
	MAC          string // lower case with colons; "" when it has none
	PermanentMAC string // IFLA_PERM_ADDRESS; "" when it has none
	Flags        uint32 // IFF_*
	Up           bool   // IFF_UP
	Carrier      bool   // IFF_LOWER_UP
	Type         string // ether, loopback, …, from ARPHRD_*
	MTU          int    // bytes
	BridgePort   bool   // its master is a bridge: ARP arrives at the bridge
}

// Address is an address of a link (RTM_NEWADDR), exactly as the kernel has it.
type Address struct {
	LinkIndex         int
	Link              string
	Prefix            netip.Prefix // the address with its prefix length, not masked
	Peer              netip.Prefix // IFA_ADDRESS where it differs; else the zero Prefix
	Broadcast         netip.Addr   // zero when there is none
	Scope             uint8        // RT_SCOPE_*: 0 global, 253 link, 254 host
	Label             string       // IPv4 only
	Flags             uint32       // IFA_F_*
	ValidLifetime     uint32       // seconds; Forever
	PreferredLifetime uint32       // seconds; Forever
	Metric            uint32       // IFA_RT_PRIORITY; 0 = the kernel's own
	Protocol          uint8        // IFAPROT_* (Linux 5.18); 0 = not told
}

// Forever is a lifetime without end (INFINITY_LIFE_TIME, net/addrconf.h).
const Forever uint32 = 0xffffffff

// Route is an entry of a routing table (RTM_NEWROUTE). State lists those that
// cover a watched VIP, in any table: a local one makes the kernel answer, an
// ordinary one lets proxy ARP answer. It also lists every unicast route that
// names a gateway or a source, since those addresses must never be removed.
type Route struct {
	Prefix    netip.Prefix // masked
	Type      string       // unicast, local, broadcast, blackhole, …
	Table     uint32       // 255 local, 254 main
	Link      string       // "" when it names none or several
	LinkIndex int          // 0 when it names none or several
	Source    netip.Addr   // RTA_PREFSRC
	Gateways  []netip.Addr // one for each next hop that has one
	Links     []int        // link index of each next hop
	Scope     uint8        // RT_SCOPE_*
	Protocol  uint8        // RTPROT_*
	Metric    uint32       // RTA_PRIORITY
	NextHop   uint32       // id of a nexthop object; 0 = none
}

// LocalTable is the kernel's own table of local addresses (RT_TABLE_LOCAL).
const LocalTable = 255

// Covers says whether the route's prefix contains ip.
func (r Route) Covers(ip netip.Addr) bool { return r.Prefix.Contains(ip) }

// Rule is a policy routing rule (ip-rule(8)).
type Rule struct {
	Priority int
	Table    int
	From, To netip.Prefix // zero = any
	InLink   string
	OutLink  string
	Mark     uint32
	Not      bool   // the selector is inverted
	Family   string // ipv4 or ipv6
}

// Neighbour is an entry of the neighbour table (RTM_NEWNEIGH).
type Neighbour struct {
	IP    netip.Addr
	MAC   string // "" while unresolved
	Link  string
	State string // reachable, stale, incomplete, … (NUD_*)
}

// Sysctls are the per-interface settings that decide about ARP
// (Documentation/networking/ip-sysctl.rst). nil = could not be read = unknown.
type Sysctls struct {
	ArpIgnore          *int
	ArpAnnounce        *int
	ArpFilter          *int
	ProxyArp           *int
	RpFilter           *int
	PromoteSecondaries *int
	RouteLocalnet      *int
	AcceptLocal        *int
	Forwarding         *int
}
