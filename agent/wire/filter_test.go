// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"pgregory.net/rapid"
)

// machine compiles the filter for the kernel and runs it as the kernel would.
func machine(t testing.TB, raw []bpf.RawInstruction, err error) func([]byte) bool {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) > 4096 {
		t.Fatalf("%d instructions, the kernel takes 4096", len(raw))
	}
	instructions, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("some instruction cannot be disassembled")
	}
	vm, err := bpf.NewVM(instructions)
	if err != nil {
		t.Fatal(err)
	}
	return func(b []byte) bool {
		n, err := vm.Run(b)
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	}
}

func filtering(t testing.TB, watched ...netip.Addr) func([]byte) bool {
	raw, err := Filter(watched)
	return machine(t, raw, err)
}

// scattered are addresses of which no two are neighbours.
func scattered(n int) []netip.Addr {
	out := make([]netip.Addr, n)
	for i := range out {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], 0xc0000232+uint32(i)*3) // from 192.0.2.50
		out[i] = netip.AddrFrom4(b)
	}
	return out
}

func TestTheFilterLetsThroughARPAboutWatchedAddressesOnly(t *testing.T) {
	passes := filtering(t, vip)
	about := func(op uint16, sender, target netip.Addr) Frame {
		return Frame{EthSrc: m2, EthDst: ff, Op: op, SenderMAC: m2, SenderIP: sender, TargetIP: target}
	}
	ipv4 := bytesOf(t, about(OpReply, vip, own), 60)
	ipv4[12], ipv4[13] = 0x08, 0x00
	reserved := slices.Insert(bytesOf(t, about(OpReply, vip, own), 42), 12, 0x81, 0x00, 0xff, 0xff)
	tests := []struct {
		name string
		b    []byte
		want bool
	}{
		{"request for it", bytesOf(t, about(OpRequest, own, vip), 42), true},
		{"reply from it", bytesOf(t, about(OpReply, vip, own), 60), true},
		{"announcement", bytesOf(t, about(OpReply, vip, vip), 42), true},
		{"about others", bytesOf(t, about(OpReply, other, own), 60), false},
		{"the next address", bytesOf(t, about(OpReply, vip.Next(), vip.Prev()), 60), false},
		{"truncated", bytesOf(t, about(OpReply, vip, own), 41), false},
		{"operation 3", bytesOf(t, about(3, vip, own), 42), false},
		{"IPv4", ipv4, false},
		{"tagged with the reserved ID", reserved, false},
		{"tagged", bytesOf(t, Frame{EthDst: ff, VLAN: 217, Op: OpReply, SenderIP: vip, TargetIP: own}, 0), true},
		{"tagged, about others", bytesOf(t, Frame{EthDst: ff, VLAN: 217, Op: OpReply, SenderIP: other, TargetIP: own}, 0), false},
		{"jumbo padding", append(bytesOf(t, about(OpReply, vip, own), 60), make([]byte, 8900)...), true},
		{"empty", nil, false},
	}
	for _, tt := range tests {
		if got := passes(tt.b); got != tt.want {
			t.Errorf("%s: passes %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestAFilterForNothingLetsNothingThrough(t *testing.T) {
	if filtering(t)(bytesOf(t, reply, 60)) {
		t.Error("a frame passed a filter with no addresses")
	}
}

func TestTheFilterFindsEachOfAThousandAddressesAndNoneBetween(t *testing.T) {
	for _, n := range []int{1, 8, 9, 16, 17, 100, 255, 256, 511, 1000} {
		watched := scattered(n)
		rand.New(rand.NewPCG(1, uint64(n))).Shuffle(n, func(i, j int) { watched[i], watched[j] = watched[j], watched[i] })
		passes := filtering(t, watched...)
		for _, a := range watched {
			sent := Frame{EthDst: ff, Op: OpRequest, SenderIP: own, TargetIP: a}
			heard := Frame{EthDst: m1, Op: OpReply, SenderIP: a, TargetIP: own}
			if !passes(bytesOf(t, sent, 42)) || !passes(bytesOf(t, heard, 42)) {
				t.Fatalf("%d watched: %v does not pass", n, a)
			}
			for _, near := range []netip.Addr{a.Prev(), a.Next()} {
				sent.TargetIP = near
				if passes(bytesOf(t, sent, 42)) {
					t.Fatalf("%d watched: %v passes", n, near)
				}
			}
		}
	}
}

func TestNeighbouringAddressesCostOneCompare(t *testing.T) {
	block := make([]netip.Addr, 0, MaxWatched)
	for a := vip; len(block) < MaxWatched; a = a.Next() {
		block = append(block, a)
	}
	slices.Reverse(block)
	raw, err := Filter(append(block[:len(block)-1:len(block)-1], vip))
	passes := machine(t, raw, err)
	if len(raw) > 40 {
		t.Errorf("%d instructions for one block", len(raw))
	}
	for _, tt := range []struct {
		a    netip.Addr
		want bool
	}{{vip.Prev(), false}, {vip, true}, {block[500], true}, {block[0], true}, {block[0].Next(), false}} {
		if got := passes(bytesOf(t, Frame{Op: OpRequest, SenderIP: own, TargetIP: tt.a}, 42)); got != tt.want {
			t.Errorf("%v passes %v", tt.a, got)
		}
	}
}

func TestTheEdgesOfTheAddressSpaceAreAddressesToo(t *testing.T) {
	edges := addrs("0.0.0.0", "255.255.255.255", "255.255.255.254", "128.0.0.0", "127.255.255.255")
	passes := filtering(t, edges...)
	for _, a := range edges {
		if !passes(bytesOf(t, Frame{Op: OpReply, SenderIP: a, TargetIP: own}, 42)) {
			t.Errorf("%v does not pass", a)
		}
	}
	for _, a := range addrs("0.0.0.1", "255.255.255.253", "128.0.0.1", "127.255.255.254") {
		if passes(bytesOf(t, Frame{Op: OpReply, SenderIP: a, TargetIP: own}, 42)) {
			t.Errorf("%v passes", a)
		}
	}
}

func TestTheFilterRefusesWhatItCannotHold(t *testing.T) {
	for name, watched := range map[string][]netip.Addr{
		"IPv6":           addrs("2001:db8::50"),
		"mapped IPv4":    addrs("::ffff:192.0.2.50"),
		"no address":     {{}},
		"1001 addresses": scattered(1001),
	} {
		if _, err := Filter(watched); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The filter of an all-protocols socket runs on every packet of the host.
func TestOtherTrafficIsRefusedInFiveInstructions(t *testing.T) {
	raw, err := Filter(scattered(1000))
	if err != nil {
		t.Fatal(err)
	}
	short, ok := bpf.Disassemble(raw[:5])
	if !ok {
		t.Fatal("cannot be disassembled")
	}
	// Both branches that leave the five go to ARP and to VLAN tags; an IPv4
	// packet has to be refused before any of them.
	pc, a := 0, uint32(0x0800)
	for range 5 {
		switch ins := short[pc].(type) {
		case bpf.JumpIf:
			if ins.Cond != bpf.JumpEqual || ins.Val == a {
				t.Fatalf("instruction %d: %v", pc, ins)
			}
			pc += int(ins.SkipFalse)
		case bpf.RetConstant:
			if ins.Val != 0 {
				t.Fatalf("accepted: %v", ins)
			}
			return
		}
		pc++
	}
	t.Fatal("not refused")
}

func TestACoarseFilterIsShortAndLosesNoWatchedAddress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Uint32(), 1, 300).Draw(t, "addresses")
		limit := rapid.IntRange(1, 70).Draw(t, "limit")
		watched := make([]netip.Addr, len(values))
		for i, v := range values {
			watched[i] = netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, v)))
		}
		exact, err := spansOf(watched)
		if err != nil {
			t.Fatal(err)
		}
		coarse := coarsen(exact, limit)
		if len(coarse) != min(limit, len(exact)) {
			t.Fatalf("%d spans of %d, limit %d: coarser than it has to be", len(coarse), len(exact), limit)
		}
		var in intake
		in.watched.Store(&coarse)
		for _, a := range watched {
			if !in.watches(a) {
				t.Fatalf("%v got lost", a)
			}
		}
	})
}

func TestSpansAreSortedAndApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		small := rapid.SliceOfN(rapid.Uint32Range(0xffffff00, 0xffffffff), 0, 200).Draw(t, "addresses")
		var watched []netip.Addr
		for _, v := range small {
			watched = append(watched, netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, v))))
		}
		spans, err := spansOf(watched)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range spans {
			if s.lo > s.hi || i > 0 && spans[i-1].hi+1 >= s.lo {
				t.Fatalf("spans %v", spans)
			}
		}
		for v := uint64(0xffffff00); v <= 0xffffffff; v++ {
			inSpan := slices.ContainsFunc(spans, func(s span) bool { return uint64(s.lo) <= v && v <= uint64(s.hi) })
			if inSpan != slices.Contains(small, uint32(v)) {
				t.Fatalf("%x in spans: %v", v, inSpan)
			}
		}
	})
}

// FuzzFilter holds the kernel filter and the decoder together: a frame passes
// exactly when Decode takes it and its sender or target address is watched.
func FuzzFilter(f *testing.F) {
	seeds(f)
	sets := [][]netip.Addr{{vip}, scattered(1000), addrs("192.0.2.48", "192.0.2.49", "192.0.2.50", "10.96.0.1")}
	var filters []func([]byte) bool
	for _, set := range sets {
		filters = append(filters, filtering(f, set...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := Decode(b, Metadata{})
		for i, set := range sets {
			want := err == nil && (slices.Contains(set, frame.SenderIP) || slices.Contains(set, frame.TargetIP))
			if got := filters[i](b); got != want {
				t.Errorf("set %d: passes %v, decoded %+v, %v\n% x", i, got, frame, err, b)
			}
		}
	})
}

// FuzzDecode: no panic, and what is decoded is what was sent.
func FuzzDecode(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		before := slices.Clone(b)
		frame, err := Decode(b, Metadata{})
		if !bytes.Equal(before, b) {
			t.Fatal("the input was changed")
		}
		if err != nil {
			if frame != (Frame{}) {
				t.Fatalf("%v came with %+v", err, frame)
			}
			return
		}
		frame.Announcement()
		again, err := Encode(frame)
		if err != nil {
			t.Fatalf("decoded %+v cannot be encoded: %v", frame, err)
		}
		end := arpEnd(b[12] == 0x81)
		if b[12] == 0x81 { // priority is not kept, and a priority tag is no tag
			b = slices.Delete(slices.Clone(b[:end]), 12, 16)
			if frame.VLAN != 0 {
				again = slices.Delete(again, 12, 16)
			}
			end -= tagLength
		}
		if !bytes.Equal(b[:end], again[:end]) {
			t.Errorf("decoded as %+v\nfrom % x\n  to % x", frame, b[:end], again[:end])
		}
	})
}

func seeds(f *testing.F) {
	for _, op := range []uint16{OpRequest, OpReply, 3} {
		for _, vlan := range []uint16{0, 217} {
			for _, sender := range []netip.Addr{vip, own} {
				b, err := Encode(Frame{EthSrc: m2, EthDst: ff, VLAN: vlan, Op: op, SenderMAC: m2, SenderIP: sender, TargetIP: vip})
				if err != nil {
					f.Fatal(err)
				}
				f.Add(b)
				f.Add(b[:42])
				f.Add(b[:41])
			}
		}
	}
	f.Add([]byte{})
}

func BenchmarkDecode(b *testing.B) {
	frame := bytesOf(b, reply, 60)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(frame, Metadata{}); err != nil {
			b.Fatal(err)
		}
	}
}
