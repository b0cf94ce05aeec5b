// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/vipmove/vipmove/agent/wire"
)

func TestThroughMACReachesExactlyTheNodeNamedWhateverTheNeighbourEntrySays(t *testing.T) {
	l := newLAN(t)
	l.n1.serve(t, 80, says(ok("this is n1")))
	l.n2.serve(t, 80, says(ok("this is n2")))

	byKernel := at(80)
	byKernel.Marker = "n1"
	if err := requestOnce(l, byKernel); err != nil {
		t.Fatalf("the client's kernel, whose neighbour entry is n1: %v", err)
	}
	if got := l.client.neighbour(t, vip); got != l.n1.nic.MAC.String() {
		t.Fatalf("neighbour entry = %q, want n1's %s", got, l.n1.nic.MAC)
	}
	stop := l.client.sniff(t)
	for _, n := range []*machine{l.n2, l.n1, l.n2} {
		target := at(80)
		target.Marker = "this is " + n.Name()
		got := l.through(t, l.via(n), target, 8)
		want := Outcome{Sent: 8, Succeeded: 8, ByType: map[Failure]uint32{}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("through %s (-want +got):\n%s", n.Name(), diff)
		}
	}
	if got := l.client.neighbour(t, vip); got != l.n1.nic.MAC.String() {
		t.Errorf("neighbour entry = %q afterwards, want n1's %s untouched", got, l.n1.nic.MAC)
	}
	seen := stop()
	if n := resetsIn(seen); n != 0 {
		t.Errorf("%d RST on the wire, want none", n)
	}
	if len(seen) < 3*8*6 {
		t.Errorf("%d segments on the wire: the sniffer is deaf", len(seen))
	}
}

// The test above would not be worth much if the sniffer did not see what the
// held port prevents. (The kernel's reset goes where its neighbour entry says,
// so it does not always hit the connection that it is about.)
func TestWithoutTheHeldPortTheKernelResetsTheConnection(t *testing.T) {
	l := newLAN(t)
	l.n1.serve(t, 80, says(ok("n1")))
	if err := requestOnce(l, at(80)); err != nil {
		t.Fatal(err)
	}
	stop := l.client.sniff(t)
	must(t, l.client.Do(func() error {
		r, err := openThroughMAC(l.via(l.n1), at(80))
		if err != nil {
			return err
		}
		defer r.close()
		r.port.release()
		r.port = nil
		r.run(t.Context(), at(80))
		return nil
	}))
	if resetsIn(stop()) == 0 {
		t.Error("no RST was seen")
	}
}

func TestNoResetAlsoWhereTheServerLeavesClosingToUs(t *testing.T) {
	l := newLAN(t)
	l.n2.serve(t, 80, func(conn net.Conn) {
		if readRequest(conn) != nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nn2")
		}
		silence(conn) // until our FIN
	})
	stop := l.client.sniff(t)
	if got := l.through(t, l.via(l.n2), at(80), 4); got.Succeeded != 4 {
		t.Fatalf("outcome = %+v", got)
	}
	if n := resetsIn(stop()); n != 0 {
		t.Errorf("%d RST on the wire, want none", n)
	}
}

func TestAConnectionThatWillNotEndIsResetByUsNotByTheKernel(t *testing.T) {
	l := newLAN(t)
	gone := make(chan error, 1)
	l.n2.serve(t, 80, func(conn net.Conn) {
		readRequest(conn)
		_, _ = io.WriteString(conn, ok("n2"))
		_, err := io.Copy(io.Discard, conn) // our FIN
		if err == nil {
			// Keep this side open: the next word is the stack's reset.
			for err == nil {
				_, err = conn.Write([]byte("x"))
			}
		}
		gone <- err
	})
	if got := l.through(t, l.via(l.n2), at(80), 1); got.Succeeded != 1 {
		t.Fatalf("outcome = %+v", got)
	}
	if err := <-gone; err == nil {
		t.Error("the server was never told that the connection is over")
	}
}

func TestThroughMACByTCPAloneAndALargeAnswer(t *testing.T) {
	l := newLAN(t)
	l.n2.serve(t, 80, says(ok(strings.Repeat("x", 60<<10)+"the end")))
	target := at(80)
	target.Marker = "the end"
	if got := l.through(t, l.via(l.n2), target, 4); got.Succeeded != 4 {
		t.Errorf("60 KiB in segments that the kernel joins: %+v", got)
	}
	target = at(80)
	target.TCP = true
	if got := l.through(t, l.via(l.n2), target, 4); got.Succeeded != 4 {
		t.Errorf("TCP alone: %+v", got)
	}
}

func TestThroughMACAConnectionTimesOutWhereNoMachineHasTheMAC(t *testing.T) {
	l := newLAN(t)
	l.n1.serve(t, 80, says(ok("n1")))
	nobody := l.via(l.n2)
	nobody.MAC = wire.MAC{2, 0, 0, 0, 0, 99}
	got := l.through(t, nobody, briefly(at(80)), 3)
	if got.Sent != 3 || got.Succeeded != 0 || got.ByType[ConnectTimeout] != 3 {
		t.Errorf("outcome = %+v, want three connect-timeouts", got)
	}
}

func TestThroughMACARouterThatKnowsNoWayIsNoRoute(t *testing.T) {
	l := newLAN(t)
	must(t, l.n2.SetSysctl("net/ipv4/ip_forward", "1"))
	elsewhere := at(80)
	elsewhere.Address = netip.MustParseAddrPort("203.0.113.9:80")
	got := l.through(t, l.via(l.n2), elsewhere, 1)
	if got.ByType[NoRoute] != 1 {
		t.Errorf("outcome = %+v, want no-route by ICMP", got)
	}
}

