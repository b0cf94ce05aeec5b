// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/vipmove/vipmove/lab/namespace"
)

const bridgeName = "br0"

// build makes the switch and every host. What it has made when it fails is in
// l, for Close.
func (l *Lab) build(ctx context.Context) error {
	sw, err := namespace.New(Switch)
	if err != nil {
		return err
	}
	l.bridge = sw
	if err := sw.AddBridge(bridgeName); err != nil {
		return err
	}
	if err := l.addClient(); err != nil {
		return err
	}
	if _, err := l.addHost(Coordinator, coordinatorAddress, net.HardwareAddr{2, 0, 0, 0, 1, 2}); err != nil {
		return err
	}
	for i := 1; i <= l.config.Nodes; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.addNode(i); err != nil {
			return err
		}
	}
	return nil
}

// addHost makes a namespace with an Uplink on the bridge.
func (l *Lab) addHost(name string, address netip.Addr, mac net.HardwareAddr) (*Host, error) {
	n, err := namespace.New(name)
	if err != nil {
		return nil, err
	}
	h := &Host{Name: name, Address: netip.PrefixFrom(address, Subnet.Bits()), MAC: mac, Namespace: n}
	l.hosts[name] = h
	if err := namespace.Connect(n, Uplink, mac, l.bridge, bridgeName, "to-"+name); err != nil {
		return nil, err
	}
	return h, n.AddAddress(Uplink, h.Address)
}

// addClient makes the client with a second NIC for the prober, which has no
// address and answers for none (arp_ignore 8).
func (l *Lab) addClient() error {
	h, err := l.addHost(Client, clientAddress, net.HardwareAddr{2, 0, 0, 0, 1, 1})
	if err != nil {
		return err
	}
	if err := namespace.Connect(h.Namespace, ProbeNIC, net.HardwareAddr{2, 0, 0, 0, 1, 3}, l.bridge, bridgeName, "to-prober"); err != nil {
		return err
	}
	return h.SetSysctl("net/ipv4/conf/"+ProbeNIC+"/arp_ignore", "8")
}

// addNode makes a node in the state that an IPVS-mode kube-proxy leaves: every
// address on kube-ipvs0, nothing behind them.
func (l *Lab) addNode(i int) error {
	h, err := l.addHost(nodeName(i), nodeAddress(i), nodeMAC(i))
	if err != nil {
		return err
	}
	l.nodes = append(l.nodes, h)
	if l.dummyKind, err = h.AddDummy(Dummy); err != nil {
		return err
	}
	if err := h.AddAddress(Dummy, l.HostVIP()); err != nil {
		return err
	}
	for j := 1; j <= l.config.ClusterIPs; j++ {
		if err := h.AddAddress(Dummy, netip.PrefixFrom(clusterIP(j), 32)); err != nil {
			return err
		}
	}
	if l.config.ServeNeedsAddress {
		return nil
	}
	if err := h.Do(func() error { return redirect(l.config.VIP, h.server()) }); err != nil {
		return fmt.Errorf("redirecting %s to the server of %s: %w", l.config.VIP, h.Name, err)
	}
	return nil
}

// HostVIP is the VIP with the prefix length it has on kube-ipvs0.
func (l *Lab) HostVIP() netip.Prefix { return netip.PrefixFrom(l.config.VIP, 32) }

// server is where a node's HTTP server listens when it serves the VIP without
// holding it.
func (h *Host) server() netip.AddrPort { return netip.AddrPortFrom(h.Address.Addr(), 8080) }
