// SPDX-License-Identifier: Apache-2.0

//go:build linux

package namespace

import (
	"fmt"
	"os"
	"testing"
)

// The host's own sysctls are never touched by a test, so the inheritance from
// the initial namespace is played: set, then reset.
func TestNewNamespaceHasTheKernelsDefaultsWhateverTheHostHas(t *testing.T) {
	if err := Available(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("network namespaces are needed under CI=true: %v", err)
		}
		t.Skip(err)
	}
	n, err := New("n1")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	paths := []string{"net/ipv4/ip_forward"}
	for _, scope := range []string{"all", "default"} {
		for _, name := range []string{"arp_ignore", "arp_announce", "proxy_arp", "rp_filter", "route_localnet", "accept_local"} {
			paths = append(paths, fmt.Sprintf("net/ipv4/conf/%s/%s", scope, name))
		}
	}
	for _, path := range paths {
		if err := n.SetSysctl(path, "1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Do(resetSysctls); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if got, err := n.Sysctl(path); err != nil || got != "0" {
			t.Errorf("%s is %q (%v), want 0", path, got, err)
		}
	}
}
