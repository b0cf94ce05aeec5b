// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package host

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cloudflare/ipvs"
	"golang.org/x/sys/unix"

	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
	"github.com/vipmove/vipmove/lab/virtualserver"
)

// unloadIPVS takes ip_vs out of the kernel, as it is on a node that never ran
// kube-proxy in IPVS mode. The kernel gives up namespaces in the background,
// and their services hold the module: it is asked until it lets go.
func unloadIPVS(t *testing.T) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, module := range []string{"ip_vs_rr", "ip_vs"} {
		for {
			err := unix.DeleteModule(module, unix.O_NONBLOCK)
			if err == nil || errors.Is(err, unix.ENOENT) {
				break
			}
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("unloading %s: %v", module, err)
			}
		}
	}
	if loaded(t) {
		t.Fatal("ip_vs is still in the kernel")
	}
}

func loaded(t *testing.T) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/modules")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains("\n"+string(b), "\nip_vs ")
}

// DESIGN section 7: modules are never loaded. It takes a kernel that would.
func TestWithoutIPVSTheTableIsAbsentAndTheModuleIsNotLoadedByAsking(t *testing.T) {
	namespacetest.RequireTestKernel(t)
	unloadIPVS(t)
	w := newNamespaceWorld(t, Options{})
	tuple := story(w)
	if got := table(t, w); got.State != IPVSAbsent || got.Source != "proc" || got.Services != nil {
		t.Errorf("%+v, want absent", got)
	}
	if out := removed(t, w, tuple); out.Result != Removed {
		t.Errorf("%+v", out)
	}
	if loaded(t) {
		t.Fatal("reading the state loaded ip_vs")
	}

	// This kernel does load it for whoever asks generic netlink, so the above
	// could have failed.
	w.do(func() error {
		client, err := ipvs.New()
		if err != nil {
			return err
		}
		if c, ok := client.(interface{ Close() error }); ok {
			return c.Close()
		}
		return nil
	})
	if !loaded(t) {
		t.Error("asking for ip_vs did not load it: this test cannot fail here")
	}
	if got := table(t, w); got.State != IPVSNone {
		t.Errorf("%+v, want none", got)
	}
	addServices(t, w.ns, virtualserver.TCP("192.0.2.50", 80))
	if got := table(t, w); got.State != IPVSPresent {
		t.Errorf("%+v, want present", got)
	}
}
