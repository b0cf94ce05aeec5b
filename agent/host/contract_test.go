// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// One body, two worlds: the fake and the kernel must agree.

func TestKernelLinux(t *testing.T) { testKernel(t, newLinuxWorld) }
func TestKernelFake(t *testing.T)  { testKernel(t, newFakeWorld) }

func testKernel(t *testing.T, newWorld func(testing.TB) world) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, world)
	}{
		{"I5 only the VIP's /32 goes, the 44 others stay to the byte", removesExactly},
		{"C07 another prefix length is not success and is not touched", otherPrefix},
		{"C10 a /24 is refused before anything is sent", refusesNetworks},
		{"another label is not this address", otherLabel},
		{"another scope is not this address", otherScope},
		{"another peer is not this address", otherPeer},
		{"gone already is success once a listing proves it", alreadyAbsent},
		{"I8 removing twice deletes once", removesOnce},
		{"C11 the same address on another link stays and is named", twoLinks},
		{"fact 5: a local route left behind is not gone", localRouteLeft},
		{"fact 5: a wider local route is named", widerLocalRoute},
		{"a link that vanished is refused", linkGone},
		{"a link that was renamed is refused", linkRenamed},
		{"another link under the recorded name is not touched", linkReplaced},
		{"no rights: the error names the capability and nothing changed", noRights},
		{"a caller that has gone changes nothing", callerGone},
		{"what was removed comes back on a DOWN link as it was", roundTrip},
		{"label, scope, flags and lifetimes come back", restoresEverything},
		{"a tuple without lifetimes comes back for ever", restoresForever},
		{"restoring what is there adds nothing", alreadyPresent},
		{"restoring beside the same address with another label fails", restoreConflict},
		{"restoring on a link that is gone fails", restoreLinkGone},
		{"IPv6: exactly the /128", removesIPv6},
		{"C06 the link-local address is listed with its true /64", linkLocal},
		{"listing a link lists that link alone", listsOne},
		{"listing no link is an error", listsNone},
		{"the state has every address with its link's name", stateAddresses},
		{"the state has the routes that cover a watched VIP", stateRoutes},
		{"a hint comes for every change, after Subscribed", changes},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, newWorld(t)) })
	}
}

func removesExactly(t *testing.T, w world) {
	tuple := story(w)
	want := slices.DeleteFunc(w.raw(), func(s string) bool { return strings.Contains(s, "192.0.2.50/32") })
	if len(want) != 44+2 && len(want) != 44+3 { // and eth0 and lo; the kernel's lo has ::1 too
		t.Fatalf("world has %d addresses besides the VIP", len(want))
	}

	out := removed(t, w, tuple)

	if out.Result != Removed || !out.Sent || len(out.Left) != 44 || len(out.Covering) != 0 {
		t.Errorf("got %v, sent %v, %d left, covering %v, want removed, 44 left, nothing covering", out.Result, out.Sent, len(out.Left), out.Covering)
	}
	if diff := cmp.Diff(want, w.raw()); diff != "" {
		t.Errorf("the other addresses changed (-before +after):\n%s", diff)
	}
}

func otherPrefix(t *testing.T, w world) {
	w.addDummy("kube-ipvs0")
	tuple := w.hold("kube-ipvs0", Address{Prefix: vip24})
	tuple.Prefix = vip32
	notRemoved(t, w, tuple, StillPresent, ErrStillPresent, "present as /24, not removed")
}

func refusesNetworks(t *testing.T, w world) {
	w.addDummy("kube-ipvs0")
	tuple := w.hold("kube-ipvs0", Address{Prefix: vip24})
	w.hold("kube-ipvs0", Address{Prefix: netip.MustParsePrefix("192.0.2.51/24")})
	notRemoved(t, w, tuple, Refused, ErrNotHostPrefix, "removing 192.0.2.50/24 from kube-ipvs0: not a host prefix")
	tuple.Prefix = netip.Prefix{}
	notRemoved(t, w, tuple, Refused, ErrNotHostPrefix, "not a host prefix")
}

