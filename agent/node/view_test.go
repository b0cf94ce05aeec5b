// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vipmove/vipmove/agent/wire"
)

var (
	eth0 = wire.NIC{Name: "eth0", Index: 2, MAC: wire.MAC{2, 0, 0, 0, 0, 1}}
	mac2 = wire.MAC{2, 0, 0, 0, 0, 2}
	mac3 = wire.MAC{2, 0, 0, 0, 0, 3}
)

// heardFrom is a whole round in which these stations answered.
func heardFrom(macs ...wire.MAC) wire.Result {
	r := wire.Result{Sent: true, Request: wire.Request{Kind: wire.Broadcast, VIP: vip}}
	for _, mac := range macs {
		r.Replies = append(r.Replies, wire.Reply{Frame: wire.Frame{SenderMAC: mac}, Solicited: true})
	}
	return r
}

func announcement(ip netip.Addr, mac wire.MAC) wire.Frame {
	return wire.Frame{Interface: "eth0", Op: wire.OpReply, EthDst: wire.BroadcastMAC, SenderMAC: mac, SenderIP: ip, TargetMAC: mac, TargetIP: ip}
}

func watching() (*view, *time.Time) {
	now := time.Unix(1000, 0)
	v := newView(func() time.Time { return now })
	v.watch([]netip.Addr{vip})
	v.listen([]string{"eth0"})
	return v, &now
}

func TestTheOwnerIsWhoWasSeenAnswering(t *testing.T) {
	self := heardFrom()
	self.Outgoing = []wire.Frame{{}}
	both := heardFrom(mac2)
	both.Outgoing = []wire.Frame{{}}
	lossy, lossyMany := heardFrom(mac2), heardFrom(mac2, mac3)
	lossy.Dropped, lossyMany.Truncated = 1, true
	question := heardFrom(mac2)
	question.Request.Kind = wire.AnnouncerQuestion
	for name, tt := range map[string]struct {
		results    []wire.Result
		owner      string
		responders int
		known      bool
	}{
		"nobody":                 {[]wire.Result{heardFrom()}, ownerNone, 0, true},
		"one":                    {[]wire.Result{heardFrom(mac2)}, ownerOther, 1, true},
		"one, twice":             {[]wire.Result{heardFrom(mac2, mac2), heardFrom(mac2)}, ownerOther, 1, true},
		"two":                    {[]wire.Result{heardFrom(mac2), heardFrom(mac3)}, ownerSeveral, 2, true},
		"this node":              {[]wire.Result{self}, ownerSelf, 0, true},
		"this node and another":  {[]wire.Result{both}, ownerSeveral, 1, true},
		"not sent":               {[]wire.Result{{SendError: "x"}}, ownerUnknown, 0, false},
		"frames lost, one heard": {[]wire.Result{lossy}, ownerUnknown, 1, false},
		"frames lost, two heard": {[]wire.Result{lossyMany}, ownerSeveral, 2, false},
		"asked one station only": {[]wire.Result{question}, ownerUnknown, 0, false},
		"no round at all":        {nil, ownerUnknown, 0, false},
	} {
		v, _ := watching()
		v.round(eth0, vip, tt.results)
		owner, responders, known := v.owner(place{vip, "eth0"})
		if owner != tt.owner || known != tt.known || known && responders != tt.responders {
			t.Errorf("%s: %s, %d responders (known %v), want %s, %d, %v", name, owner, responders, known, tt.owner, tt.responders, tt.known)
		}
	}
}

func TestAnAnnouncementIsAHintAndNeverAnOwner(t *testing.T) {
	v, _ := watching()
	v.round(eth0, vip, []wire.Result{heardFrom(mac2)})
	if v.frame(announcement(vip, mac2)) {
		t.Error("the responder announcing itself is news")
	}
	if !v.frame(announcement(vip, mac3)) {
		t.Error("another station announcing the VIP is no news")
	}
	if owner, _, _ := v.owner(place{vip, "eth0"}); owner != ownerUnknown {
		t.Errorf("owner %s after another announced it", owner)
	}
	for range 3 {
		if v.frame(announcement(vip, wire.MAC{2, 9})) {
			t.Error("told again before anybody looked")
		}
	}
	v.round(eth0, vip, []wire.Result{heardFrom(mac3)})
	if owner, _, _ := v.owner(place{vip, "eth0"}); owner != ownerOther {
		t.Errorf("owner %s after the next round", owner)
	}
}

func TestOrdinaryFramesAreNoNews(t *testing.T) {
	v, _ := watching()
	reply := wire.Frame{Interface: "eth0", Op: wire.OpReply, EthDst: eth0.MAC, SenderMAC: mac2, SenderIP: vip, TargetMAC: eth0.MAC, TargetIP: netip.MustParseAddr("192.0.2.11")}
	own := announcement(vip, eth0.MAC)
	own.Direction = wire.Outgoing
	for _, f := range []wire.Frame{reply, own} {
		if v.frame(f) {
			t.Errorf("news: %+v", f)
		}
	}
}

func TestARoundGrowsOld(t *testing.T) {
	v, now := watching()
	v.round(eth0, vip, []wire.Result{heardFrom(mac2)})
	*now = now.Add(viewAge)
	if owner, _, _ := v.owner(place{vip, "eth0"}); owner != ownerOther {
		t.Errorf("owner %s at the age limit", owner)
	}
	*now = now.Add(1)
	if owner, _, known := v.owner(place{vip, "eth0"}); owner != ownerUnknown || known {
		t.Errorf("owner %s, known %v beyond the age limit", owner, known)
	}
}

func TestACaptureShowsThisNodeAnswering(t *testing.T) {
	v, _ := watching()
	v.capture(eth0, vip, []wire.Frame{{}}) // no round yet: says nothing
	if owner, _, _ := v.owner(place{vip, "eth0"}); owner != ownerUnknown {
		t.Errorf("owner %s", owner)
	}
	v.round(eth0, vip, []wire.Result{heardFrom()})
	v.capture(eth0, vip, nil)
	if owner, _, _ := v.owner(place{vip, "eth0"}); owner != ownerNone {
		t.Errorf("owner %s after a capture of nothing", owner)
	}
	v.capture(eth0, vip, []wire.Frame{{}})
	if owner, _, _ := v.owner(place{vip, "eth0"}); owner != ownerSelf {
		t.Errorf("owner %s", owner)
	}
}

// TestNothingTheLANSendsMakesASeries: entries are for watched VIPs on our NICs.
func TestNothingTheLANSendsMakesASeries(t *testing.T) {
	v, _ := watching()
	for i := range 1000 {
		other := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		v.frame(announcement(other, mac2))
		v.round(eth0, other, []wire.Result{heardFrom(mac2)})
		v.round(wire.NIC{Name: "eth9"}, vip, []wire.Result{heardFrom(mac2)})
		v.frame(announcement(vip, wire.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)}))
	}
	if len(v.seen) != 1 || len(v.places()) != 1 {
		t.Errorf("%d entries, %d places", len(v.seen), len(v.places()))
	}
	v.watch(nil)
	if len(v.seen) != 0 || len(v.places()) != 0 {
		t.Errorf("kept after nothing is watched: %v", v.seen)
	}
}
