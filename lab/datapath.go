// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// tableName is the lab's nftables table in every node.
const tableName = "vipmove-lab"

// redirect makes the calling thread's network namespace serve the VIP without
// holding it, as an eBPF datapath does: new connections to vip:80 are sent to
// the server, whether the VIP is a local address or not.
//
//	table ip vipmove-lab { chain prerouting {
//	  type nat hook prerouting priority dstnat
//	  ip daddr VIP tcp dport 80 dnat to SERVER } }
func redirect(vip netip.Addr, server netip.AddrPort) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("opening nftables: %w", err)
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: tableName})
	chain := conn.AddChain(&nftables.Chain{
		Name:     "prerouting",
		Table:    table,
		Type:     nftables.ChainTypeNAT,
		Hooknum:  nftables.ChainHookPrerouting,
		Priority: nftables.ChainPriorityNATDest,
	})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: redirection(vip, server)})
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("adding nftables table %s (needs the kernel's nf_tables and nft_nat): %w", tableName, err)
	}
	return nil
}

// Offsets in the IPv4 header (RFC 791) and the TCP header (RFC 9293).
const (
	daddrOffset = 16
	dportOffset = 2
)

func redirection(vip netip.Addr, server netip.AddrPort) []expr.Any {
	const addrReg, portReg = 1, 2
	destination, to := vip.As4(), server.Addr().As4()
	return []expr.Any{
		&expr.Payload{DestRegister: addrReg, Base: expr.PayloadBaseNetworkHeader, Offset: daddrOffset, Len: 4},
		&expr.Cmp{Register: addrReg, Op: expr.CmpOpEq, Data: destination[:]},
		&expr.Meta{Register: addrReg, Key: expr.MetaKeyL4PROTO},
		&expr.Cmp{Register: addrReg, Op: expr.CmpOpEq, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: addrReg, Base: expr.PayloadBaseTransportHeader, Offset: dportOffset, Len: 2},
		&expr.Cmp{Register: addrReg, Op: expr.CmpOpEq, Data: binaryutil.BigEndian.PutUint16(servicePort)},
		&expr.Immediate{Register: addrReg, Data: to[:]},
		&expr.Immediate{Register: portReg, Data: binaryutil.BigEndian.PutUint16(server.Port())},
		&expr.NAT{
			Type:        expr.NATTypeDestNAT,
			Family:      unix.NFPROTO_IPV4,
			RegAddrMin:  addrReg,
			RegProtoMin: portReg,
			Specified:   true,
		},
	}
}
