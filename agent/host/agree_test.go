// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// Whatever is done to them, the fake and the kernel answer alike. What node's
// tests learn from the fake is then true of a kernel.
func TestTheFakeAndTheKernelAgree(t *testing.T) {
	var worlds []dummyWorld
	for _, w := range []world{newFakeWorld(t), newLinuxWorld(t)} {
		worlds = append(worlds, dummyWorld{w, w.addDummy("kube-ipvs0")})
	}
	rapid.Check(t, func(rt *rapid.T) {
		for _, w := range worlds {
			for _, a := range onDummy(t, w) {
				w.drop("kube-ipvs0", a.Prefix)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"hold": func(rt *rapid.T) {
				a := drawAddress(rt)
				taken := func(b Address) bool { return b.Prefix == a.Prefix }
				for _, w := range worlds {
					if !slices.ContainsFunc(onDummy(t, w), taken) {
						w.hold("kube-ipvs0", a)
					}
				}
			},
			"drop": func(rt *rapid.T) {
				p := drawAddress(rt).Prefix
				for _, w := range worlds {
					if slices.ContainsFunc(onDummy(t, w), func(b Address) bool { return b.Prefix == p }) {
						w.drop("kube-ipvs0", p)
					}
				}
			},
			"remove": func(rt *rapid.T) {
				agree(t, rt, worlds, drawAddress(rt), func(w world, tuple Tuple) (Outcome, error) { return w.Remove(t.Context(), tuple) })
			},
			"restore": func(rt *rapid.T) {
				agree(t, rt, worlds, drawAddress(rt), func(w world, tuple Tuple) (Outcome, error) { return w.Restore(t.Context(), tuple) })
			},
			"": func(rt *rapid.T) {
				if diff := gocmp.Diff(plain(onDummy(t, worlds[0])), plain(onDummy(t, worlds[1]))); diff != "" {
					rt.Fatalf("they hold different addresses (-fake +kernel):\n%s", diff)
				}
			},
		})
	})
}

// drawAddress is one of few, so that they meet: four hosts, each alone in its
// subnet (a kernel drops the others with a primary one), two prefix lengths.
func drawAddress(rt *rapid.T) Address {
	ip := netip.AddrFrom4([4]byte{10, 0, rapid.ByteRange(1, 4).Draw(rt, "host"), 1})
	return Address{
		Prefix: netip.PrefixFrom(ip, rapid.SampledFrom([]int{32, 32, 24}).Draw(rt, "bits")),
		Label:  rapid.SampledFrom([]string{"kube-ipvs0", "kube-ipvs0:1"}).Draw(rt, "label"),
		Scope:  rapid.SampledFrom([]uint8{unix.RT_SCOPE_UNIVERSE, unix.RT_SCOPE_HOST}).Draw(rt, "scope"),
	}
}

// agree does the same in both worlds and compares what came of it.
func agree(t *testing.T, rt *rapid.T, worlds []dummyWorld, a Address, do func(world, Tuple) (Outcome, error)) {
	var results []string
	for _, w := range worlds {
		tuple := a.Tuple()
		tuple.Link, tuple.LinkIndex = "kube-ipvs0", w.index
		out, err := do(w, tuple)
		slices.SortFunc(out.Left, func(a, b Address) int { return a.Prefix.Compare(b.Prefix) })
		results = append(results, fmt.Sprintf("%v sent=%v failed=%v %q left=%v covering=%d",
			out.Result, out.Sent, err != nil, out.Detail, plain(out.Left), len(out.Covering)))
	}
	if results[0] != results[1] {
		rt.Fatalf("%v:\nfake   %s\nkernel %s", a, results[0], results[1])
	}
}

// dummyWorld is a world and the index of its kube-ipvs0.
type dummyWorld struct {
	world
	index int
}

func onDummy(t *testing.T, w dummyWorld) []Address {
	t.Helper()
	list, err := w.ListLink(t.Context(), w.index)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// plain is what the two must have in common, whatever the order.
func plain(list []Address) []string {
	var out []string
	for _, a := range list {
		out = append(out, fmt.Sprintf("%s label %s scope %d flags %#x for %d s", a.Prefix, a.Label, a.Scope, a.Flags, a.ValidLifetime))
	}
	slices.SortFunc(out, cmp.Compare[string])
	return out
}
