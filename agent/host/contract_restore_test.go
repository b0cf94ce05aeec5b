// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// Restoring, in both worlds: the bodies that testKernel runs.

func roundTrip(t *testing.T, w world) {
	tuple := story(w)
	before := w.raw()
	removed(t, w, tuple)
	out := restored(t, w, tuple)
	if out.Result != Restored || !out.Sent || len(out.Left) != 45 {
		t.Errorf("got %v, sent %v, %d left, want restored, 45", out.Result, out.Sent, len(out.Left))
	}
	after := w.raw()
	slices.Sort(before)
	slices.Sort(after)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the node is not as it was (-before +after):\n%s", diff)
	}
}

func restoresEverything(t *testing.T, w world) {
	w.addDummy("kube-ipvs0")
	odd := w.hold("kube-ipvs0", Address{
		Prefix: vip32, Label: "kube-ipvs0:vip", Scope: unix.RT_SCOPE_LINK, Flags: unix.IFA_F_NOPREFIXROUTE,
		Broadcast: netip.MustParseAddr("192.0.2.255"), ValidLifetime: 86400, PreferredLifetime: 43200,
	})
	if odd.Label != "kube-ipvs0:vip" || odd.Scope != unix.RT_SCOPE_LINK || odd.Flags&unix.IFA_F_NOPREFIXROUTE == 0 ||
		odd.Flags&unix.IFA_F_PERMANENT != 0 || !odd.Broadcast.IsValid() {
		t.Fatalf("listed as %+v, so the listing lost something", odd)
	}
	odd.Metric, odd.Protocol = 77, 3
	removed(t, w, withoutExtras(odd))
	restored(t, w, odd)
	list, err := w.ListLink(t.Context(), odd.LinkIndex)
	if err != nil || len(list) != 1 {
		t.Fatalf("listed %v (%v), want one address", list, err)
	}
	got := list[0].Tuple()
	for what, seconds := range map[string][2]*uint32{
		"valid": {&got.ValidLifetime, &odd.ValidLifetime}, "preferred": {&got.PreferredLifetime, &odd.PreferredLifetime},
	} {
		if *seconds[0] > *seconds[1] || *seconds[0]+60 < *seconds[1] {
			t.Errorf("%s lifetime is %d s, want about %d s", what, *seconds[0], *seconds[1])
		}
		*seconds[0] = *seconds[1] // it runs
	}
	if diff := cmp.Diff(odd, got, netipEqual); diff != "" {
		t.Errorf("restored differently (-recorded +restored):\n%s", diff)
	}
}

func withoutExtras(t Tuple) Tuple { t.Metric, t.Protocol = 0, 0; return t }

func restoresForever(t *testing.T, w world) {
	tuple := story(w)
	removed(t, w, tuple)
	tuple.ValidLifetime, tuple.PreferredLifetime = 0, 0
	out := restored(t, w, tuple)
	i := slices.IndexFunc(out.Left, tuple.is)
	if i < 0 || out.Left[i].ValidLifetime != Forever || out.Left[i].Flags&unix.IFA_F_PERMANENT == 0 {
		t.Errorf("restored as %+v, want it for ever", out.Left)
	}
}

func alreadyPresent(t *testing.T, w world) {
	tuple := story(w)
	before := w.raw()
	if out := restored(t, w, tuple); out.Result != AlreadyPresent || out.Sent {
		t.Errorf("got %v, sent %v, want already present and nothing sent", out.Result, out.Sent)
	}
	if diff := cmp.Diff(before, w.raw()); diff != "" {
		t.Errorf("something changed:\n%s", diff)
	}
}

func restoreConflict(t *testing.T, w world) {
	tuple := story(w)
	tuple.Label = "kube-ipvs0:1"
	before := w.raw()
	out, err := w.Restore(t.Context(), tuple)
	if out.Result != Failed || !errors.Is(err, ErrNotRestored) || !errors.Is(err, unix.EEXIST) ||
		out.Detail != `present with label "kube-ipvs0"` {
		t.Errorf("got %v (%q) and %v, want failed and the label named", out.Result, out.Detail, err)
	}
	if diff := cmp.Diff(before, w.raw()); diff != "" {
		t.Errorf("something changed:\n%s", diff)
	}
}

func restoreLinkGone(t *testing.T, w world) {
	tuple := story(w)
	removed(t, w, tuple)
	w.dropLink("kube-ipvs0")
	out, err := w.Restore(t.Context(), tuple)
	if out.Result != Refused || out.Sent || !errors.Is(err, ErrNoLink) {
		t.Errorf("got %+v and %v, want refused", out, err)
	}
}
