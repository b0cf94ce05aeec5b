// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vipmove/vipmove/agent/wire"
)

// Who answers for a VIP as this node sees it: values of the label owner. A MAC
// is no label, since this node does not know which MACs are nodes.
const (
	ownerSelf    = "self"    // this node was seen answering, and nobody else was
	ownerOther   = "other"   // one other station answered
	ownerSeveral = "several" // more than one station did, this node included
	ownerNone    = "none"    // a whole round was heard, and nobody was seen answering
	ownerUnknown = "unknown" // no round lately, not a whole one, or news since
)

var owners = []string{ownerSelf, ownerOther, ownerSeveral, ownerNone, ownerUnknown}

// viewAge is how long a round says something: the coordinator asks again well
// within that while it watches.
const viewAge = 10 * time.Minute

// sight is what a node saw last of one VIP on one NIC.
type sight struct {
	at     time.Time
	whole  bool       // the round was heard to its end
	others []wire.MAC // other stations that answered
	self   bool       // our own answer was seen leaving
	news   bool       // somebody else announced the VIP since
}

// place is a VIP on a NIC.
type place struct {
	vip netip.Addr
	nic string
}

// view is this node's own idea of who answers, for its metrics. It has an
// entry for watched VIPs on NICs that are listened on, and for nothing else,
// so it is bounded whatever the LAN sends. Safe for concurrent use.
type view struct {
	now func() time.Time

	mu   sync.Mutex
	vips []netip.Addr
	nics []string
	seen map[place]sight
}

func newView(now func() time.Time) *view { return &view{now: now, seen: map[place]sight{}} }

// watch sets the VIPs that may have entries, and forgets the others.
func (v *view) watch(vips []netip.Addr) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.vips = slices.Clone(vips)
	v.prune()
}

// listen sets the NICs that may have entries, and forgets the others.
func (v *view) listen(nics []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.nics = slices.Clone(nics)
	v.prune()
}

func (v *view) prune() {
	for p := range v.seen {
		if !v.shows(p) {
			delete(v.seen, p)
		}
	}
}

func (v *view) shows(p place) bool {
	return slices.Contains(v.vips, p.vip) && slices.Contains(v.nics, p.nic)
}

// round takes in a probe round. Only requests to everyone tell who answers.
func (v *view) round(nic wire.NIC, vip netip.Addr, results []wire.Result) {
	now := sight{at: v.now()}
	for _, r := range results {
		if r.Request.Kind != wire.Broadcast && r.Request.Kind != wire.ZeroSender {
			continue
		}
		now.whole = now.whole || r.Complete()
		now.self = now.self || len(r.Outgoing) > 0
		for _, reply := range r.Replies {
			if !slices.Contains(now.others, reply.SenderMAC) {
				now.others = append(now.others, reply.SenderMAC)
			}
		}
	}
	p := place{vip, nic.Name}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shows(p) && (now.whole || len(now.others) > 0) {
		v.seen[p] = now
	}
}

// capture takes in that this node was seen answering.
func (v *view) capture(nic wire.NIC, vip netip.Addr, own []wire.Frame) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := place{vip, nic.Name}
	if s, ok := v.seen[p]; ok && len(own) > 0 {
		s.self = true
		v.seen[p] = s
	}
}

// frame takes in what the standing watch heard. An announcement by a station
// that did not answer the last round is news: who answers is open again, until
// the next round. It reports whether it is news, once.
func (v *view) frame(f wire.Frame) bool {
	if announced, _ := f.Announcement(); !announced || f.Direction != wire.Incoming {
		return false
	}
	p := place{f.SenderIP, f.Interface}
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := v.seen[p]
	if !v.shows(p) || s.news || ok && slices.Contains(s.others, f.SenderMAC) {
		return false
	}
	s.news = true
	v.seen[p] = s
	return true
}

// owner is the label value, and how many other stations answered; known is
// false where that number says nothing.
func (v *view) owner(p place) (owner string, responders int, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := v.seen[p]
	if !ok || s.at.IsZero() || v.now().Sub(s.at) > viewAge {
		return ownerUnknown, 0, false
	}
	n := len(s.others)
	switch {
	case s.news:
		return ownerUnknown, n, s.whole
	case n > 1, n == 1 && s.self:
		return ownerSeveral, n, s.whole
	case !s.whole:
		return ownerUnknown, n, false
	case n == 1:
		return ownerOther, n, true
	case s.self:
		return ownerSelf, n, true
	}
	return ownerNone, n, true
}

// places lists every VIP on every NIC.
func (v *view) places() []place {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []place
	for _, vip := range v.vips {
		for _, nic := range v.nics {
			all = append(all, place{vip, nic})
		}
	}
	return all
}
