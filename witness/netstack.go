// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const theNIC tcpip.NICID = 1

// netstack is a TCP/IP stack in this process with one address and one link, for
// one connection. Its owner calls Destroy.
type netstack struct {
	*stack.Stack
	flow flow
}

// newNetstack starts the stack's goroutines.
func newNetstack(f flow, link *channel.Endpoint) (*netstack, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	err := s.CreateNIC(theNIC, link)
	if err == nil {
		own := tcpip.ProtocolAddress{
			Protocol:          ipv4.ProtocolNumber,
			AddressWithPrefix: address(f.source.Addr()).WithPrefix(),
		}
		err = s.AddProtocolAddress(theNIC, own, stack.AddressProperties{})
	}
	if err != nil {
		s.Destroy()
		return nil, fmt.Errorf("making a TCP stack for %s: %s", f.source, err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: theNIC}})
	return &netstack{s, f}, nil
}

// dial connects the flow. The error is ctx's, or one that only says that the
// peer or the way did not want it: the tap knows which.
func (n *netstack) dial(ctx context.Context) (net.Conn, error) {
	conn, err := gonet.DialTCPWithBind(ctx, n.Stack, full(n.flow.source), full(n.flow.target), ipv4.ProtocolNumber)
	if err != nil {
		return nil, err // a nil *gonet.TCPConn would not be a nil net.Conn
	}
	return conn, nil
}

func address(a netip.Addr) tcpip.Address { return tcpip.AddrFrom4(a.As4()) }

func full(a netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: theNIC, Addr: address(a.Addr()), Port: a.Port()}
}
