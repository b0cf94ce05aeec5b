// SPDX-License-Identifier: Apache-2.0

//go:build linux

package prober

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vipmove/vipmove/lab/namespace"
	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
)

func TestMain(m *testing.M) { os.Exit(namespacetest.Main(m)) }

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// segment makes a client and holders, each holder with vip on its loopback.
func segment(t *testing.T, holders int) *namespace.Namespace {
	t.Helper()
	sw := namespacetest.NewT(t, "switch")
	if err := sw.AddBridge("br0"); err != nil {
		t.Fatal(err)
	}
	asker := host(t, sw, 0, mac, client)
	for i := 1; i <= holders; i++ {
		n := host(t, sw, i, net.HardwareAddr{2, 0, 0, 0, 0, byte(i)}, netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)}))
		if err := n.AddAddress("lo", netip.PrefixFrom(vip, 32)); err != nil {
			t.Fatal(err)
		}
	}
	return asker
}

func host(t *testing.T, sw *namespace.Namespace, i int, mac net.HardwareAddr, address netip.Addr) *namespace.Namespace {
	t.Helper()
	n := namespacetest.NewT(t, fmt.Sprintf("host%d", i))
	if err := namespace.Connect(n, "eth0", mac, sw, "br0", fmt.Sprintf("port%d", i)); err != nil {
		t.Fatal(err)
	}
	if err := n.AddAddress("eth0", netip.PrefixFrom(address, 24)); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestEveryResponderIsHeardAndTheFirstReplyToolHearsOne(t *testing.T) {
	asker := segment(t, 3)
	err := asker.Do(func() error {
		all, err := Responders(t.Context(), "eth0", vip, 500*time.Millisecond)
		if err != nil {
			return err
		}
		want := []Reply{
			{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Source: net.HardwareAddr{2, 0, 0, 0, 0, 1}, SenderIP: vip, Count: 1},
			{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, Source: net.HardwareAddr{2, 0, 0, 0, 0, 2}, SenderIP: vip, Count: 1},
			{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 3}, Source: net.HardwareAddr{2, 0, 0, 0, 0, 3}, SenderIP: vip, Count: 1},
		}
		order := cmpopts.SortSlices(func(a, b Reply) bool { return a.MAC.String() < b.MAC.String() })
		ignore := cmpopts.IgnoreFields(Reply{}, "After")
		compare := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
		if diff := cmp.Diff(want, all, order, ignore, compare); diff != "" {
			t.Errorf("responders (-want +got):\n%s", diff)
		}
		first, ok, err := FirstReply(t.Context(), "eth0", vip, 5*time.Second)
		if err != nil {
			return err
		}
		if !ok || first.Count != 1 {
			t.Errorf("first reply: %+v, %v; want exactly one", first, ok)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSilenceIsNoErrorAndNoReply(t *testing.T) {
	asker := segment(t, 1)
	err := asker.Do(func() error {
		nobody := netip.MustParseAddr("192.0.2.99")
		all, err := Responders(t.Context(), "eth0", nobody, 100*time.Millisecond)
		if err != nil || len(all) != 0 {
			t.Errorf("replies for an address nobody has: %v, %v", all, err)
		}
		_, ok, err := FirstReply(t.Context(), "eth0", nobody, 100*time.Millisecond)
		if err != nil || ok {
			t.Errorf("first reply for an address nobody has: %v, %v", ok, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestUnicastRequestQuestionsOneMACAlone(t *testing.T) {
	asker := segment(t, 3)
	err := asker.Do(func() error {
		second := net.HardwareAddr{2, 0, 0, 0, 0, 2}
		all, err := Ask(t.Context(), Request{Interface: "eth0", Target: vip, Destination: second}, 300*time.Millisecond)
		if err != nil {
			return err
		}
		if len(all) != 1 || all[0].MAC.String() != second.String() {
			t.Errorf("replies: %+v, want one from %s", all, second)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestACancelledAskEndsAtOnceWithItsReason(t *testing.T) {
	asker := segment(t, 0)
	err := asker.Do(func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := Responders(ctx, "eth0", vip, time.Minute)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v, want that of the context", err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("took %s", took)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAMissingNICOrAddressIsAnErrorThatNamesIt(t *testing.T) {
	bare := namespacetest.NewT(t, "bare")
	sw := namespacetest.NewT(t, "switch")
	if err := sw.AddBridge("br0"); err != nil {
		t.Fatal(err)
	}
	if err := namespace.Connect(bare, "eth0", nil, sw, "br0", "port0"); err != nil {
		t.Fatal(err)
	}
	for nic, want := range map[string]string{"eth7": "eth7", "lo": "no Ethernet address", "eth0": "no IPv4 address"} {
		err := bare.Do(func() error {
			_, err := Responders(t.Context(), nic, vip, time.Second)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("asking from %s: %v, want %q", nic, err, want)
		}
	}
}

func TestTheProberSharesNoCodeWithTheProduct(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("no go command to ask")
	}
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for _, dep := range strings.Fields(string(out)) {
		if strings.HasPrefix(dep, "github.com/vipmove/vipmove/") && dep != "github.com/vipmove/vipmove/lab/prober" {
			t.Errorf("the prober imports %s", dep)
		}
	}
}
