// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// refusing is a NIC on which nothing may be opened.
type refusing struct{ Sockets }

func TestRequestsThatMustNotBeSentAreRefusedBeforeAnythingIsOpened(t *testing.T) {
	good := Request{Kind: Broadcast, VIP: vip, Sender: own}
	tests := []struct {
		name string
		q    Request
		is   error
	}{
		{"the VIP as sender", Request{Kind: Broadcast, VIP: vip, Sender: vip}, nil},
		{"the VIP as sender of a unicast request", Request{Kind: Unicast, VIP: vip, Sender: vip, TargetMAC: m3}, nil},
		{"another VIP of the round as sender", Request{Kind: Broadcast, VIP: other, Sender: vip}, nil},
		{"no address to ask with", Request{Kind: Broadcast, VIP: vip}, ErrNoAddress},
		{"no address to ask one MAC with", Request{Kind: Unicast, VIP: vip, TargetMAC: m3}, ErrNoAddress},
		{"0.0.0.0 as an ordinary sender", Request{Kind: Broadcast, VIP: vip, Sender: zero}, nil},
		{"127.0.0.1 as an ordinary sender", Request{Kind: Broadcast, VIP: vip, Sender: martian}, nil},
		{"a multicast sender", Request{Kind: Broadcast, VIP: vip, Sender: addrs("224.0.0.1")[0]}, nil},
		{"an IPv6 sender", Request{Kind: Broadcast, VIP: vip, Sender: addrs("2001:db8::2")[0]}, nil},
		{"a sender for a zero-sender request", Request{Kind: ZeroSender, VIP: vip, Sender: own}, nil},
		{"a sender for an announcer question", Request{Kind: AnnouncerQuestion, VIP: vip, Sender: own, TargetMAC: m3}, nil},
		{"an IPv6 VIP", Request{Kind: ZeroSender, VIP: addrs("2001:db8::50")[0]}, nil},
		{"a mapped VIP", Request{Kind: ZeroSender, VIP: addrs("::ffff:192.0.2.50")[0]}, nil},
		{"no VIP", Request{Kind: ZeroSender}, nil},
		{"0.0.0.0", Request{Kind: ZeroSender, VIP: zero}, nil},
		{"127.0.0.1", Request{Kind: ZeroSender, VIP: martian}, nil},
		{"a multicast address", Request{Kind: ZeroSender, VIP: addrs("224.0.0.1")[0]}, nil},
		{"the broadcast address", Request{Kind: ZeroSender, VIP: addrs("255.255.255.255")[0]}, nil},
		{"no MAC to ask the announcer question", Request{Kind: AnnouncerQuestion, VIP: vip}, nil},
		{"the announcer question to everyone", Request{Kind: AnnouncerQuestion, VIP: vip, TargetMAC: ff}, nil},
		{"the NIC's own MAC", Request{Kind: AnnouncerQuestion, VIP: vip, TargetMAC: m1}, nil},
		{"one MAC in a broadcast", Request{Kind: Broadcast, VIP: vip, Sender: own, TargetMAC: m3}, nil},
		{"a kind that does not exist", Request{Kind: 4, VIP: vip, Sender: own}, nil},
		{"a negative window", Request{Kind: Broadcast, VIP: vip, Sender: own, Window: -1}, nil},
		{"a window of an hour", Request{Kind: Broadcast, VIP: vip, Sender: own, Window: time.Hour}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := NewProber(NIC{Name: "eth0", Index: 2, MAC: m1}, ProberConfig{Sockets: refusing{}}) // opening panics
			results, err := p.Round(context.Background(), []Request{good, tt.q})
			var refused *RequestError
			if !errors.As(err, &refused) || results != nil {
				t.Fatalf("results %v, error %v", results, err)
			}
			if refused.Request != tt.q {
				t.Errorf("the error names %+v", refused.Request)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error %v, want %v", err, tt.is)
			}
		})
	}
}

func TestARoundHasBounds(t *testing.T) {
	p := NewProber(NIC{Name: "eth0", Index: 2, MAC: m1}, ProberConfig{Sockets: refusing{}})
	many := slices.Repeat([]Request{{Kind: ZeroSender, VIP: vip}}, maxRequests+1)
	if _, err := p.Round(context.Background(), many); err == nil {
		t.Error("1025 requests were taken")
	}
	if _, err := p.Round(context.Background(), many[:1], Hear(scattered(1000)...), Hear(own)); err == nil {
		t.Error("1001 addresses to hear about were taken")
	}
	if _, err := p.Round(context.Background(), many[:1], Hear(addrs("2001:db8::2")...)); err == nil {
		t.Error("an IPv6 address to hear about was taken")
	}
}

