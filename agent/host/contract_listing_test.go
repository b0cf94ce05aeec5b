// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// Listings, in both worlds: the bodies that testKernel runs.

func linkLocal(t *testing.T, w world) {
	tuple := story(w)
	fe80 := netip.MustParsePrefix("fe80::e050:50ff:fe0a:46c5/64")
	w.hold("kube-ipvs0", Address{Prefix: fe80, Scope: unix.RT_SCOPE_LINK})
	guessed := tuple
	guessed.Prefix, guessed.Label, guessed.Scope = netip.PrefixFrom(fe80.Addr(), 128), "", unix.RT_SCOPE_LINK
	notRemoved(t, w, guessed, StillPresent, ErrStillPresent, "present as /64")
	list, err := w.ListLink(t.Context(), tuple.LinkIndex)
	i := slices.IndexFunc(list, func(a Address) bool { return a.Prefix == fe80 })
	if err != nil || i < 0 || list[i].Scope != unix.RT_SCOPE_LINK {
		t.Errorf("listed %v (%v), want %v with scope link", list, err, fe80)
	}
}

func listsOne(t *testing.T, w world) {
	tuple := story(w)
	other := w.addDummy("nodelocaldns")
	if list, err := w.ListLink(t.Context(), other); err != nil || len(list) != 0 || list == nil {
		t.Errorf("a link without addresses: got %v (%v), want an empty list that is not nil", list, err)
	}
	w.hold("nodelocaldns", Address{Prefix: vip32})
	list, err := w.ListLink(t.Context(), tuple.LinkIndex)
	if err != nil || len(list) != 45 {
		t.Fatalf("listed %d (%v), want 45", len(list), err)
	}
	for _, a := range list {
		if a.LinkIndex != tuple.LinkIndex || a.Link != "kube-ipvs0" || a.Prefix.Bits() != 32 || a.ValidLifetime != Forever {
			t.Errorf("listed %+v", a)
		}
	}
}

func listsNone(t *testing.T, w world) {
	for _, index := range []int{0, -1, 4711} {
		if list, err := w.ListLink(t.Context(), index); !errors.Is(err, ErrNoLink) || list != nil {
			t.Errorf("index %d: got %v (%v), want no such link", index, list, err)
		}
	}
}

func stateAddresses(t *testing.T, w world) {
	story(w)
	st, err := w.State(t.Context(), watchVIP)
	if err != nil {
		t.Fatal(err)
	}
	if st.BootID == "" || st.BootTime <= 0 || st.DumpRetries != 0 {
		t.Errorf("boot id %q, boot time %v, %d retries", st.BootID, st.BootTime, st.DumpRetries)
	}
	names := map[string]int{}
	for _, l := range st.Links {
		names[l.Name] = l.Index
		if s, ok := st.LinkSysctls[l.Name]; !ok || s.ArpIgnore == nil || *s.ArpIgnore != 0 {
			t.Errorf("arp_ignore of %s is not 0", l.Name)
		}
	}
	held := map[string]int{}
	for _, a := range st.Addresses {
		held[a.Link]++
		if names[a.Link] != a.LinkIndex {
			t.Errorf("%s is on %q, index %d", a.Prefix, a.Link, a.LinkIndex)
		}
	}
	if held["kube-ipvs0"] != 45 || held["eth0"] == 0 || held["lo"] == 0 {
		t.Errorf("addresses per link: %v, want 45 on kube-ipvs0 and some on the others", held)
	}
	i := slices.IndexFunc(st.Links, func(l Link) bool { return l.Name == "kube-ipvs0" })
	if l := st.Links[i]; l.Up || l.Carrier || l.Flags&unix.IFF_NOARP == 0 || l.Type != "ether" {
		t.Errorf("kube-ipvs0 is %+v, want DOWN, NOARP, ether", l)
	}
	i = slices.IndexFunc(st.Links, func(l Link) bool { return l.Name == "eth0" })
	if l := st.Links[i]; !l.Up || !l.Carrier || l.MAC != eth0MAC || l.BridgePort {
		t.Errorf("eth0 is %+v, want it up with its MAC", l)
	}
	i = slices.IndexFunc(st.Links, func(l Link) bool { return l.Name == "lo" })
	if l := st.Links[i]; l.MAC != "" || l.Type != "loopback" || l.Kind != "" {
		t.Errorf("lo is %+v, want no MAC", l)
	}
}

func stateRoutes(t *testing.T, w world) {
	story(w)
	st, err := w.State(t.Context(), []netip.Addr{vip})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range st.Routes {
		if r.Table == LocalTable {
			got = append(got, r.Type+" "+r.Prefix.String()+" dev "+r.Link+" src "+r.Source.String())
		}
	}
	if diff := cmp.Diff([]string{"local 192.0.2.50/32 dev kube-ipvs0 src 192.0.2.50"}, got); diff != "" {
		t.Errorf("local routes that cover the VIP (-want +got):\n%s", diff)
	}
}

func changes(t *testing.T, w world) {
	tuple := story(w)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hints, ended := make(chan Hint, 1000), make(chan error, 1)
	go func() { ended <- w.Changes(ctx, func(h Hint) { hints <- h }) }()
	if h := <-hints; h.Kind != Subscribed {
		t.Fatalf("first hint is %+v, want subscribed", h)
	}
	w.drop("kube-ipvs0", vip32)
	want := Hint{Kind: AddressChanged, LinkIndex: tuple.LinkIndex, Address: vip, Gone: true}
	for h := range hints {
		if h == want {
			break
		}
	}
	w.hold("kube-ipvs0", Address{Prefix: vip32})
	want.Gone = false
	for h := range hints {
		if h == want {
			break
		}
	}
	w.addDummy("nodelocaldns")
	for h := range hints {
		if h.Kind == LinkChanged && h.LinkIndex != tuple.LinkIndex && !h.Gone {
			break
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v, want canceled", err)
	}
}
