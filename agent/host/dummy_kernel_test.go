// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package host

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
)

// The contract of the Kernel, told in contract_test.go, runs here on the link
// that kube-proxy makes: KERNEL.md saw it DOWN, with BROADCAST and NOARP.
func TestKubeIPVS0IsARealDummyHere(t *testing.T) {
	namespacetest.RequireTestKernel(t)
	w := newNamespaceWorld(t, Options{})
	tuple := story(w)
	st, err := w.State(t.Context(), watchVIP)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range st.Links {
		if l.Index != tuple.LinkIndex {
			continue
		}
		if l.Kind != "dummy" || l.Type != "ether" || l.Up || l.MAC == "" {
			t.Errorf("%+v, want a dummy, DOWN, with a MAC", l)
		}
		if l.Flags&(unix.IFF_BROADCAST|unix.IFF_NOARP|unix.IFF_UP) != unix.IFF_BROADCAST|unix.IFF_NOARP {
			t.Errorf("flags %#x, want BROADCAST and NOARP", l.Flags)
		}
		return
	}
	t.Errorf("no kube-ipvs0 among %+v", st.Links)
}
