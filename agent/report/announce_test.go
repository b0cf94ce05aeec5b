// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// While n1 announces, n2 asks for the VIP: what it hears unasked is what the segment hears.
func TestAnAnnouncementTellsTheNICsOwnMACSixTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lan(t, 2)
		order := broadcast()
		order.Window = durationpb.New(5 * time.Second)
		heard := make(chan *vipmovev1.Round, 1)
		go func() { heard <- l[1].looker.Probe(t.Context(), order, nil).GetRounds()[0] }()
		synctest.Wait()
		a, err := l[0].looker.Announce(t.Context(), &vipmovev1.Announce{Vip: vip.String(), Interface: "eth0", Mac: l[0].mac})
		if err != nil || a.GetSent() != 6 {
			t.Errorf("%d frames, %v", a.GetSent(), err)
		}
		r := <-heard
		all := append(r.GetReplies(), r.GetUnsolicited()...)
		for _, f := range all {
			if f.GetSenderMac() != l[0].mac || f.GetEthSource() != l[0].mac || f.GetSenderIp() != vip.String() || f.GetTargetIp() != vip.String() {
				t.Errorf("heard %v", f)
			}
		}
		if len(all) != 6 {
			t.Errorf("%d frames were heard", len(all))
		}
	})
}

func TestNothingIsAnnouncedThatTheNICDoesNotHave(t *testing.T) {
	for name, order := range map[string]*vipmovev1.Announce{
		"another MAC":     {Vip: vip.String(), Interface: "eth0", Mac: "02:00:00:00:00:99"},
		"no MAC":          {Vip: vip.String(), Interface: "eth0"},
		"another NIC":     {Vip: vip.String(), Interface: "eth7", Mac: "02:00:00:00:00:01"},
		"no address":      {Interface: "eth0", Mac: "02:00:00:00:00:01"},
		"a network's":     {Vip: "0.0.0.0", Interface: "eth0", Mac: "02:00:00:00:00:01"},
		"an IPv6 address": {Vip: "2001:db8::50", Interface: "eth0", Mac: "02:00:00:00:00:01"},
	} {
		if a, err := lan(t, 1)[0].looker.Announce(t.Context(), order); err == nil || a.GetSent() > 0 {
			t.Errorf("%s: %d frames, %v", name, a.GetSent(), err)
		}
	}
}
