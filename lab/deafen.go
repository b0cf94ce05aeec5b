// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"fmt"
	"net"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Deafen has the switch keep all ARP from a node, as a VM's bridge or a Wi-Fi
// NIC may, and leaves it everything else: it speaks, and its session with the
// coordinator goes on.
func (l *Lab) Deafen(node string) error {
	h, err := l.Host(node)
	if err != nil {
		return err
	}
	c, err := l.Host(Coordinator)
	if err != nil {
		return err
	}
	for _, pair := range [][2]*Host{{h, c}, {c, h}} {
		if err := pair[0].Do(func() error { return remember(pair[1]) }); err != nil {
			return fmt.Errorf("deafening %s: %w", node, err)
		}
	}
	if err := l.bridge.Do(func() error { return keepARPFrom("to-" + node) }); err != nil {
		return fmt.Errorf("deafening %s: %w", node, err)
	}
	return nil
}

// remember makes a permanent neighbour entry in the calling thread's namespace.
func remember(h *Host) error {
	link, err := netlink.LinkByName(Uplink)
	if err != nil {
		return err
	}
	return netlink.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, Family: unix.AF_INET, State: netlink.NUD_PERMANENT,
		IP: net.IP(h.Address.Addr().AsSlice()), HardwareAddr: h.MAC,
	})
}

// keepARPFrom drops ARP on its way out of a port of the bridge:
//
//	table bridge vipmove-lab { chain forward {
//	  type filter hook forward priority 0
//	  oifname PORT ether type arp drop } }
func keepARPFrom(port string) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("opening nftables: %w", err)
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyBridge, Name: tableName})
	chain := conn.AddChain(&nftables.Chain{
		Name: "forward", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, port)
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name},
		&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(unix.ETH_P_ARP)},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("adding nftables table %s (needs the kernel's bridge family): %w", tableName, err)
	}
	return nil
}