func TestThroughMACIsCalledOffWithItsContext(t *testing.T) {
	l := newLAN(t)
	accepted := make(chan struct{}, 1)
	l.n2.serve(t, 80, func(conn net.Conn) { accepted <- struct{}{}; silence(conn) })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-accepted; cancel() }()
	target := at(80)
	target.Timeout = time.Hour
	var got Outcome
	must(t, l.client.Do(func() (err error) {
		got, err = ThroughMAC(ctx, l.via(l.n2), target, 1)
		return err
	}))
	if got.Sent != 0 || got.ByType[Local] != 1 || !strings.Contains(got.LastError, "called off") {
		t.Errorf("outcome = %+v, want it called off and not counted against the node", got)
	}
}

func TestThroughMACRefusesWhatCannotBeMeant(t *testing.T) {
	good := Via{NIC: wire.NIC{Name: "eth0", Index: 1, MAC: wire.MAC{2}}, Source: clientIP, MAC: wire.MAC{2, 0, 0, 0, 0, 9}}
	with := func(change func(*Via)) Via { v := good; change(&v); return v }
	tests := []struct {
		name  string
		via   Via
		t     Target
		count int
		want  string
	}{
		{"no request", good, at(80), 0, "requesting through a MAC: 0 requests are not between 1 and 32"},
		{"too many", good, at(80), 33, "requesting through a MAC: 33 requests are not between 1 and 32"},
		{"a group MAC", with(func(v *Via) { v.MAC = wire.BroadcastMAC }), at(80), 1, "requesting through a MAC: ff:ff:ff:ff:ff:ff is not the MAC of one machine"},
		{"no MAC", with(func(v *Via) { v.MAC = wire.MAC{} }), at(80), 1, "requesting through a MAC: 00:00:00:00:00:00 is not the MAC of one machine"},
		{"an IPv6 source", with(func(v *Via) { v.Source = netip.MustParseAddr("2001:db8::1") }), at(80), 1, `requesting through a MAC: source "2001:db8::1" is no IPv4 address`},
		{"no port", good, Target{Address: netip.AddrPortFrom(vip, 0)}, 1, `requesting through a MAC: target "192.0.2.50:0" is no address with a port`},
		{"an IPv6 target", good, Target{Address: netip.MustParseAddrPort("[2001:db8::1]:80")}, 1, "requesting through a MAC: target [2001:db8::1]:80 is no IPv4 address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ThroughMAC(t.Context(), tt.via, tt.t, tt.count)
			if err == nil || err.Error() != tt.want {
				t.Errorf("err = %v\nwant  %s", err, tt.want)
			}
		})
	}
}

func TestAnAddressThatIsNotThisHostsIsAnErrorAndNotAFailureOfTheNode(t *testing.T) {
	l := newLAN(t)
	via := l.via(l.n2)
	via.Source = netip.MustParseAddr("192.0.2.77")
	err := l.client.Do(func() error {
		_, err := ThroughMAC(t.Context(), via, at(80), 1)
		return err
	})
	want := "requesting http://192.0.2.50:80/ through 02:00:00:00:00:0c: holding a port of 192.0.2.77: bind: cannot assign requested address"
	if err == nil || err.Error() != want {
		t.Errorf("err = %v\nwant  %s", err, want)
	}
}

// A held port keeps silent to everyone and is given back.
func TestAHeldPortIsSilentAndIsGivenBack(t *testing.T) {
	l := newLAN(t)
	var port *heldPort
	must(t, l.client.Do(func() (err error) { port, err = holdPort(clientIP); return err }))
	knock := func() *RequestError {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		conn, err := l.n1.dial(ctx, "tcp", netip.AddrPortFrom(clientIP, port.port).String())
		if err != nil {
			return connecting(err)
		}
		conn.Close()
		return nil
	}
	if err := knock(); err == nil || err.Failure != ConnectTimeout {
		t.Errorf("knocking at a held port: %v, want silence", err)
	}
	port.release()
	if err := knock(); err == nil || err.Failure != Refused {
		t.Errorf("knocking after release: %v, want refused", err)
	}
	if _, err := unix.Getsockname(port.fd); err == nil {
		t.Error("the descriptor is still open")
	}
}

// A node that holds the VIP and does not know the client's MAC asks for it with
// the VIP as sender (arp_announce 0; arp_solicit in net/ipv4/arp.c), and every
// cache on the LAN then has that node for the VIP. A node that was asked by ARP
// before knows the client.
func TestANodeThatKnowsTheClientDoesNotAskWithTheVIPAsSender(t *testing.T) {
	for _, introduced := range []bool{false, true} {
		l := newLAN(t)
		must(t, l.n2.SetSysctl("net/ipv4/conf/eth0/arp_announce", "0"))
		for _, n := range []*machine{l.n1, l.n2} {
			n.serve(t, 80, says(ok(n.Name())))
		}
		if err := requestOnce(l, at(80)); err != nil {
			t.Fatal(err)
		}
		if introduced {
			must(t, l.client.Do(func() error {
				introduce(t.Context(), l.looker(t), l.via(l.n2), l.n2.ip)
				return nil
			}))
		}
		if got := l.through(t, l.via(l.n2), at(80), 1); got.Succeeded != 1 {
			t.Fatalf("outcome = %+v", got)
		}
		want := l.n2.nic.MAC
		if introduced {
			want = l.n1.nic.MAC
		}
		if got := l.client.neighbour(t, vip); got != want.String() {
			t.Errorf("introduced %t: neighbour entry = %s, want %s", introduced, got, want)
		}
	}
}
