// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vipmove/vipmove/agent/host"
)

// segments is a host with links of many kinds.
func segments() host.State {
	link := func(index int, name, kind string) host.Link {
		return host.Link{Name: name, Index: index, Kind: kind, Type: "ether", MAC: fmt.Sprintf("02:00:00:00:00:%02x", index)}
	}
	port := link(4, "eth2", "")
	port.MasterIndex = 5
	infiniband := host.Link{Name: "ib0", Index: 9, Type: "infiniband", MAC: "00:11:22:33:44:55:66:77:88:99:aa:bb:cc:dd:ee:ff:00:11:22:33"}
	s := host.State{Links: []host.Link{
		{Name: "lo", Index: 1, Type: "loopback"}, link(2, "eth0", ""), link(3, "eth1", ""), port, link(5, "br0", "bridge"),
		link(6, "kube-ipvs0", "dummy"), link(7, "lxc1", "veth"), link(8, "eth0.7", "vlan"), infiniband,
	}}
	for index, p := range map[int]string{1: "127.0.0.1/8", 2: "192.0.2.11/24", 5: "198.51.100.1/24", 6: "192.0.2.50/32", 8: "203.0.113.1/24", 4: "192.0.2.99/24", 9: "192.0.2.98/24"} {
		s.Addresses = append(s.Addresses, host.Address{LinkIndex: index, Prefix: netip.MustParsePrefix(p)})
	}
	return s
}

func TestTheWatchListensWhereARequestForAVIPCanArrive(t *testing.T) {
	many := segments()
	for i := range 100 {
		many.Links = append(many.Links, host.Link{Name: fmt.Sprintf("v%d", i), Index: 100 + i, Type: "ether", MAC: "02:00:00:00:01:01"})
		many.Addresses = append(many.Addresses, host.Address{LinkIndex: 100 + i, Prefix: netip.MustParsePrefix("10.0.0.1/24")})
	}
	for name, tt := range map[string]struct {
		state  host.State
		named  []string
		listen []string
		failed []string
	}{
		"none named":         {segments(), nil, []string{"br0", "eth0", "eth0.7"}, nil},
		"named, one absent":  {segments(), []string{"eth1", "eth9"}, []string{"eth1"}, []string{"eth9: there is no such link"}},
		"named InfiniBand":   {segments(), []string{"ib0"}, nil, []string{"ib0: "}},
		"named with no kind": {segments(), []string{"lo"}, nil, []string{"lo: "}},
	} {
		w := newWatch(watchConfig{Interfaces: tt.named})
		nics, failed := w.wanted(tt.state)
		var got []string
		for _, nic := range nics {
			got = append(got, nic.Name)
		}
		slices.Sort(got)
		if diff := cmp.Diff(tt.listen, got); diff != "" {
			t.Errorf("%s: listens on (-want +got):\n%s", name, diff)
		}
		if len(failed) != len(tt.failed) {
			t.Errorf("%s: failed %v, want %v", name, failed, tt.failed)
		}
		for _, want := range tt.failed {
			nic, why, _ := strings.Cut(want, ": ")
			if !strings.Contains(failed[nic], why) || failed[nic] == "" {
				t.Errorf("%s: failed %v, want %s", name, failed, want)
			}
		}
	}
	nics, failed := newWatch(watchConfig{}).wanted(many)
	if len(nics) != maxNICs || len(failed) != 103-maxNICs {
		t.Errorf("listens on %d of 103 NICs, %d failed", len(nics), len(failed))
	}
}

func TestWatchedVIPsAreBoundedAndOnlyIPv4(t *testing.T) {
	w := newWatch(watchConfig{View: newView(time.Now), Log: slog.New(slog.DiscardHandler)})
	var list []string
	for i := range maxVIPs + 1 {
		list = append(list, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).String())
	}
	err := w.setVIPs(append(list, "10.0.0.1", "2001:db8::1", "x", "::ffff:10.0.0.2"))
	if n := len(w.watched()); n != maxVIPs {
		t.Errorf("%d are watched", n)
	}
	for _, want := range []string{"at most 256", "only IPv4", `"x"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	if err := w.setVIPs(nil); err != nil || len(w.watched()) != 0 {
		t.Errorf("watching nothing: %v, %v", w.watched(), err)
	}
}

func TestHintsAboutOtherAddressesAreNotPassedOn(t *testing.T) {
	var told []string
	w := newWatch(watchConfig{View: newView(time.Now), Changed: func(what string) { told = append(told, what) }, Log: slog.New(slog.DiscardHandler)})
	if err := w.setVIPs([]string{vip.String()}); err != nil {
		t.Fatal(err)
	}
	for _, h := range []host.Hint{
		{Kind: host.Subscribed}, {Kind: host.LinkChanged, LinkIndex: 3},
		{Kind: host.AddressChanged, LinkIndex: 3, Address: netip.MustParseAddr("10.96.0.1")},
		{Kind: host.AddressChanged, LinkIndex: 3, Address: vip},
		{Kind: host.RouteChanged, Address: vip, Gone: true},
	} {
		w.hint(h)
	}
	want := []string{"address 192.0.2.50 appeared or changed on link index 3", "route 192.0.2.50 is gone"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// TestAnIncompleteListingClosesNoListener: unknown is not absent (I6).
func TestAnIncompleteListingClosesNoListener(t *testing.T) {
	r := world(t)
	r.run(nil)
	up := func() bool {
		_, body := r.get("/metrics")
		return strings.Contains(body, `vipmove_observer_up{interface="eth0"} 1`)
	}
	until(t, "it listens", up)
	r.kernel.Break("links and addresses", host.ErrInterrupted)
	r.kernel.RenameLink(testDummy, testDummy) // a hint: list again
	until(t, "the listing was tried", func() bool {
		_, body := r.get("/metrics")
		return strings.Contains(body, "vipmove_kernel_unreadable_parts 1")
	})
	if !up() {
		t.Error("the listener was closed")
	}
}
