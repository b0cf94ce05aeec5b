// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/vipmove/vipmove/lab/namespace"
	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
)

// kernelWorld is a bridge in a network namespace, and one for each host.
type kernelWorld struct{ sw *namespace.Namespace }

func newKernelWorld(t *testing.T) kernelWorld {
	sw := namespacetest.NewT(t, "switch")
	must(t, sw.AddBridge("br0"))
	must(t, sw.AddAddress("br0", netip.PrefixFrom(switchIP, 24)))
	return kernelWorld{sw}
}

// switchIP is an address of the bridge itself, whose kernel answers for it.
var switchIP = netip.AddrFrom4([4]byte{192, 0, 2, 254})

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (kernelWorld) window() time.Duration { return 400 * time.Millisecond }

func (w kernelWorld) join(t *testing.T, last byte) host { return w.node(t, last) }

func (w kernelWorld) node(t *testing.T, last byte) *kernelHost {
	t.Helper()
	ns := namespacetest.NewT(t, fmt.Sprintf("h%d", last))
	h := &kernelHost{ns: ns, sw: w.sw, port: fmt.Sprintf("port%d", last), ip: netip.AddrFrom4([4]byte{192, 0, 2, last})}
	hw := net.HardwareAddr{2, 0, 0, 0, 0, last}
	must(t, namespace.Connect(ns, "eth0", hw, w.sw, "br0", h.port))
	must(t, ns.AddAddress("eth0", netip.PrefixFrom(h.ip, 24)))
	must(t, ns.Do(func() error {
		ifi, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		h.eth0 = NIC{Name: ifi.Name, Index: ifi.Index, MAC: MAC(ifi.HardwareAddr)}
		h.out, err = packet.Listen(ifi, packet.Raw, 0, nil) // protocol 0 receives nothing
		return err
	}))
	t.Cleanup(func() { h.out.Close() })
	h.settle(t)
	return h
}

// settle waits until the switch forwards to and from the new port: the kernel
// looks at carriers in the background (net/core/link_watch.c), and until then
// a bridge port is disabled, however up it is.
func (h *kernelHost) settle(t *testing.T) {
	t.Helper()
	request := bytesOf(t, Frame{EthSrc: h.eth0.MAC, EthDst: ff, Op: OpRequest, SenderMAC: h.eth0.MAC, SenderIP: h.ip, TargetIP: switchIP}, 0)
	must(t, h.ns.Do(func() error {
		conn, err := packet.Listen(&net.Interface{Index: h.eth0.Index}, packet.Raw, unix.ETH_P_ARP, nil)
		if err != nil {
			return err
		}
		defer conn.Close()
		buf := make([]byte, 100)
		for begun := time.Now(); time.Since(begun) < 30*time.Second; {
			_, _ = conn.WriteTo(request, &packet.Addr{HardwareAddr: ff[:]}) // no carrier yet: ask again
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if n, _, err := conn.ReadFrom(buf); err == nil {
				if f, err := Decode(buf[:n], Metadata{}); err == nil && f.Op == OpReply && f.SenderIP == switchIP {
					return nil
				}
			}
		}
		return fmt.Errorf("the switch does not answer %v", h.ip)
	}))
}

type kernelHost struct {
	ns   *namespace.Namespace
	sw   *namespace.Namespace
	port string
	eth0 NIC
	ip   netip.Addr
	out  *packet.Conn
}

func (h *kernelHost) nic() NIC         { return h.eth0 }
func (h *kernelHost) addr() netip.Addr { return h.ip }
func (h *kernelHost) sockets() Sockets { return Kernel{} }

func (h *kernelHost) in(fn func()) {
	if err := h.ns.Do(func() error { fn(); return nil }); err != nil {
		panic(err)
	}
}

func (h *kernelHost) hold(t *testing.T, ip netip.Addr) {
	t.Helper()
	_, err := h.ns.AddDummy("kube-ipvs0")
	must(t, err)
	must(t, h.ns.AddAddress("kube-ipvs0", netip.PrefixFrom(ip, 32)))
}

// proxy gives the host a route to ip through another link, forwarding and
// proxy ARP, with the kernel's usual delay.
func (h *kernelHost) proxy(t *testing.T, ip netip.Addr) {
	t.Helper()
	must(t, h.ns.AddBridge("br9"))
	near := netip.PrefixFrom(ip.Prev(), 30)
	must(t, h.ns.AddAddress("br9", near))
	if !near.Contains(ip) {
		t.Fatalf("%v is not routed by %v", ip, near)
	}
	must(t, h.ns.SetSysctl("net/ipv4/ip_forward", "1"))
	must(t, h.ns.SetSysctl("net/ipv4/conf/eth0/proxy_arp", "1"))
}

func (h *kernelHost) send(t *testing.T, b []byte) {
	t.Helper()
	dst := net.HardwareAddr(b[:6])
	if _, err := h.out.WriteTo(b, &packet.Addr{HardwareAddr: dst}); err != nil {
		t.Fatal(err)
	}
}

func (h *kernelHost) fail(t *testing.T, state error) {
	t.Helper()
	switch state {
	case ErrDown:
		must(t, setUp(h.ns, "eth0", false))
	case ErrNoCarrier:
		must(t, setUp(h.sw, h.port, false))
	default:
		t.Fatalf("no way to fail with %v", state)
	}
}

func setUp(ns *namespace.Namespace, link string, up bool) error {
	return ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		req, err := unix.NewIfreq(link)
		if err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req); err != nil {
			return err
		}
		flags := req.Uint16() &^ unix.IFF_UP
		if up {
			flags |= unix.IFF_UP
		}
		req.SetUint16(flags)
		return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
	})
}

// announce starts an announcer as small as they come: it answers whoever asks
// for ip, and holds no address. It shares no code with the package under test.
func (h *kernelHost) announce(t *testing.T, ip netip.Addr) {
	t.Helper()
	var conn *packet.Conn
	must(t, h.ns.Do(func() (err error) {
		conn, err = packet.Listen(&net.Interface{Index: h.eth0.Index}, packet.Raw, unix.ETH_P_ARP, nil)
		return err
	}))
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, _, err := conn.ReadFrom(buf)
			if err != nil {
				return // closed
			}
			if b := h.announcement(buf[:n], ip); b != nil {
				if _, err := conn.WriteTo(b, &packet.Addr{HardwareAddr: net.HardwareAddr(b[:6])}); err != nil {
					t.Errorf("answering as announcer: %v", err)
				}
			}
		}
	}()
}

func (h *kernelHost) announcement(b []byte, ip netip.Addr) []byte {
	var eth ethernet.Frame
	var request arp.Packet
	if eth.UnmarshalBinary(b) != nil || request.UnmarshalBinary(eth.Payload) != nil ||
		request.Operation != arp.OperationRequest || request.TargetIP != ip {
		return nil
	}
	own := net.HardwareAddr(h.eth0.MAC[:])
	reply, err := arp.NewPacket(arp.OperationReply, own, ip, request.SenderHardwareAddr, request.SenderIP)
	if err != nil {
		return nil
	}
	payload, _ := reply.MarshalBinary()
	answer := ethernet.Frame{Destination: request.SenderHardwareAddr, Source: own, EtherType: ethernet.EtherTypeARP, Payload: payload}
	out, _ := answer.MarshalBinary()
	return out
}
