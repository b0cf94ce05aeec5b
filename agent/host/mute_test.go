// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sync/errgroup"

	"github.com/vipmove/vipmove/lab"
	"github.com/vipmove/vipmove/lab/namespace"
	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
	"github.com/vipmove/vipmove/lab/prober"
)

// Mute, one body on two worlds.
func TestMuteKernelLinux(t *testing.T) { testMute(t, newLinuxWorld) }
func TestMuteKernelFake(t *testing.T)  { testMute(t, newFakeWorld) }

func testMute(t *testing.T, newWorld func(testing.TB) world) {
	t.Run("one at a time, and lifting is idempotent", func(t *testing.T) {
		w := newWorld(t)
		lift, err := w.Mute(vip, MaxMute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Mute(netip.MustParseAddr("192.0.2.51"), MaxMute); err == nil {
			t.Error("a second mute began beside the first")
		}
		if err := lift(); err != nil {
			t.Fatal(err)
		}
		again, err := w.Mute(vip, time.Second)
		if err != nil {
			t.Fatalf("muting after a lift: %v", err)
		}
		if err := errors.Join(again(), w.ClearMute(), w.ClearMute()); err != nil {
			t.Error(err)
		}
	})
	t.Run("never longer than two seconds, never IPv6", func(t *testing.T) {
		w := newWorld(t)
		for _, c := range []struct {
			ip netip.Addr
			d  time.Duration
		}{{vip, MaxMute + 1}, {vip, 0}, {vip, -time.Second}, {vipSix, time.Second}} {
			if _, err := w.Mute(c.ip, c.d); err == nil {
				t.Errorf("muting %s for %s was accepted", c.ip, c.d)
			}
		}
	})
	t.Run("no rights: the error names the capability", func(t *testing.T) {
		w := newWorld(t)
		w.deny(true)
		if _, err := w.Mute(vip, time.Second); err == nil || !contains(err, "CAP_NET_ADMIN") {
			t.Errorf("muting without rights: %v", err)
		}
	})
}

func contains(err error, text string) bool {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if _, ok := e.(*permissionError); ok {
			return text == "CAP_NET_ADMIN"
		}
	}
	return false
}

// muteLab is a node that holds the VIP, and somebody who asks it.
type muteLab struct {
	*linuxWorld
	asker *namespace.Namespace
}

func newMuteLab(t *testing.T) muteLab {
	t.Helper()
	w := newNamespaceWorld(t, Options{})
	story(w)
	asker, sw := namespacetest.NewT(t, "asker"), namespacetest.NewT(t, "between")
	w.must(sw.AddBridge("br0"))
	w.must(namespace.Connect(asker, "eth0", nil, sw, "br0", "asker"))
	w.must(asker.AddAddress("eth0", netip.MustParsePrefix("192.0.2.1/24")))
	w.must(namespace.Connect(w.ns, "eth1", nil, sw, "br0", "n1"))
	w.must(w.ns.AddAddress("eth1", netip.MustParsePrefix("192.0.2.11/24")))
	return muteLab{w, asker}
}

// replies to one broadcast request for ip.
func (l muteLab) replies(ip netip.Addr) int {
	l.t.Helper()
	n := 0
	l.must(l.asker.Do(func() error {
		got, err := prober.Responders(context.Background(), "eth0", ip, 200*time.Millisecond)
		for _, r := range got {
			n += r.Count
		}
		return err
	}))
	return n
}

func (l muteLab) tables() []string {
	var names []string
	l.do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		list, err := c.ListTablesOfFamily(nftables.TableFamilyARP)
		for _, table := range list {
			names = append(names, table.Name)
		}
		return err
	})
	return names
}

func TestAMuteKernelIsSilentForThatVIPAloneAndUserSpaceGoesOn(t *testing.T) {
	l := newMuteLab(t)
	other := netip.MustParseAddr("10.96.0.1")
	if n := l.replies(vip); n != 1 {
		t.Fatalf("%d replies before, want the kernel's", n)
	}
	lift, err := l.Mute(vip, MaxMute)
	if err != nil {
		t.Fatal(err)
	}
	if n := l.replies(vip); n != 0 {
		t.Errorf("%d replies from a mute kernel", n)
	}
	if n := l.replies(other); n != 1 {
		t.Errorf("%d replies for an address that is not muted, want 1", n)
	}
	l.must(lift())
	if n := l.replies(vip); n != 1 {
		t.Errorf("%d replies after the lift, want the kernel's", n)
	}

	ctx, stop := context.WithCancel(t.Context())
	var announcer errgroup.Group
	ready := make(chan struct{})
	announcer.Go(func() error {
		return l.ns.Do(func() error {
			return lab.RunAnnouncer(ctx, lab.AnnouncerConfig{Interface: "eth1", VIP: vip, Ready: func() { close(ready) }})
		})
	})
	<-ready
	if n := l.replies(vip); n != 2 {
		t.Errorf("%d replies with an announcer, want two", n)
	}
	lift, err = l.Mute(vip, MaxMute)
	l.must(err)
	if n := l.replies(vip); n != 1 {
		t.Errorf("%d replies from a mute kernel with an announcer, want the announcer's", n)
	}
	l.must(lift())
	stop()
	l.must(announcer.Wait())
}

func TestAMuteEndsByItself(t *testing.T) {
	l := newMuteLab(t)
	begun := time.Now()
	lift, err := l.Mute(vip, 700*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if l.replies(vip) != 0 {
		t.Fatal("the kernel is not mute")
	}
	for l.replies(vip) == 0 {
		if time.Since(begun) > 5*time.Second {
			t.Fatal("still mute, and nobody lifted it")
		}
	}
	if after := time.Since(begun); after < 700*time.Millisecond {
		t.Errorf("answered again after %s", after)
	}
	l.must(lift())
}

// An agent that is killed closes its socket: so does a namespace's thread here.
func TestAMuteDiesWithItsSocketAndIsClearedAtStart(t *testing.T) {
	l := newMuteLab(t)
	var kill func() error
	l.do(func() error {
		conn, err := muteSocket()
		if err != nil {
			return err
		}
		kill = conn.Close
		return transact(conn, muteBatch(vip, MaxMute, tableOwned))
	})
	if got := l.tables(); !slices.Contains(got, muteTable) {
		t.Fatalf("tables: %v", got)
	}
	l.must(kill())
	if got := l.tables(); slices.Contains(got, muteTable) {
		t.Errorf("the table outlived its socket: %v", got)
	}

	l.do(func() error { // an older kernel: the table has no owner and stays
		conn, err := muteSocket()
		if err != nil {
			return err
		}
		return errors.Join(transact(conn, muteBatch(vip, MaxMute, 0)), conn.Close())
	})
	if got := l.tables(); !slices.Contains(got, muteTable) {
		t.Fatalf("tables: %v", got)
	}
	l.must(l.ClearMute())
	if got := l.tables(); len(got) > 0 {
		t.Errorf("tables after clearing: %v", got)
	}
}

func TestNoNftablesIsUnsupportedAndLoadsNothing(t *testing.T) {
	l, err := New(Options{ProcRoot: files(t, map[string]string{"thread-self/net/netlink": ""})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Mute(vip, time.Second); !errors.Is(err, ErrMuteUnsupported) {
		t.Errorf("muting without nftables: %v", err)
	}
	if err := l.ClearMute(); err != nil {
		t.Errorf("clearing without nftables: %v", err)
	}
}
