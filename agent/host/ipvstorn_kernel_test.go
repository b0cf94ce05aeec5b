// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package host

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/vipmove/vipmove/lab/virtualserver"
)

// crowd adds n services, of 10.97.0.0/16, to the world.
func crowd(t *testing.T, w *linuxWorld, n int) []virtualserver.Service {
	t.Helper()
	var list []virtualserver.Service
	for i := range n {
		list = append(list, virtualserver.TCP(fmt.Sprintf("10.97.%d.%d", i>>8, i&255), 443))
	}
	addServices(t, w.ns, list...)
	return list
}

// servicesIn are those of the beginning of /proc/net/ip_vs.
func servicesIn(t *testing.T, beginning []byte) []IPVSService {
	t.Helper()
	list, err := parseIPVS(beginning)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Why the table is read twice. This is a fact of the kernel, not of our code:
// services that were there all the time are missing from a reading in which
// others went.
func TestAReadingLosesServicesThatStayWhenOthersGoMeanwhile(t *testing.T) {
	w := ipvsKernel(t)
	all := crowd(t, w, 300)
	var whole []byte
	w.do(func() error {
		f, err := os.Open("/proc/thread-self/net/ip_vs")
		if err != nil {
			return err
		}
		defer f.Close()
		first := make([]byte, 4096)
		n, err := f.Read(first)
		if err != nil {
			return err
		}
		gone := servicesIn(t, first[:bytes.LastIndexByte(first[:n], '\n')+1])[:40]
		for _, g := range gone {
			all = slices.DeleteFunc(all, func(s virtualserver.Service) bool { return s.Address == g.Address })
			if err := virtualserver.Remove(w.ns, virtualserver.TCP(g.Address.String(), g.Port)); err != nil {
				return err
			}
		}
		rest, err := io.ReadAll(f)
		whole = append(first[:n], rest...)
		return err
	})
	if len(all) != 260 {
		t.Fatalf("%d services are left, want 260", len(all))
	}
	seen := map[netip.Addr]bool{}
	for _, s := range servicesIn(t, whole) {
		seen[s.Address] = true
	}
	lost := slices.DeleteFunc(slices.Clone(all), func(s virtualserver.Service) bool { return seen[s.Address] })
	if len(lost) == 0 {
		t.Error("no service was lost: this kernel's reading is whole, and the comment at (*Linux).ipvs wrong")
	}
	t.Logf("%d of 260 services that stayed are not in the reading", len(lost))

	got := table(t, w)
	if len(got.Services) != len(all) {
		t.Errorf("%d services in a quiet table of %d", len(got.Services), len(all))
	}
}

// The same through the whole path: the table changes between its two readings.
func TestATableThatChangesWhileItIsReadIsReadAgain(t *testing.T) {
	w := ipvsKernel(t, virtualserver.TCP("192.0.2.50", 80))
	all := crowd(t, w, 300)
	n := 0
	w.linux.pause = noPause
	w.linux.ipvsDump = func() ([]IPVSService, error) {
		if n++; n <= 2 {
			if err := virtualserver.Remove(w.ns, all[n]); err != nil {
				t.Error(err)
			}
		}
		return ipvsNetlink()
	}
	st, err := w.State(t.Context(), watchVIP)
	if err != nil || st.DumpRetries != 2 || st.IPVS.State != IPVSPresent || len(st.IPVS.Services) != 299 || !st.IPVS.Serves(vip) {
		t.Errorf("%s with %d services after %d repeats, %v; want 299 after 2", st.IPVS.State, len(st.IPVS.Services), st.DumpRetries, err)
	}
}

// I6: a table that never rests is unknown.
func TestATableThatNeverRestsIsUnreadable(t *testing.T) {
	w := ipvsKernel(t)
	all := crowd(t, w, 10)
	w.linux.pause = noPause
	w.linux.ipvsDump = func() ([]IPVSService, error) {
		if err := virtualserver.Remove(w.ns, all[0]); err != nil {
			t.Error(err)
		}
		all = all[1:]
		return ipvsNetlink()
	}
	st, err := w.State(t.Context(), watchVIP)
	if err != nil || st.IPVS.State != IPVSUnreadable || len(st.Incomplete) != 1 {
		t.Errorf("%+v, incomplete %q, %v; want unreadable", st.IPVS, st.Incomplete, err)
	}
}
