// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"testing"
)

// C26: three shapes of gratuitous ARP, each at 42 and at 60 bytes.
func TestAnnouncementsAreRecognizedInAllTheirShapes(t *testing.T) {
	tests := []struct {
		name            string
		f               Frame
		is, nonstandard bool
	}{
		{"request for its own address", Frame{EthDst: ff, Op: OpRequest, SenderIP: vip, TargetMAC: z, TargetIP: vip}, true, false},
		{"reply that is its own target", Frame{EthDst: ff, Op: OpReply, SenderIP: vip, TargetMAC: m2, TargetIP: vip}, true, false},
		{"reply to nobody", Frame{EthDst: ff, Op: OpReply, SenderIP: vip, TargetMAC: ff, TargetIP: zero}, true, true},
		{"reply to nobody, target MAC zero", Frame{EthDst: ff, Op: OpReply, SenderIP: vip, TargetMAC: z, TargetIP: zero}, true, true},
		{"request for its own address with target MAC ff", Frame{EthDst: ff, Op: OpRequest, SenderIP: vip, TargetMAC: ff, TargetIP: vip}, true, true},
		{"reply for its own address with target MAC ff (C23)", Frame{EthDst: ff, Op: OpReply, SenderIP: vip, TargetMAC: ff, TargetIP: vip}, true, true},
		{"for one station only", Frame{EthDst: m1, Op: OpReply, SenderIP: vip, TargetMAC: m2, TargetIP: vip}, true, true},

		{"plain request", Frame{EthDst: ff, Op: OpRequest, SenderIP: own, TargetMAC: z, TargetIP: vip}, false, false},
		{"address probe", Frame{EthDst: ff, Op: OpRequest, SenderIP: zero, TargetMAC: z, TargetIP: vip}, false, false},
		{"plain reply", Frame{EthDst: m1, Op: OpReply, SenderIP: vip, TargetMAC: m1, TargetIP: own}, false, false},
		{"answer to an address probe", Frame{EthDst: m1, Op: OpReply, SenderIP: vip, TargetMAC: m1, TargetIP: zero}, false, false},
		{"broadcast answer to an address probe (RFC 5227, 2.6)", Frame{EthDst: ff, Op: OpReply, SenderIP: vip, TargetMAC: m1, TargetIP: zero}, false, false},
		{"nobody about nobody", Frame{EthDst: ff, Op: OpReply, SenderIP: zero, TargetMAC: ff, TargetIP: zero}, false, false},
	}
	for _, tt := range tests {
		for _, size := range []int{42, 60} {
			t.Run(fmt.Sprintf("%s, %d bytes", tt.name, size), func(t *testing.T) {
				tt.f.EthSrc, tt.f.SenderMAC = m2, m2
				f, err := Decode(bytesOf(t, tt.f, size), Metadata{})
				if err != nil {
					t.Fatal(err)
				}
				if is, nonstandard := f.Announcement(); is != tt.is || nonstandard != tt.nonstandard {
					t.Errorf("Announcement() = %v, %v, want %v, %v", is, nonstandard, tt.is, tt.nonstandard)
				}
				if f.Padded != (size == 60) {
					t.Errorf("Padded = %v at %d bytes", f.Padded, size)
				}
			})
		}
	}
}

func TestDirectionsAndKindsHaveNames(t *testing.T) {
	got := fmt.Sprint(Incoming, Outgoing, Broadcast, ZeroSender, AnnouncerQuestion, Unicast, Kind(9))
	if want := "incoming outgoing broadcast zero-sender announcer-question unicast kind 9"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMACsAreReadAndWritten(t *testing.T) {
	if m, err := ParseMAC("02-00-00-00-00-0A"); err != nil || m.String() != "02:00:00:00:00:0a" {
		t.Errorf("got %v, %v", m, err)
	}
	for _, bad := range []string{"", "02:00:00:00:00", "02:00:00:00:00:00:00:01", "no MAC"} { // 8 bytes: EUI-64
		if m, err := ParseMAC(bad); err == nil {
			t.Errorf("%q was read as %v", bad, m)
		}
	}
	if _, err := MACFrom(make(net.HardwareAddr, 20)); err == nil { // S5
		t.Error("an InfiniBand address was taken for a MAC")
	}
	for _, tt := range []struct {
		m           MAC
		zero, group bool
	}{{z, true, false}, {ff, false, true}, {mac("01:00:5e:00:00:01"), false, true}, {m1, false, false}} {
		if tt.m.IsZero() != tt.zero || tt.m.IsGroup() != tt.group {
			t.Errorf("%v: IsZero %v, IsGroup %v", tt.m, tt.m.IsZero(), tt.m.IsGroup())
		}
	}
}

func TestAFrameSurvivesJSON(t *testing.T) {
	want := Frame{EthSrc: m2, EthDst: m1, Op: OpReply, SenderMAC: m2, SenderIP: vip, TargetMAC: m1, TargetIP: netip.MustParseAddr("192.0.2.2")}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Frame
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := json.Unmarshal([]byte(`{"EthSrc":"x"}`), &got); err == nil {
		t.Error("a bad MAC was read")
	}
}
