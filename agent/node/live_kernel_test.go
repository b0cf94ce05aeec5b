// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package node

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
	"github.com/vipmove/vipmove/lab/virtualserver"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// The guard's word about live addresses, given by a kernel that has services.

var vip32 = netip.PrefixFrom(vip, 32)

// without is a list of addresses less one of them, once.
func without(list []netip.Prefix, p netip.Prefix) []netip.Prefix {
	i := slices.Index(list, p)
	if i < 0 {
		return list
	}
	return slices.Delete(slices.Clone(list), i, i+1)
}

var sameList = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func TestALiveAddressIsNeitherPreparedNorRemoved(t *testing.T) {
	for _, c := range []struct {
		name    string
		service virtualserver.Service
		says    string
	}{
		{"a TCP service", virtualserver.TCP("192.0.2.50", 80, "198.51.100.7:8080"), "192.0.2.50 has an IPVS service behind it"},
		{"a TCP service without servers", virtualserver.TCP("192.0.2.50", 443), "has an IPVS service"},
		{"a UDP service", virtualserver.UDP("192.0.2.50", 53), "has an IPVS service"},
		{"an SCTP service", virtualserver.SCTP("192.0.2.50", 2905), "has an IPVS service"},
		{"a firewall mark", virtualserver.Marked(7, vip), "firewall mark"},
		{"a firewall mark of the other family: nobody can tell", virtualserver.Marked(7, netip.IPv6Unspecified()), "firewall mark"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDummyNode(t, virtualserver.TCP("10.96.0.1", 443))
			before := d.addresses()
			d.serve(c.service)
			never := prepareOrder(d.fence(), d.entry)
			if got := d.refuses(never, vipmovev1.Refusal_LIVE_IPVS_SERVICE); !strings.Contains(got, c.says) {
				t.Errorf("message %q, want %q in it", got, c.says)
			}
			// No override reaches it.
			forced := prepareOrder(d.fence(), d.entry)
			forced.GetPrepare().Overrides = []string{"LIVE_IPVS_SERVICE", "MANAGER_RUNNING", "UNKNOWN_MANAGER"}
			d.refuses(forced, vipmovev1.Refusal_LIVE_IPVS_SERVICE)
			d.refuses(removeOrder(d.fence(), removeID), vipmovev1.Refusal_NOT_PREPARED)

			// It becomes live after the plan was made.
			d.unserve(c.service)
			d.expect(prepareOrder(d.fence(), d.entry), prepared)
			d.serve(c.service)
			d.refuses(removeOrder(d.fence(), removeID), vipmovev1.Refusal_LIVE_IPVS_SERVICE)
			if diff := cmp.Diff(before, d.addresses(), sameList); diff != "" {
				t.Errorf("addresses changed (-before +after):\n%s", diff)
			}

			// And is live no more: the same step goes through.
			d.unserve(c.service)
			d.expect(removeOrder(d.fence(), "run1/n1/2"), removed)
			d.expect(confirmOrder(d.fence(), "run1/n1/2"), confirmed)
			if diff := cmp.Diff(without(before, vip32), d.addresses(), sameList); diff != "" {
				t.Errorf("another address than the VIP went (-want +got):\n%s", diff)
			}
		})
	}
}

// Exactly one /32 of 45 goes, whatever stands behind the others and elsewhere.
func TestOnlyTheStaleAddressGoesThoughOthersAreLive(t *testing.T) {
	live := func(t *testing.T) *dummyNode {
		d := newDummyNode(t)
		for _, p := range d.addresses() {
			if p != vip32 {
				d.serve(virtualserver.TCP(p.Addr().String(), 443), virtualserver.UDP(p.Addr().String(), 443))
			}
		}
		return d
	}
	for name, world := range map[string]func(*testing.T) *dummyNode{
		"44 live ClusterIPs": live,
		"no service at all":  func(t *testing.T) *dummyNode { return newDummyNode(t) },
		"the other family's address has a service": func(t *testing.T) *dummyNode {
			return newDummyNode(t, virtualserver.TCP("2001:db8::50", 80), virtualserver.TCP("c000:232::", 80))
		},
		"its neighbours in the subnet have services": func(t *testing.T) *dummyNode {
			return newDummyNode(t, virtualserver.TCP("192.0.2.49", 80), virtualserver.TCP("192.0.2.51", 80))
		},
		"another namespace has a service for it": func(t *testing.T) *dummyNode {
			other := namespacetest.NewT(t, "n2")
			if err := virtualserver.Add(other, virtualserver.TCP("192.0.2.50", 80)); err != nil {
				t.Fatal(err)
			}
			return newDummyNode(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := world(t)
			before := d.addresses()
			if len(before) != 45 {
				t.Fatalf("%d addresses, want 45", len(before))
			}
			d.expect(prepareOrder(d.fence(), d.entry), prepared)
			d.expect(removeOrder(d.fence(), removeID), removed)
			want := without(before, vip32)
			if diff := cmp.Diff(want, d.addresses(), sameList); diff != "" || len(want) != 44 {
				t.Errorf("after the removal (-want +got):\n%s", diff)
			}
			d.expect(removeOrder(d.fence(), removeID), removed) // said again: from the record (I8)
			d.expect(confirmOrder(d.fence(), removeID), confirmed)
			if diff := cmp.Diff(want, d.addresses(), sameList); diff != "" {
				t.Errorf("after the confirm (-want +got):\n%s", diff)
			}
		})
	}
}

// An undo is owed, so it is not held up: an address that is restored while a
// service came meanwhile is back where that service needs it.
func TestAnUndoIsCarriedOutThoughAServiceCameMeanwhile(t *testing.T) {
	d := newDummyNode(t)
	before := d.addresses()[1:] // it was the first, and comes back as the last
	d.expect(prepareOrder(d.fence(), d.entry), prepared)
	d.expect(removeOrder(d.fence(), removeID), removed)
	d.serve(virtualserver.TCP("192.0.2.50", 80))
	d.expect(restoreOrder(d.fence(), removeID, false), restored)
	if diff := cmp.Diff(append(before, vip32), d.addresses(), sameList); diff != "" {
		t.Errorf("after the undo (-want +got):\n%s", diff)
	}
	st, err := d.steps.cfg.Kernel.State(t.Context(), []netip.Addr{vip})
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := listed(d.entry, st.Addresses); !ok || a.Tuple() != d.entry {
		t.Errorf("put back as %+v, it was %+v", a.Tuple(), d.entry)
	}
}