func otherLabel(t *testing.T, w world) {
	tuple := story(w)
	tuple.Label = "kube-ipvs0:1"
	notRemoved(t, w, tuple, StillPresent, ErrStillPresent, `present with label "kube-ipvs0"`)
}

func otherScope(t *testing.T, w world) {
	tuple := story(w)
	tuple.Scope = unix.RT_SCOPE_HOST
	notRemoved(t, w, tuple, StillPresent, ErrStillPresent, "present with scope 0")
}

func otherPeer(t *testing.T, w world) {
	w.addDummy("kube-ipvs0")
	peer := netip.MustParsePrefix("192.0.2.60/32")
	tuple := w.hold("kube-ipvs0", Address{Prefix: vip32, Peer: peer})
	if tuple.Peer != peer {
		t.Fatalf("listed with peer %v, want %v", tuple.Peer, peer)
	}
	without := tuple
	without.Peer = netip.Prefix{}
	notRemoved(t, w, without, StillPresent, ErrStillPresent, "present with peer 192.0.2.60/32")
	if out := removed(t, w, tuple); out.Result != Removed {
		t.Errorf("got %v, want removed", out.Result)
	}
	if out := restored(t, w, tuple); out.Result != Restored {
		t.Errorf("got %v, want restored", out.Result)
	}
}

func alreadyAbsent(t *testing.T, w world) {
	tuple := story(w)
	w.drop("kube-ipvs0", vip32)
	out := removed(t, w, tuple)
	if out.Result != AlreadyAbsent || out.Sent {
		t.Errorf("got %v, sent %v, want already absent and nothing sent", out.Result, out.Sent)
	}
}

func removesOnce(t *testing.T, w world) {
	tuple := story(w)
	removed(t, w, tuple)
	before := w.raw()
	if out := removed(t, w, tuple); out.Result != AlreadyAbsent || out.Sent {
		t.Errorf("the second time: got %v, sent %v, want already absent and nothing sent", out.Result, out.Sent)
	}
	if diff := cmp.Diff(before, w.raw()); diff != "" {
		t.Errorf("the second removal changed something:\n%s", diff)
	}
}

func twoLinks(t *testing.T, w world) {
	tuple := story(w)
	w.addDummy("nodelocaldns")
	twin := w.hold("nodelocaldns", Address{Prefix: vip32})

	out := removed(t, w, tuple)

	if out.Result != Removed || len(out.Covering) != 1 || out.Covering[0].Link != "nodelocaldns" {
		t.Errorf("got %v, covering %+v, want removed and the twin's local route", out.Result, out.Covering)
	}
	list, err := w.ListLink(t.Context(), twin.LinkIndex)
	if err != nil || !find(list, twin) {
		t.Errorf("nodelocaldns holds %v (%v), want its own copy kept", list, err)
	}
}

func localRouteLeft(t *testing.T, w world) {
	tuple := story(w)
	w.drop("kube-ipvs0", vip32)
	w.addLocalRoute(vip32, "kube-ipvs0")
	notRemoved(t, w, tuple, StillPresent, ErrStillPresent, "no address, but local route 192.0.2.50/32 on kube-ipvs0")
}

func widerLocalRoute(t *testing.T, w world) {
	tuple := story(w)
	wide := netip.MustParsePrefix("192.0.2.48/28")
	w.addLocalRoute(wide, "lo")
	w.addLocalRoute(netip.MustParsePrefix("198.51.100.0/24"), "lo")
	out := removed(t, w, tuple)
	if out.Result != Removed || len(out.Covering) != 1 || out.Covering[0].Prefix != wide || out.Covering[0].Link != "lo" {
		t.Errorf("got %v, covering %+v, want removed and %v on lo named", out.Result, out.Covering, wide)
	}
}

func linkGone(t *testing.T, w world) {
	tuple := story(w)
	w.dropLink("kube-ipvs0")
	notRemoved(t, w, tuple, Refused, ErrNoLink, "removing 192.0.2.50/32 from kube-ipvs0")
}

func linkRenamed(t *testing.T, w world) {
	tuple := story(w)
	w.renameLink("kube-ipvs0", "kube-other")
	notRemoved(t, w, tuple, Refused, ErrLinkRenamed, "is kube-other now")
}

