// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// announcing starts an announcement by h.
func announcing(ctx context.Context, h host, ip netip.Addr) <-chan error {
	done := make(chan error, 1)
	go h.in(func() {
		sent, err := Announce(ctx, h.nic(), h.sockets(), ip)
		if err == nil && sent != 6 {
			err = errors.New("not six frames left")
		}
		done <- err
	})
	return done
}

func TestAnAnnouncementIsThreeTimesBothForms(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w world) {
		client, n1 := w.join(t, 2), w.join(t, 11)
		_, heard := listenOn(t, client, vip.String())
		if err := await(t, announcing(t.Context(), n1, vip), "the announcement"); err != nil {
			t.Fatal(err)
		}
		var got []Frame
		for range 6 {
			got = append(got, await(t, heard.frames, "a frame"))
		}
		m := n1.nic().MAC
		for i, f := range got {
			is, odd := f.Announcement()
			want := Frame{At: f.At, Interface: "eth0", PacketType: PacketBroadcast, EthSrc: m, EthDst: ff, Op: OpRequest, SenderMAC: m, SenderIP: vip, TargetIP: vip, Padded: true}
			if i%2 == 1 {
				want.Op, want.TargetMAC = OpReply, m
			}
			if diff := cmp.Diff(want, f, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || !is || odd {
				t.Errorf("frame %d (-want +got), announcement %v, nonstandard %v:\n%s", i, is, odd, diff)
			}
		}
		for i := 2; i < 6; i += 2 {
			if apart := got[i].At.Sub(got[i-2].At); apart < time.Second {
				t.Errorf("%s between two announcements: a neighbour entry takes nothing new within a second", apart)
			}
		}
		heard.end(t)
	})
}

func TestAnAnnouncementThatIsCalledOffEnds(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w world) {
		client, n1 := w.join(t, 2), w.join(t, 11)
		_, heard := listenOn(t, client, vip.String())
		ctx, cancel := context.WithCancel(t.Context())
		done := announcing(ctx, n1, vip)
		await(t, heard.frames, "the first frame")
		cancel()
		if err := await(t, done, "its end"); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		heard.end(t)
	})
}

func TestNoHostAddressIsAnnounced(t *testing.T) {
	for _, ip := range []string{"0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "2001:db8::50"} {
		if sent, err := Announce(t.Context(), NIC{Name: "eth0"}, nil, netip.MustParseAddr(ip)); err == nil || sent > 0 {
			t.Errorf("%s: %d frames, %v", ip, sent, err)
		}
	}
}

func TestAnAnnouncementOnANICThatIsDownSaysSo(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w world) {
		n1 := w.join(t, 11)
		n1.fail(t, ErrDown)
		var nicErr *NICError
		if err := await(t, announcing(t.Context(), n1, vip), "its end"); !errors.As(err, &nicErr) {
			t.Errorf("%v", err)
		}
	})
}
