// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// C09, made certain: an address goes while the kernel is in the middle of its
// list. What was seen so far is half a list, and the error says so.
func TestC09AChangeInTheMiddleOfADumpIsNoticed(t *testing.T) {
	w := newNamespaceWorld(t, Options{})
	index := w.addDummy("kube-ipvs0")
	const total = 1000
	w.do(func() error { return addMany(index, 2, total) })
	w.do(func() error {
		s, err := openSocket()
		if err != nil {
			return err
		}
		defer s.close()
		body := make([]byte, unix.SizeofIfAddrmsg)
		seen := 0
		err = s.dump(t.Context(), unix.RTM_GETADDR, unix.RTM_NEWADDR, body, func([]byte) error {
			if seen++; seen == 1 { // the kernel is at the end of its first batch
				return delMany(index, 2, 300)
			}
			return nil
		})
		if !errors.Is(err, ErrInterrupted) {
			t.Errorf("got %v after %d entries, want interrupted", err, seen)
		}
		if seen >= total {
			t.Errorf("all %d entries were seen: this test no longer tears the list", seen)
		}
		list, err := s.addresses(t.Context(), index)
		if err != nil || len(list) != total-300 {
			t.Errorf("the next dump: %d addresses, %v, want %d", len(list), err, total-300)
		}
		return nil
	})
}

// C09 on the library's own lists: v1.3.1 returns what it has together with the
// error, and that is never to be used.
func TestC09AHalfListOfLinksIsNotUsed(t *testing.T) {
	for _, c := range []struct {
		interrupted, retries int
		unknown              bool
	}{{1, 1, false}, {4, 4, false}, {5, 4, true}} {
		w := newNamespaceWorld(t, Options{})
		story(w)
		n := 0
		w.linux.pause = noPause
		w.linux.linkList = func() ([]netlink.Link, error) {
			all, err := netlink.LinkList()
			if n++; n <= c.interrupted {
				return all[:1], netlink.ErrDumpInterrupted
			}
			return all, err
		}
		st, err := w.State(t.Context(), watchVIP)
		if err != nil || st.DumpRetries != c.retries {
			t.Errorf("interrupted %d times: %d retries, %v, want %d", c.interrupted, st.DumpRetries, err, c.retries)
		}
		if c.unknown && (st.Links != nil || st.Addresses != nil || len(st.Incomplete) != 1 || len(st.LinkSysctls) != 0) {
			t.Errorf("interrupted %d times: %d links, %d addresses, incomplete %q, want it said and no list", c.interrupted, len(st.Links), len(st.Addresses), st.Incomplete)
		}
		if !c.unknown && (len(st.Links) != 3 || len(st.Incomplete) != 0) {
			t.Errorf("interrupted %d times: %d links, incomplete %q, want 3 and none", c.interrupted, len(st.Links), st.Incomplete)
		}
	}
}

// Addresses on a link that the list of links does not know: both are listed
// again, for an address without its link's name would look like no address.
func TestALinkThatComesBetweenTwoDumpsIsNotOverlooked(t *testing.T) {
	w := newNamespaceWorld(t, Options{})
	n := 0
	w.linux.pause = noPause
	w.linux.linkList = func() ([]netlink.Link, error) {
		all, err := netlink.LinkList()
		if n++; n == 1 {
			err = errors.Join(err, w.appear("kube-ipvs0", vip32))
		}
		return all, err
	}
	st, err := w.State(t.Context(), watchVIP)
	if err != nil || st.DumpRetries != 1 || indexOf(st, "kube-ipvs0") < 0 ||
		!slices.ContainsFunc(st.Addresses, func(a Address) bool { return a.Link == "kube-ipvs0" && a.Prefix == vip32 }) {
		t.Errorf("%d retries, links %+v, %v, want the new link and its address after one", st.DumpRetries, st.Links, err)
	}
}

// appear adds a link with an address. It is called inside the namespace.
func (w *linuxWorld) appear(name string, p netip.Prefix) error {
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "peer"}
	if err := netlink.LinkAdd(link); err != nil {
		return err
	}
	return netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(p)})
}

