// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package host

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vipmove/vipmove/lab/namespace"
	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
	"github.com/vipmove/vipmove/lab/virtualserver"
)

// These run on the kernel that hack/vmexec starts (make test-kernel): the one
// place where the netlink path to IPVS meets a real ip_vs.

// ipvsKernel is a node of the story on that kernel, with the services given.
func ipvsKernel(t *testing.T, services ...virtualserver.Service) *linuxWorld {
	t.Helper()
	namespacetest.RequireTestKernel(t)
	w := newNamespaceWorld(t, Options{})
	story(w)
	addServices(t, w.ns, services...)
	return w
}

func addServices(t *testing.T, n *namespace.Namespace, services ...virtualserver.Service) {
	t.Helper()
	for _, s := range services {
		if err := virtualserver.Add(n, s); err != nil {
			t.Fatal(err)
		}
	}
}

// table is the IPVS part of a state that is complete.
func table(t *testing.T, w *linuxWorld) IPVS {
	t.Helper()
	st, err := w.State(t.Context(), watchVIP)
	if err != nil || len(st.Incomplete) > 0 {
		t.Fatalf("reading: %v, incomplete %q", err, st.Incomplete)
	}
	return st.IPVS
}

// kubeProxys are the services of one IPVS node, one of each kind that there is.
var kubeProxys = []virtualserver.Service{
	virtualserver.TCP("10.96.0.1", 443, "192.0.2.11:6443", "192.0.2.12:6443"),
	virtualserver.UDP("10.96.0.10", 53, "198.51.100.7:53"),
	virtualserver.TCP("192.0.2.50", 80),
	virtualserver.SCTP("192.0.2.50", 2905),
	virtualserver.TCP("2001:db8::50", 80, "[2001:db8::61]:8080"),
	virtualserver.UDP("2001:db8::50", 53),
	virtualserver.Marked(42, vip),
	virtualserver.Marked(43, vipSix),
}

var kubeProxysRead = sorted([]IPVSService{
	{Address: netip.MustParseAddr("10.96.0.1"), Port: 443, Protocol: "tcp"},
	{Address: netip.MustParseAddr("10.96.0.10"), Port: 53, Protocol: "udp"},
	{Address: vip, Port: 80, Protocol: "tcp"},
	{Address: vip, Port: 2905, Protocol: "sctp"},
	{Address: vipSix, Port: 80, Protocol: "tcp"},
	{Address: vipSix, Port: 53, Protocol: "udp"},
	{FWMark: 42},
	{FWMark: 43},
})

func TestServicesOfEveryKindAreReadFromTheKernel(t *testing.T) {
	w := ipvsKernel(t, kubeProxys...)
	got := table(t, w)
	if got.State != IPVSPresent || got.Source != "netlink and proc" {
		t.Errorf("%s from %q (%s), want present from both", got.State, got.Source, got.Reason)
	}
	if diff := cmp.Diff(kubeProxysRead, got.Services, netipEqual); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
}

// Each way alone tells the whole table, so neither hides behind the other.
func TestNetlinkAloneAndTheFileAloneTellTheSame(t *testing.T) {
	w := ipvsKernel(t, kubeProxys...)
	w.do(func() error {
		list, err := ipvsNetlink()
		if diff := cmp.Diff(kubeProxysRead, sorted(list), netipEqual); diff != "" {
			t.Errorf("netlink (-want +got):\n%s", diff)
		}
		return err
	})
	w.do(func() error {
		list, err := w.linux.ipvsFile()
		if diff := cmp.Diff(kubeProxysRead, sorted(list), netipEqual); diff != "" {
			t.Errorf("file (-want +got):\n%s", diff)
		}
		return err
	})
}

// DESIGN section 7: netlink needs NET_ADMIN; without it the file is read.
func TestWithoutRightsTheFileIsReadAndNetlinkSaysWhy(t *testing.T) {
	w := ipvsKernel(t, kubeProxys...)
	w.deny(true)
	got := table(t, w)
	if got.State != IPVSPresent || got.Source != "proc" || !slices.Equal(got.Services, kubeProxysRead) {
		t.Errorf("%s from %q: %v", got.State, got.Source, got.Services)
	}
	w.do(func() error {
		if _, err := ipvsNetlink(); !errors.Is(err, unix.EPERM) {
			t.Errorf("netlink without CAP_NET_ADMIN: %v, want EPERM", err)
		}
		return nil
	})
}

func TestATableWithoutServicesIsNone(t *testing.T) {
	w := ipvsKernel(t)
	for range 2 {
		if got := table(t, w); got.State != IPVSNone || got.Source != "netlink and proc" || got.Services != nil {
			t.Errorf("%+v, want none", got)
		}
		s := virtualserver.TCP("192.0.2.50", 80)
		addServices(t, w.ns, s)
		if got := table(t, w); got.State != IPVSPresent || !got.Serves(vip) {
			t.Errorf("%+v, want the service", got)
		}
		w.must(virtualserver.Remove(w.ns, s))
	}
}

// One node's services say nothing about another's: the table, by file and by
// netlink, is that of the calling thread's namespace.
func TestServicesOfAnotherNamespaceAreNotThisNodes(t *testing.T) {
	w := ipvsKernel(t)
	other := namespacetest.NewT(t, "n2")
	addServices(t, other, kubeProxys...)
	if got := table(t, w); got.State != IPVSNone {
		t.Errorf("%+v, want none: the services are another node's", got)
	}
	addServices(t, w.ns, virtualserver.TCP("10.96.0.1", 443))
	got := table(t, w)
	if len(got.Services) != 1 || got.Serves(vip) {
		t.Errorf("%+v, want the one of this node", got)
	}
}

func TestAServiceStandsBehindItsOwnAddressOnly(t *testing.T) {
	for _, c := range []struct {
		name      string
		service   virtualserver.Service
		four, six bool
	}{
		{"TCP", virtualserver.TCP("192.0.2.50", 80), true, false},
		{"UDP, another port", virtualserver.UDP("192.0.2.50", 53), true, false},
		{"SCTP", virtualserver.SCTP("192.0.2.50", 2905), true, false},
		{"another address", virtualserver.TCP("192.0.2.51", 80), false, false},
		{"the other family", virtualserver.TCP("2001:db8::50", 80), false, true},
		{"the other family, the same four bytes first", virtualserver.TCP("c000:232::", 80), false, false},
		{"a mark, of which nobody can tell", virtualserver.Marked(7, vip), true, true},
		{"a mark of the other family: the file does not say which", virtualserver.Marked(7, vipSix), true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := table(t, ipvsKernel(t, c.service))
			if got.State != IPVSPresent || got.Serves(vip) != c.four || got.Serves(vipSix) != c.six {
				t.Errorf("%s: %v; serves %v %v, %v %v", got.State, got.Services, vip, got.Serves(vip), vipSix, got.Serves(vipSix))
			}
		})
	}
}
