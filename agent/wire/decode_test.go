// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var compareFrames = cmp.Options{cmpopts.EquateComparable(Frame{}.SenderIP), cmpopts.EquateEmpty()}

// reply is `eth(M2>M1) 2 M2/VIP > M1/own`.
var reply = Frame{EthSrc: m2, EthDst: m1, Op: OpReply, SenderMAC: m2, SenderIP: vip, TargetMAC: m1, TargetIP: own}

func TestDecodeReadsEveryField(t *testing.T) {
	at := time.Unix(1700000000, 42)
	got, err := Decode(bytesOf(t, reply, 42), Metadata{At: at, Interface: "eth0", PacketType: PacketOtherHost})
	if err != nil {
		t.Fatal(err)
	}
	want := reply
	want.At, want.Interface, want.PacketType = at, "eth0", PacketOtherHost
	if diff := cmp.Diff(want, got, compareFrames); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOnlyFramesOfThisHostAreOutgoing(t *testing.T) {
	for typ := range uint8(8) {
		f, err := Decode(bytesOf(t, reply, 42), Metadata{PacketType: typ})
		if err != nil {
			t.Fatal(err)
		}
		if want := typ >= PacketOutgoing; (f.Direction == Outgoing) != want {
			t.Errorf("packet type %d: direction %v", typ, f.Direction)
		}
	}
}

func TestEthernetSourceAndSenderAreKeptApart(t *testing.T) {
	f := reply
	f.EthSrc = m3
	got, err := Decode(bytesOf(t, f, 60), Metadata{})
	if err != nil {
		t.Fatal(err)
	}
	if !got.Mismatched || got.EthSrc != m3 || got.SenderMAC != m2 {
		t.Errorf("got %+v", got)
	}
}

// C24: the tag is inline or in the metadata, and the claim is the VLAN's.
func TestTheVLANIsReadFromEitherPlace(t *testing.T) {
	tagged := func(tci uint16) []byte {
		b := bytesOf(t, reply, 42)
		return slices.Insert(b, 12, 0x81, 0x00, byte(tci>>8), byte(tci))
	}
	plain := bytesOf(t, reply, 42)
	tests := []struct {
		name string
		b    []byte
		m    Metadata
		want uint16
		err  error
	}{
		{"no tag", plain, Metadata{}, 0, nil},
		{"inline", tagged(217), Metadata{}, 217, nil},
		{"inline with priority 5", tagged(5<<13 | 217), Metadata{}, 217, nil},
		{"inline, priority only", tagged(5 << 13), Metadata{}, 0, nil},
		{"inline, reserved ID", tagged(0xfff), Metadata{}, 0, ErrVLAN},
		{"metadata", plain, Metadata{Tagged: true, TCI: 217, TPID: 0x8100}, 217, nil},
		{"metadata of a kernel that names no TPID", plain, Metadata{Tagged: true, TCI: 3<<13 | 217}, 217, nil},
		{"metadata, priority only", plain, Metadata{Tagged: true, TCI: 3 << 13}, 0, nil},
		{"metadata, service tag", plain, Metadata{Tagged: true, TCI: 217, TPID: 0x88a8}, 0, ErrVLAN},
		{"metadata, reserved ID", plain, Metadata{Tagged: true, TCI: 0xfff}, 0, ErrVLAN},
		{"metadata not valid", plain, Metadata{TCI: 217, TPID: 0x8100}, 0, nil},
		{"both", tagged(217), Metadata{Tagged: true, TCI: 218}, 0, ErrVLAN},
		{"two inline", slices.Insert(tagged(217), 12, 0x81, 0x00, 0, 9), Metadata{}, 0, ErrVLAN},
		{"service tag inline", slices.Insert(tagged(217), 12, 0x88, 0xa8, 0, 9), Metadata{}, 0, ErrVLAN},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Decode(tt.b, tt.m)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if err == nil && (f.VLAN != tt.want || f.SenderIP != vip || f.TargetMAC != m1) {
				t.Errorf("got %+v, want VLAN %d", f, tt.want)
			}
		})
	}
}

func TestDecodeRefusesWhatIsNotARPForIPv4OverEthernet(t *testing.T) {
	set := func(at int, v ...byte) []byte {
		b := bytesOf(t, reply, 60)
		copy(b[at:], v)
		return b
	}
	tests := []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, ErrTruncated},
		{"half a header", bytesOf(t, reply, 13), ErrTruncated},
		{"a header alone", bytesOf(t, reply, 14), ErrTruncated},
		{"the last byte missing", bytesOf(t, reply, 41), ErrTruncated},
		{"a tag and nothing after", []byte{12: 0x81, 15: 0}, ErrTruncated},
		{"a tag and the last byte missing", slices.Insert(bytesOf(t, reply, 41), 12, 0x81, 0x00, 0, 217), ErrTruncated},
		{"IPv4", set(12, 0x08, 0x00), ErrNotARP},
		{"RARP", set(12, 0x80, 0x35), ErrNotARP},
		{"a length instead of a type (802.3)", set(12, 0x00, 0x1c), ErrNotARP},
		{"hardware type IEEE 802", set(14, 0, 6), ErrFormat},
		{"protocol IPv6", set(16, 0x86, 0xdd), ErrFormat},
		{"hardware length 8", set(18, 8), ErrFormat},
		{"hardware length 0", set(18, 0), ErrFormat},
		{"hardware length 255", set(18, 255), ErrFormat},
		{"protocol length 16", set(19, 16), ErrFormat},
		{"protocol length 0", set(19, 0), ErrFormat},
		{"operation 0", set(20, 0, 0), ErrOperation},
		{"operation 3, RARP request", set(20, 0, 3), ErrOperation},
		{"operation 258", set(20, 1, 2), ErrOperation},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Decode(tt.b, Metadata{})
			if !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
			if f != (Frame{}) {
				t.Errorf("an error came with a frame: %+v", f)
			}
		})
	}
}

func TestBytesAfterTheARPPacketArePadding(t *testing.T) {
	b := append(bytesOf(t, reply, 42), bytes.Repeat([]byte{0xa5}, 1458)...)
	f, err := Decode(b, Metadata{})
	if err != nil {
		t.Fatal(err)
	}
	want := reply
	want.Padded = true
	if diff := cmp.Diff(want, f, compareFrames); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEncodeRefusesWhatARPCannotCarry(t *testing.T) {
	v6 := reply
	v6.TargetIP = addrs("2001:db8::50")[0]
	none := reply
	none.SenderIP = addrs("::ffff:192.0.2.50")[0]
	far := reply
	far.VLAN = 4095
	for name, f := range map[string]Frame{"IPv6 target": v6, "mapped sender": none, "no addresses": {}, "VLAN 4095": far} {
		if b, err := Encode(f); err == nil {
			t.Errorf("%s: encoded as % x", name, b)
		}
	}
}

func TestEncodedFramesAreAsLongAsEthernetWants(t *testing.T) {
	tagged := reply
	tagged.VLAN = 217
	if n, m := len(bytesOf(t, reply, 0)), len(bytesOf(t, tagged, 0)); n != 60 || m != 64 {
		t.Errorf("%d bytes untagged and %d tagged, want 60 and 64", n, m)
	}
}
