// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
)

// The listing after a delete: one link of 45 addresses beside another with
// 10,000. The peer is what the library offers for it. Goal: 1/100 (SPEED.md).
func BenchmarkListLinkBesideALargeOne(b *testing.B) {
	w := newNamespaceWorld(b, Options{})
	index := story(w).LinkIndex
	large := w.addDummy("large")
	w.do(func() error { return addMany(large, 1, 10_000) })
	compareListing(b, w, index, "kube-ipvs0", 45)
}

// One link with 10,000 addresses. Goal: 1/4.
func BenchmarkListLinkOfTenThousand(b *testing.B) {
	w := newNamespaceWorld(b, Options{})
	large := w.addDummy("large")
	w.do(func() error { return addMany(large, 1, 10_000) })
	compareListing(b, w, large, "large", 10_000)
}

func compareListing(b *testing.B, w *linuxWorld, index int, name string, want int) {
	b.Run("vipmove", func(b *testing.B) {
		b.ReportAllocs()
		w.do(func() error {
			for b.Loop() {
				if list, err := w.linux.ListLink(b.Context(), index); err != nil || len(list) != want {
					return fmt.Errorf("%d addresses, %w", len(list), err)
				}
			}
			return nil
		})
	})
	b.Run("AddrList", func(b *testing.B) {
		link := w.link(name)
		b.ReportAllocs()
		w.do(func() error {
			for b.Loop() {
				if list, err := netlink.AddrList(link, netlink.FAMILY_ALL); err != nil || len(list) != want {
					return fmt.Errorf("%d addresses, %w", len(list), err)
				}
			}
			return nil
		})
	})
}

// Everything about a usual node: 30 pods, 45 addresses. Goal: 5 ms.
func BenchmarkState(b *testing.B) {
	w := newNamespaceWorld(b, Options{})
	story(w)
	for i := range 15 { // both ends of each are here
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("lxc%d", i)}, PeerName: fmt.Sprintf("pod%d", i)}
		w.do(func() error { return netlink.LinkAdd(veth) })
	}
	b.ReportAllocs()
	w.do(func() error {
		for b.Loop() {
			if st, err := w.linux.State(b.Context(), watchVIP); err != nil || len(st.Incomplete) > 0 {
				return fmt.Errorf("incomplete %q, %w", st.Incomplete, err)
			}
		}
		return nil
	})
}
