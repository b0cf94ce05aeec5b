// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package virtualserver makes IPVS virtual services in network namespaces, as
// kube-proxy in IPVS mode makes them for the ClusterIPs and the VIPs that it
// puts on kube-ipvs0. It needs a kernel that has ip_vs.
package virtualserver

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cloudflare/ipvs"
	"github.com/cloudflare/ipvs/netmask"

	"github.com/vipmove/vipmove/lab/namespace"
)

// Service is a virtual service: of an address, a port and a protocol, or of a
// firewall mark.
type Service struct {
	Address  netip.Addr // with a mark only its family counts
	Port     uint16
	Protocol ipvs.Protocol
	FWMark   uint32
	Servers  []netip.AddrPort // by masquerading, weight 1
}

// TCP is the service of an address and a port, with its servers.
func TCP(address string, port uint16, servers ...string) Service {
	s := Service{Address: netip.MustParseAddr(address), Port: port, Protocol: ipvs.TCP}
	for _, server := range servers {
		s.Servers = append(s.Servers, netip.MustParseAddrPort(server))
	}
	return s
}

// UDP is like TCP.
func UDP(address string, port uint16, servers ...string) Service {
	return TCP(address, port, servers...).over(ipvs.UDP)
}

// SCTP is like TCP.
func SCTP(address string, port uint16, servers ...string) Service {
	return TCP(address, port, servers...).over(ipvs.SCTP)
}

// Marked is the service of the packets with a firewall mark, of the family of
// the address.
func Marked(mark uint32, family netip.Addr) Service {
	return Service{FWMark: mark, Address: family}
}

func (s Service) over(p ipvs.Protocol) Service {
	s.Protocol = p
	return s
}

// String is "tcp 192.0.2.50:80" or "mark 7 (IPv4)".
func (s Service) String() string {
	if s.FWMark != 0 {
		return fmt.Sprintf("mark %d, IPv%d", s.FWMark, 4+2*((s.Address.BitLen()-32)/96))
	}
	return fmt.Sprintf("%v %v", s.Protocol, netip.AddrPortFrom(s.Address, s.Port))
}

// Add makes the service in n.
func Add(n *namespace.Namespace, s Service) error {
	return in(n, "adding", s, func(c ipvs.Client) error {
		if err := c.CreateService(s.raw()); err != nil {
			return err
		}
		for _, server := range s.Servers {
			to := ipvs.Destination{
				Address: server.Addr(), Port: server.Port(), Family: family(server.Addr()), FwdMethod: ipvs.Masquerade, Weight: 1,
			}
			if err := c.CreateDestination(s.raw(), to); err != nil {
				return err
			}
		}
		return nil
	})
}

// Remove takes the service and its servers away from n.
func Remove(n *namespace.Namespace, s Service) error {
	return in(n, "removing", s, func(c ipvs.Client) error { return c.RemoveService(s.raw()) })
}

func in(n *namespace.Namespace, doing string, s Service, fn func(ipvs.Client) error) error {
	err := n.Do(func() error {
		c, err := ipvs.New()
		if err != nil {
			return err
		}
		err = fn(c)
		if closer, ok := c.(interface{ Close() error }); ok {
			err = errors.Join(err, closer.Close())
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s virtual service %s in %s: %w", doing, s, n.Name(), err)
	}
	return nil
}

// raw is the service as the library has it.
func (s Service) raw() ipvs.Service {
	bits := s.Address.BitLen()
	return ipvs.Service{
		Address: s.Address, Port: s.Port, Protocol: s.Protocol, FWMark: s.FWMark,
		Family: family(s.Address), Netmask: netmask.MaskFrom(bits, bits), Scheduler: "rr",
	}
}

func family(ip netip.Addr) ipvs.AddressFamily {
	if ip.Is4() {
		return ipvs.INET
	}
	return ipvs.INET6
}
