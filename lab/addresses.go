// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"fmt"
	"net"
	"net/netip"
)

// Subnet is the lab's LAN: TEST-NET-1 of RFC 5737.
var Subnet = netip.MustParsePrefix("192.0.2.0/24")

var (
	clientAddress      = netip.MustParseAddr("192.0.2.1")
	coordinatorAddress = netip.MustParseAddr("192.0.2.2")
	proberAddress      = netip.MustParseAddr("192.0.2.3") // on no link: the prober asks with it
)

// maxClusterIPs keeps the ClusterIPs inside 10.96.0.0/20.
const maxClusterIPs = 4094

// nodeName names node i; the first is n1.
func nodeName(i int) string { return fmt.Sprintf("n%d", i) }

// indexOf returns i for the name of node i of n, else 0.
func indexOf(name string, n int) int {
	for i := 1; i <= n; i++ {
		if nodeName(i) == name {
			return i
		}
	}
	return 0
}

// nodeAddress is 192.0.2.11 for n1.
func nodeAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)})
}

// nodeMAC reads like the node's number: 02:00:00:00:00:17 for n17.
func nodeMAC(i int) net.HardwareAddr {
	return net.HardwareAddr{2, 0, 0, 0, 0, byte(i/10<<4 | i%10)}
}

// clusterIP is 10.96.0.1 for 1.
func clusterIP(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})
}

// checkVIP refuses a VIP that is another host's address or on no segment.
func checkVIP(vip netip.Addr, nodes int) error {
	switch {
	case !Subnet.Contains(vip), vip == Subnet.Addr(), vip == netip.MustParseAddr("192.0.2.255"):
		return fmt.Errorf("using %s as the lab's VIP: it is no host address of %s", vip, Subnet)
	case vip == clientAddress, vip == coordinatorAddress, vip == proberAddress:
		return fmt.Errorf("using %s as the lab's VIP: it is the client's, the coordinator's or the prober's own", vip)
	}
	for i := 1; i <= nodes; i++ {
		if vip == nodeAddress(i) {
			return fmt.Errorf("using %s as the lab's VIP: it is the own address of %s", vip, nodeName(i))
		}
	}
	return nil
}
