// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/netip"
	"os"
	"testing"

	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
)

func TestMain(m *testing.M) { os.Exit(namespacetest.Main(m)) }

var (
	vip   = netip.MustParseAddr("192.0.2.50")
	other = netip.MustParseAddr("192.0.2.77")
	own   = netip.MustParseAddr("192.0.2.2")
	zero  = netip.IPv4Unspecified()

	m1 = mac("02:00:00:00:00:01")
	m2 = mac("02:00:00:00:00:02")
	m3 = mac("02:00:00:00:00:03")
	z  = MAC{}
	ff = BroadcastMAC
)

func mac(s string) MAC {
	m, err := ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return m
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// bytesOf encodes f and cuts Ethernet's padding to leave size bytes; 0 keeps all.
func bytesOf(t testing.TB, f Frame, size int) []byte {
	t.Helper()
	b, err := Encode(f)
	if err != nil {
		t.Fatal(err)
	}
	if size != 0 {
		b = b[:size]
	}
	return b
}
