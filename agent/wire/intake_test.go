// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"strings"
	"testing"
)

// What passes a kernel filter is looked at again: the filter may be coarse or
// just replaced, and a socket on a NIC also gets the frames of VLANs on it.
func TestFramesOfOtherLinksAndAddressesAreCountedAndNotHandedOn(t *testing.T) {
	frame := func(change func(*Frame)) []byte {
		f := reply
		if change != nil {
			change(&f)
		}
		return bytesOf(t, f, 60)
	}
	tests := []struct {
		name string
		b    []byte
		m    Metadata
		want Stats
	}{
		{"a reply to us", frame(nil), Metadata{Index: 2}, Stats{Frames: 1}},
		{"received for the VLAN child (C24)", frame(nil), Metadata{Index: 7}, Stats{Elsewhere: 1}},
		{"to us, yet for another host: its tag is gone", frame(nil), Metadata{Index: 2, PacketType: PacketOtherHost}, Stats{Elsewhere: 1}},
		{"to everyone, yet for another host: its tag is gone", frame(func(f *Frame) { f.EthDst = ff }), Metadata{Index: 2, PacketType: PacketOtherHost}, Stats{Elsewhere: 1}},
		{"to a third station", frame(func(f *Frame) { f.EthDst = m3 }), Metadata{Index: 2, PacketType: PacketOtherHost}, Stats{Frames: 1}},
		{"tagged in the metadata", frame(nil), Metadata{Index: 2, Tagged: true, TCI: 217}, Stats{Frames: 1}},
		{"two tags", bytesOf(t, Frame{EthDst: ff, VLAN: 9, Op: OpReply, SenderIP: vip, TargetIP: vip}, 0), Metadata{Index: 2, Tagged: true, TCI: 217}, Stats{Refused: 1}},
		{"about another address", frame(func(f *Frame) { f.SenderIP = other }), Metadata{Index: 2}, Stats{Unwatched: 1}},
		{"a request for it", frame(func(f *Frame) { f.Op, f.SenderIP, f.TargetIP = OpRequest, other, vip }), Metadata{Index: 2}, Stats{Frames: 1}},
		{"noise", []byte("noise"), Metadata{Index: 2}, Stats{Refused: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := intake{nic: NIC{Name: "eth0", Index: 2, MAC: m1}}
			if _, ok := in.accept(tt.b, tt.m); ok {
				t.Error("a frame was handed on with no address watched")
			}
			in = intake{nic: in.nic}
			spans, err := spansOf(addrs("192.0.2.50"))
			must(t, err)
			in.watched.Store(&spans)
			_, ok := in.accept(tt.b, tt.m)
			if got := in.stats(); got != tt.want || ok != (tt.want.Frames == 1) {
				t.Errorf("handed on %v, %+v, want %+v", ok, got, tt.want)
			}
		})
	}
}

func TestErrorsNameWhatWasDoneToWhat(t *testing.T) {
	p := NewProber(NIC{Name: "eth0", Index: 2, MAC: m1}, ProberConfig{Sockets: refusing{}})
	_, err := p.Round(context.Background(), []Request{{Kind: Broadcast, VIP: vip, Sender: vip}})
	if err == nil || !strings.HasPrefix(err.Error(), "asking (broadcast) for 192.0.2.50: sender 192.0.2.50 is an address that is asked for") {
		t.Errorf("got %v", err)
	}
	_, err = p.Round(context.Background(), []Request{{Kind: Broadcast, VIP: vip}})
	if want := "asking (broadcast) for 192.0.2.50: the NIC has no IPv4 address of its own on this segment to ask with"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestACaptureCanBeTurnedToOtherAddressesAndClosed(t *testing.T) {
	segment := NewSegment()
	a, b := segment.Join(NIC{Name: "eth0", Index: 2, MAC: m1}), segment.Join(NIC{Name: "eth0", Index: 2, MAC: m2})
	c, err := OpenCapture(a.NIC(), CaptureConfig{Watched: addrs("192.0.2.60"), Sockets: a})
	must(t, err)
	must(t, b.Send(Frame{EthDst: ff, Op: OpReply, SenderIP: vip, TargetIP: vip}))
	must(t, c.SetWatched(addrs("192.0.2.50")))
	must(t, b.Send(Frame{EthDst: ff, Op: OpReply, SenderIP: vip, TargetIP: zero}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, c.Run(ctx))
	if kept, _ := c.Frames(); len(kept) != 1 || kept[0].TargetIP != zero || kept[0].EthSrc != m2 {
		t.Errorf("kept %+v", kept)
	}
	must(t, c.Close())
	if err := c.SetWatched(nil); err == nil {
		t.Error("a closed capture takes addresses")
	}
}
