// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/agent/report"
	"github.com/vipmove/vipmove/agent/wire"
	"github.com/vipmove/vipmove/lab/namespace"
	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
)

func TestMain(m *testing.M) { os.Exit(namespacetest.Main(checked{m})) }

// checked looks for goroutines that are left after all tests.
type checked struct{ m *testing.M }

func (c checked) Run() int {
	code := c.m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

var (
	vip      = netip.MustParseAddr("192.0.2.50")
	clientIP = netip.MustParseAddr("192.0.2.1")
)

// machine is a namespace with one NIC on the LAN.
type machine struct {
	*namespace.Namespace
	nic wire.NIC
	ip  netip.Addr
}

// lan is a client and two nodes that both hold the VIP. Only n1 answers ARP for
// it, so the client's neighbour entry is n1; n2, under strictARP, serves whoever
// sends it frames.
type lan struct {
	client, n1, n2 *machine
}

func newLAN(t testing.TB) *lan {
	t.Helper()
	sw := namespacetest.NewT(t, "sw")
	must(t, sw.AddBridge("br0"))
	join := func(name, ip string, last byte) *machine {
		n := namespacetest.NewT(t, name)
		mac := wire.MAC{2, 0, 0, 0, 0, last}
		must(t, namespace.Connect(n, "eth0", mac[:], sw, "br0", name))
		must(t, n.AddAddress("eth0", netip.MustParsePrefix(ip+"/24")))
		m := &machine{Namespace: n, ip: netip.MustParseAddr(ip)}
		must(t, n.Do(func() error {
			ifi, err := net.InterfaceByName("eth0")
			if err != nil {
				return err
			}
			m.nic = wire.NIC{Name: "eth0", Index: ifi.Index, MAC: mac}
			return nil
		}))
		return m
	}
	l := &lan{client: join("client", "192.0.2.1", 1), n1: join("n1", "192.0.2.11", 11), n2: join("n2", "192.0.2.12", 12)}
	for _, n := range []*machine{l.n1, l.n2} {
		must(t, n.AddAddress("lo", netip.PrefixFrom(vip, 32)))
	}
	must(t, l.n2.SetSysctl("net/ipv4/conf/eth0/arp_ignore", "1"))
	must(t, l.n2.SetSysctl("net/ipv4/conf/eth0/arp_announce", "2"))
	return l
}

func (l *lan) via(n *machine) Via { return Via{NIC: l.client.nic, Source: clientIP, MAC: n.nic.MAC} }

// dial opens a connection of this machine's kernel.
func (m *machine) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = m.Do(func() (err error) {
		conn, err = (&net.Dialer{KeepAlive: -1}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// looker carries out orders on the client; it is called inside of it.
func (l *lan) looker(t testing.TB) *report.Looker {
	t.Helper()
	kernel, err := host.New(host.Options{})
	must(t, err)
	return report.NewLooker(report.Config{Observer: "client", Kernel: kernel})
}

// through is ThroughMAC, called inside the client.
func (l *lan) through(t testing.TB, via Via, target Target, count int) Outcome {
	t.Helper()
	var o Outcome
	must(t, l.client.Do(func() (err error) {
		o, err = ThroughMAC(t.Context(), via, target, count)
		return err
	}))
	return o
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve runs handle for each connection to a port on all of a machine's
// addresses, until stop or the test's end.
func (m *machine) serve(t testing.TB, port uint16, handle func(net.Conn)) (stop func()) {
	t.Helper()
	var l net.Listener
	must(t, m.Do(func() (err error) {
		l, err = net.Listen("tcp4", fmt.Sprintf(":%d", port))
		return err
	}))
	var all sync.WaitGroup
	var open sync.Map
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Store(conn, nil)
			all.Go(func() {
				defer open.Delete(conn)
				defer conn.Close()
				handle(conn)
			})
		}
	})
	stop = sync.OnceFunc(func() {
		l.Close()
		open.Range(func(conn, _ any) bool { conn.(net.Conn).Close(); return true })
		all.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// readRequest reads one whole request.
func readRequest(conn net.Conn) *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return nil
	}
	return r
}

// says answers every request with this.
func says(answer string) func(net.Conn) {
	return func(conn net.Conn) {
		if readRequest(conn) != nil {
			_, _ = io.WriteString(conn, answer)
		}
	}
}

func ok(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
}

// silence reads until the peer goes away.
func silence(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// resets reads the request and closes with RST.
func resets(conn net.Conn) {
	readRequest(conn)
	_ = conn.(*net.TCPConn).SetLinger(0)
}

// at is a target that a busy machine answers in time.
func at(port uint16) Target {
	return Target{Address: netip.AddrPortFrom(vip, port), Timeout: 10 * time.Second}
}

// briefly is for requests that are to time out.
func briefly(t Target) Target {
	t.Timeout = 300 * time.Millisecond
	return t
}

// neighbour reads the client's entry for ip: its MAC and flags.
func (m *machine) neighbour(t testing.TB, ip netip.Addr) (mac string) {
	t.Helper()
	must(t, m.Do(func() (err error) {
		mac, err = neighbourMAC(ip)
		return err
	}))
	return mac
}

// sniff records the flags of every TCP segment that passes the client's NIC,
// in both directions, until stop.
func (m *machine) sniff(t testing.TB) (stop func() []segment) {
	t.Helper()
	var fd int
	must(t, m.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: m.nic.Index})
	}))
	stop = sync.OnceValue(func() []segment {
		defer unix.Close(fd)
		var seen []segment
		packet := make([]byte, superframe)
		for {
			n, _, err := unix.Recvfrom(fd, packet, 0)
			if err == unix.EAGAIN {
				return seen
			}
			if err != nil {
				t.Errorf("sniffing: %v", err)
				return seen
			}
			if s, ok := tcpSegment(packet[:n]); ok {
				seen = append(seen, s)
			}
		}
	})
	t.Cleanup(func() { stop() })
	return stop
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

func resetsIn(seen []segment) (n int) {
	for _, s := range seen {
		if s.flags&flagRST != 0 {
			n++
		}
	}
	return n
}
