// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/vipmove/vipmove/lab/prober"
)

const (
	// hearing is how long a kernel may take to answer on a busy machine.
	hearing = 5 * time.Second
	// silence is how long one is listened to before it counts as silent. It
	// answers in the same softirq as it receives.
	silence = 250 * time.Millisecond
	// proxySilence is longer than any delay of proxy ARP (proxy_delay, 0.8 s).
	proxySilence = 1100 * time.Millisecond
)

// answers asks from the client and compares who answers with the MACs wanted.
func answers(t *testing.T, l *Lab, r prober.Request, quiet time.Duration, want ...net.HardwareAddr) {
	t.Helper()
	r.Interface = Uplink
	window := quiet
	if len(want) > 0 {
		window = hearing
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []prober.Reply
	err := l.fromClient(func() (err error) {
		if len(want) == 1 && r.Sender == (netip.Addr{}) && r.Destination == nil {
			first, ok, err := prober.FirstReply(ctx, r.Interface, r.Target, window)
			if ok {
				got = append(got, first)
			}
			return err
		}
		got, err = prober.Ask(ctx, r, min(window, time.Second))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	macs := func(list []net.HardwareAddr) []string {
		names := []string{}
		for _, m := range list {
			names = append(names, m.String())
		}
		slices.Sort(names)
		return names
	}
	var heard []net.HardwareAddr
	for _, reply := range got {
		heard = append(heard, reply.MAC)
	}
	if diff := cmp.Diff(macs(want), macs(heard)); diff != "" {
		t.Errorf("who answers for %s (-want +got):\n%s", r.Target, diff)
	}
}

// broadcast asks for the VIP as an ordinary machine does.
func broadcast(t *testing.T, l *Lab, want ...net.HardwareAddr) {
	t.Helper()
	answers(t, l, prober.Request{Target: l.VIP()}, silence, want...)
}

// holder is a lab of one node that holds the VIP on kube-ipvs0.
func holder(t *testing.T) (*Lab, *Host) {
	t.Helper()
	t.Parallel()
	l := wired(t, Config{Nodes: 1, ClusterIPs: -1})
	return l, l.Nodes()[0]
}

func set(t *testing.T, h *Host, values map[string]int) {
	t.Helper()
	for path, value := range values {
		if err := h.SetSysctl("net/ipv4/"+path, fmt.Sprint(value)); err != nil {
			t.Fatal(err)
		}
	}
}

// do runs a netlink call on a link of the host.
func do(t *testing.T, h *Host, link string, fn func(netlink.Link) error) {
	t.Helper()
	if err := try(h, link, fn); err != nil {
		t.Fatal(err)
	}
}

func try(h *Host, link string, fn func(netlink.Link) error) error {
	return h.Do(func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		return fn(l)
	})
}

func ipnet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
}

// announce runs an announcer inside this process.
func announce(t *testing.T, l *Lab, n *Host) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- n.Do(func() error {
			return RunAnnouncer(ctx, AnnouncerConfig{Interface: Uplink, VIP: l.VIP(), Ready: func() { close(ready) }})
		})
	}()
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// neighbours lists a host's neighbour addresses.
func neighbours(t *testing.T, h *Host) []string {
	t.Helper()
	list := []string{}
	do(t, h, Uplink, func(link netlink.Link) error {
		entries, err := netlink.NeighList(link.Attrs().Index, netlink.FAMILY_V4)
		for _, e := range entries {
			list = append(list, e.IP.String())
		}
		return err
	})
	slices.Sort(list)
	return list
}
