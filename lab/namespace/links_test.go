// SPDX-License-Identifier: Apache-2.0

//go:build linux

package namespace_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vipmove/vipmove/lab/namespace"
	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
)

// waitGone waits until path does not exist.
func waitGone(t *testing.T, path string) {
	t.Helper()
	deadline := time.After(5 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s is still there", path)
		}
	}
}

// pair makes two namespaces on one bridge: 192.0.2.1 and 192.0.2.11.
func pair(t *testing.T) (client, node *namespace.Namespace) {
	t.Helper()
	sw := namespacetest.NewT(t, "switch")
	if err := sw.AddBridge("br0"); err != nil {
		t.Fatal(err)
	}
	for i, address := range []string{"192.0.2.1/24", "192.0.2.11/24"} {
		n := namespacetest.NewT(t, fmt.Sprintf("host%d", i))
		mac := net.HardwareAddr{2, 0, 0, 0, 0, byte(i + 1)}
		if err := namespace.Connect(n, "eth0", mac, sw, "br0", fmt.Sprintf("port%d", i)); err != nil {
			t.Fatal(err)
		}
		if err := n.AddAddress("eth0", netip.MustParsePrefix(address)); err != nil {
			t.Fatal(err)
		}
		if client == nil {
			client = n
		} else {
			node = n
		}
	}
	return client, node
}

func TestTwoNamespacesTalkThroughTheBridge(t *testing.T) {
	client, node := pair(t)
	var listener net.Listener
	err := node.Do(func() (err error) {
		listener, err = net.Listen("tcp", "192.0.2.11:8080")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if c, err := listener.Accept(); err == nil {
			fmt.Fprint(c, "n1")
			c.Close()
		}
	}()
	err = client.Do(func() error {
		c, err := net.DialTimeout("tcp", "192.0.2.11:8080", 5*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		answer := make([]byte, 2)
		if _, err := c.Read(answer); err != nil {
			return err
		}
		if string(answer) != "n1" {
			return fmt.Errorf("answer is %q", answer)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAFrameSentRightAfterConnectArrives(t *testing.T) {
	// UDP is sent once; on a bad day a link watch lost it in one run of twenty.
	for range 20 {
		client, node := pair(t)
		var at, from net.PacketConn
		err := node.Do(func() (err error) {
			at, err = net.ListenPacket("udp4", "192.0.2.11:9")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer at.Close()
		err = client.Do(func() (err error) {
			from, err = net.ListenPacket("udp4", "192.0.2.1:9")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		// The neighbour entry is given, so that no ARP request is repeated either.
		err = client.Do(func() error {
			eth0, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			return netlink.NeighAdd(&netlink.Neigh{
				LinkIndex: eth0.Attrs().Index, State: netlink.NUD_PERMANENT,
				IP: net.IPv4(192, 0, 2, 11), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 2},
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := from.WriteTo([]byte("once"), at.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		if err := at.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := at.ReadFrom(make([]byte, 8)); err != nil {
			t.Fatalf("the datagram did not arrive: %v", err)
		}
	}
}

func TestConnectGivesTheMACAskedForAndHidesTheSwitch(t *testing.T) {
	client, _ := pair(t)
	err := client.Do(func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if got := eth0.Attrs().HardwareAddr.String(); got != "02:00:00:00:00:01" {
			t.Errorf("eth0 has MAC %s, want 02:00:00:00:00:01", got)
		}
		if eth0.Attrs().Flags&net.FlagUp == 0 {
			t.Error("eth0 is down")
		}
		for _, name := range []string{"br0", "port0"} {
			if _, err := netlink.LinkByName(name); err == nil {
				t.Errorf("%s is visible in the node", name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDummyIsLikeTheOneOfKubeProxy(t *testing.T) {
	n := namespacetest.NewT(t, "n1")
	kind, err := n.AddDummy("kube-ipvs0")
	if err != nil {
		t.Fatal(err)
	}
	if namespacetest.OnTestKernel() && kind != "dummy" {
		t.Errorf("kind is %s on a kernel that has dummy", kind)
	}
	err = n.Do(func() error {
		link, err := netlink.LinkByName("kube-ipvs0")
		if err != nil {
			return err
		}
		if link.Type() != kind {
			t.Errorf("kind is %s, reported as %s", link.Type(), kind)
		}
		if raw := link.Attrs().RawFlags; raw&0x1 != 0 || raw&0x80 == 0 { // IFF_UP, IFF_NOARP
			t.Errorf("flags are %#x, want DOWN and NOARP", raw)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAddressesComeAndGoWithTheirExactPrefix(t *testing.T) {
	n := namespacetest.NewT(t, "n1")
	if _, err := n.AddDummy("kube-ipvs0"); err != nil {
		t.Fatal(err)
	}
	vip, other := netip.MustParsePrefix("192.0.2.50/32"), netip.MustParsePrefix("10.96.0.1/32")
	for _, p := range []netip.Prefix{vip, other} {
		if err := n.AddAddress("kube-ipvs0", p); err != nil {
			t.Fatal(err)
		}
	}
	err := n.RemoveAddress("kube-ipvs0", netip.MustParsePrefix("192.0.2.50/24"))
	if !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("removing another prefix length: %v, want EADDRNOTAVAIL", err)
	}
	listed := func(want ...netip.Prefix) {
		t.Helper()
		got, err := n.Addresses("kube-ipvs0")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("addresses are %v, want %v", got, want)
		}
	}
	listed(vip, other)
	if err := n.RemoveAddress("kube-ipvs0", vip); err != nil {
		t.Fatal(err)
	}
	listed(other)
}

func TestSysctlsAreSetInsideOnly(t *testing.T) {
	a, b := namespacetest.NewT(t, "n1"), namespacetest.NewT(t, "n2")
	const path = "net/ipv4/conf/all/arp_ignore"
	if err := a.SetSysctl(path, "1"); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[*namespace.Namespace]string{a: "1", b: "0"} {
		got, err := n.Sysctl(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s in %s is %s, want %s", path, n.Name(), got, want)
		}
	}
}

func TestClosingANodeTakesItsPortOffTheSwitch(t *testing.T) {
	sw, n := namespacetest.NewT(t, "switch"), namespacetest.NewT(t, "n1")
	if err := sw.AddBridge("br0"); err != nil {
		t.Fatal(err)
	}
	if err := namespace.Connect(n, "eth0", nil, sw, "br0", "port1"); err != nil {
		t.Fatal(err)
	}
	var updates = make(chan netlink.LinkUpdate, 16)
	stop := make(chan struct{})
	defer close(stop)
	if err := sw.Do(func() error { return netlink.LinkSubscribe(updates, stop) }); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(10 * time.Second)
	for {
		select {
		case u := <-updates:
			if u.Header.Type == 17 && u.Attrs().Name == "port1" { // RTM_DELLINK
				return
			}
		case <-deadline:
			t.Fatal("port1 is still on the switch")
		}
	}
}