func linkReplaced(t *testing.T, w world) {
	tuple := story(w)
	w.renameLink("kube-ipvs0", "kube-other")
	w.addDummy("kube-ipvs0")
	w.hold("kube-ipvs0", Address{Prefix: vip32})
	notRemoved(t, w, tuple, Refused, ErrLinkRenamed, "is kube-other now")
}

func noRights(t *testing.T, w world) {
	tuple := story(w)
	w.deny(true)
	notRemoved(t, w, tuple, StillPresent, fs.ErrPermission, "removing 192.0.2.50/32 from kube-ipvs0: permission denied (needs CAP_NET_ADMIN): still present (present)")
	w.deny(false)
	removed(t, w, tuple)
	w.deny(true)
	before := w.raw()
	out, err := w.Restore(t.Context(), tuple)
	if out.Result != Failed || !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "needs CAP_NET_ADMIN") {
		t.Errorf("restoring: got %v and %v, want failed and the capability named", out.Result, err)
	}
	if diff := cmp.Diff(before, w.raw()); diff != "" {
		t.Errorf("something changed:\n%s", diff)
	}
}

func callerGone(t *testing.T, w world) {
	tuple := story(w)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := w.raw()
	if out, err := w.Remove(ctx, tuple); out.Sent || out.Result != Refused || !errors.Is(err, context.Canceled) {
		t.Errorf("removing: got %+v and %v, want refused", out, err)
	}
	if out, err := w.Restore(ctx, tuple); out.Sent || out.Result != Refused || !errors.Is(err, context.Canceled) {
		t.Errorf("restoring: got %+v and %v, want refused", out, err)
	}
	if st, err := w.State(ctx, watchVIP); !errors.Is(err, context.Canceled) || st.Addresses != nil {
		t.Errorf("reading: got %d addresses and %v, want an error alone", len(st.Addresses), err)
	}
	if diff := cmp.Diff(before, w.raw()); diff != "" {
		t.Errorf("something changed:\n%s", diff)
	}
}

func removesIPv6(t *testing.T, w world) {
	story(w)
	six := w.hold("kube-ipvs0", Address{Prefix: vip128, Flags: unix.IFA_F_NODAD})
	sibling := w.hold("kube-ipvs0", Address{Prefix: netip.MustParsePrefix("2001:db8::51/128"), Flags: unix.IFA_F_NODAD})
	out := removed(t, w, six)
	if out.Result != Removed || len(out.Left) != 46 || !find(out.Left, sibling) {
		t.Errorf("got %v with %d left, want removed, 46", out.Result, len(out.Left))
	}
	if out := restored(t, w, six); out.Result != Restored || len(out.Left) != 47 {
		t.Errorf("got %v with %d left, want restored, 47", out.Result, len(out.Left))
	}
}

// removed is a Remove that must succeed.
func removed(t *testing.T, w world, tuple Tuple) Outcome {
	t.Helper()
	out, err := w.Remove(t.Context(), tuple)
	if err != nil {
		t.Fatalf("removing %v: %v (%+v)", tuple, err, out)
	}
	return out
}

// restored is a Restore that must succeed.
func restored(t *testing.T, w world, tuple Tuple) Outcome {
	t.Helper()
	out, err := w.Restore(t.Context(), tuple)
	if err != nil {
		t.Fatalf("restoring %v: %v (%+v)", tuple, err, out)
	}
	return out
}

// notRemoved is a Remove that must fail and change nothing.
func notRemoved(t *testing.T, w world, tuple Tuple, result Result, kind error, text string) {
	t.Helper()
	before := w.raw()
	out, err := w.Remove(t.Context(), tuple)
	if out.Result != result || !errors.Is(err, kind) || err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("removing %v: got %v and %v, want %v and an error with %q", tuple, out.Result, err, result, text)
	}
	if out.Sent && !errors.Is(kind, fs.ErrPermission) {
		t.Errorf("removing %v: a delete was sent", tuple)
	}
	if diff := cmp.Diff(before, w.raw()); diff != "" {
		t.Errorf("removing %v: something changed:\n%s", tuple, diff)
	}
}