// SPEED.md: the listing after a delete asks the kernel for that one link.
func TestTheKernelSendsOnlyTheLinkAskedFor(t *testing.T) {
	w := newNamespaceWorld(t, Options{})
	index := story(w).LinkIndex
	large := w.addDummy("large")
	w.do(func() error {
		if err := addMany(large, 1, 500); err != nil {
			return err
		}
		s, err := openSocket()
		if err != nil {
			return err
		}
		defer s.close()
		body := make([]byte, unix.SizeofIfAddrmsg)
		binary.NativeEndian.PutUint32(body[4:], uint32(index))
		sent := 0
		err = s.dump(t.Context(), unix.RTM_GETADDR, unix.RTM_NEWADDR, body, func([]byte) error { sent++; return nil })
		if sent != 45 {
			t.Errorf("the kernel sent %d addresses for a link of 45", sent)
		}
		return err
	})
}

// C09 under a manager that never rests: every slot has one of two addresses at
// any moment. A list without an error that misses a slot is half a list.
func TestC09AChurnNeverMakesAPartialListLookComplete(t *testing.T) {
	w := newNamespaceWorld(t, Options{})
	index := w.addDummy("kube-ipvs0")
	const slots = 600
	w.do(func() error { return addMany(index, 1, slots) })
	bursts, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- w.ns.Do(func() error { return churn(index, slots, bursts) }) }()

	clean, unknown, repeats := 0, 0, 0
	for try := 0; try < 400 && (clean < 60 || repeats < 20); try++ {
		select {
		case bursts <- struct{}{}: // the next burst runs beside the listing
		case err := <-ended:
			t.Fatal(err)
		}
		st, err := w.State(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		repeats += st.DumpRetries
		if st.Addresses == nil {
			if unknown++; len(st.Incomplete) == 0 {
				t.Fatal("no list and nothing said")
			}
			continue
		}
		clean++
		if missing := missingSlots(st.Addresses, slots); missing > 0 {
			t.Fatalf("%d of %d slots are missing from a list that was given as complete", missing, slots)
		}
	}
	close(bursts)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d clean lists, %d unknown, %d dumps repeated", clean, unknown, repeats)
	if clean == 0 || repeats == 0 {
		t.Errorf("%d clean lists and %d repeats: nothing was tested", clean, repeats)
	}
}

// slotPrefix is slot i's address of generation g: 10.g.i/256.i%256.
func slotPrefix(g byte, i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, g, byte(i >> 8), byte(i)}), 32)
}

func addMany(index int, g byte, n int) error {
	var l Linux
	for i := range n {
		if err := l.add(Tuple{LinkIndex: index, Prefix: slotPrefix(g, i)}); err != nil {
			return err
		}
	}
	return nil
}

func delMany(index int, g byte, n int) error {
	var l Linux
	for i := range n {
		if err := l.del(Tuple{LinkIndex: index, Prefix: slotPrefix(g, i)}); err != nil {
			return err
		}
	}
	return nil
}

// churn moves slots to their other address, 200 in each burst: the new one
// comes before the old one goes, which is at the head of the kernel's list.
func churn(index, slots int, bursts <-chan struct{}) error {
	var l Linux
	n := 0
	for range bursts {
		for range 200 {
			i, g := n%slots, byte(1+n/slots%2)
			n++
			if err := l.add(Tuple{LinkIndex: index, Prefix: slotPrefix(3-g, i)}); err != nil {
				return fmt.Errorf("adding: %w", err)
			}
			if err := l.del(Tuple{LinkIndex: index, Prefix: slotPrefix(g, i)}); err != nil {
				return fmt.Errorf("deleting: %w", err)
			}
		}
	}
	return nil
}

func missingSlots(list []Address, slots int) int {
	seen := map[int]bool{}
	for _, a := range list {
		if b := a.Prefix.Addr().AsSlice(); len(b) == 4 && b[0] == 10 {
			seen[int(b[2])<<8|int(b[3])] = true
		}
	}
	return slots - len(seen)
}