// Whatever is asked, the frame that goes out has the NIC's MAC twice and never
// a VIP as sender.
func TestEveryRequestCarriesTheNICsOwnMACAndNeverAVIP(t *testing.T) {
	some := rapid.SampledFrom([]netip.Addr{vip, other, own, zero, martian, {}, addrs("10.96.0.1")[0]})
	rapid.Check(t, func(t *rapid.T) {
		q := Request{
			Kind:      Kind(rapid.IntRange(-1, 4).Draw(t, "kind")),
			VIP:       some.Draw(t, "vip"),
			Sender:    some.Draw(t, "sender"),
			TargetMAC: rapid.SampledFrom([]MAC{z, ff, m1, m2, m3}).Draw(t, "target"),
		}
		vips := map[netip.Addr]bool{q.VIP: true, other: true}
		if q.check(m1, vips) != nil {
			return
		}
		b, err := Encode(q.frame(m1))
		if err != nil {
			t.Fatalf("%+v passed the check and cannot be sent: %v", q, err)
		}
		f, err := Decode(b, Metadata{})
		if err != nil {
			t.Fatal(err)
		}
		if f.EthSrc != m1 || f.SenderMAC != m1 || f.Op != OpRequest || f.TargetIP != q.VIP || vips[f.SenderIP] {
			t.Fatalf("%+v is sent as %+v", q, f)
		}
		if announcement, _ := f.Announcement(); announcement {
			t.Fatalf("%+v is sent as an announcement", q)
		}
		if (f.EthDst == BroadcastMAC) != (q.Kind == Broadcast || q.Kind == ZeroSender) || f.EthDst == m1 {
			t.Fatalf("%+v is sent to %v", q, f.EthDst)
		}
	})
}

func TestRequestsThatCannotBeToldApartFlyOneAfterTheOther(t *testing.T) {
	ask := func(kind Kind, vip netip.Addr, to MAC) Request {
		q := Request{Kind: kind, VIP: vip, TargetMAC: to}
		if kind == Broadcast || kind == Unicast {
			q.Sender = own
		}
		return q
	}
	tests := []struct {
		name string
		ask  []Request
		want [][]int
	}{
		{"none", nil, nil},
		{"all kinds that differ", []Request{ask(Broadcast, vip, z), ask(ZeroSender, vip, z), ask(AnnouncerQuestion, vip, m2), ask(AnnouncerQuestion, vip, m3)}, [][]int{{0, 1, 2, 3}}},
		{"the same broadcast three times", []Request{ask(Broadcast, vip, z), ask(Broadcast, vip, z), ask(Broadcast, vip, z)}, [][]int{{0}, {1}, {2}}},
		{"two addresses", []Request{ask(Broadcast, vip, z), ask(Broadcast, other, z)}, [][]int{{0, 1}}},
		{"one question twice to one MAC", []Request{ask(AnnouncerQuestion, vip, m2), ask(AnnouncerQuestion, vip, m3), ask(AnnouncerQuestion, vip, m2)}, [][]int{{0, 1}, {2}}},
		{"unicast beside broadcast with the same sender", []Request{ask(Broadcast, vip, z), ask(Unicast, vip, m2), ask(Unicast, vip, m3)}, [][]int{{0}, {1, 2}}},
		{"what does not collide goes ahead", []Request{ask(ZeroSender, vip, z), ask(ZeroSender, vip, z), ask(AnnouncerQuestion, vip, m2)}, [][]int{{0, 2}, {1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, waves(tt.ask)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoTwoRequestsOfAWaveCollideAndNoneIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requests := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Request {
			return Request{
				Kind:      Kind(rapid.IntRange(0, 3).Draw(t, "kind")),
				VIP:       rapid.SampledFrom([]netip.Addr{vip, other}).Draw(t, "vip"),
				TargetMAC: rapid.SampledFrom([]MAC{m2, m3}).Draw(t, "mac"),
				Sender:    own,
			}
		}), 0, 30).Draw(t, "requests")
		seen := map[int]int{}
		for w, wave := range waves(requests) {
			if len(wave) == 0 {
				t.Fatal("an empty wave")
			}
			for n, i := range wave {
				for _, j := range wave[:n] {
					if requests[i].collides(requests[j]) || requests[j].collides(requests[i]) {
						t.Fatalf("%+v and %+v fly together", requests[i], requests[j])
					}
				}
				if _, twice := seen[i]; twice {
					t.Fatalf("request %d flies twice", i)
				}
				seen[i] = w
			}
		}
		if len(seen) != len(requests) {
			t.Fatalf("%d of %d requests fly", len(seen), len(requests))
		}
		for i := range requests {
			for j := range i {
				if requests[i].collides(requests[j]) && seen[j] >= seen[i] {
					t.Fatalf("request %d overtakes %d", i, j)
				}
			}
		}
	})
}
