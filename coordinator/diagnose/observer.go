// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// observer is what one observer asked and heard. Only solicited replies for the VIP are in it.
type observer struct {
	name, nic string
	role      Role
	node      *Node // nil where the rounds name an observer that the snapshot does not
	state     ObserverState
	detail    string
	ordinary  int                     // broadcast and zero-sender requests that left
	replies   map[string]int          // by MAC, to ordinary requests
	pairs     map[string]int          // by MAC: broadcast requests that got two replies or more from it
	broadcast int                     // broadcast requests that left and lost no frame
	zero      int                     // zero-sender requests that left and lost no frame
	senders   map[netip.Addr]int      // of broadcast requests, with their number
	asked     map[string]bool         // MACs that the announcer question was put to
	answered  map[string]bool         // MACs that answered it
	announced map[string]bool         // MACs that spoke for the VIP unasked
	fastest   map[string]responseTime // by MAC
	most      map[string]int          // by MAC: most replies to one request
	heard     bool                    // a frame came in at all
	tested    bool                    // others broadcast while it listened
	remained  map[string]remained     // by MAC that was asked with its kernel mute
	lost      bool                    // frames were dropped or cut off in some round
	sent      int
	errors    []string
}

type responseTime struct {
	after time.Duration
	known bool
}

func newObserver(name string, n *Node) *observer {
	o := &observer{name: name, node: n, replies: map[string]int{}, pairs: map[string]int{}, senders: map[netip.Addr]int{},
		asked: map[string]bool{}, answered: map[string]bool{}, announced: map[string]bool{}, fastest: map[string]responseTime{},
		most: map[string]int{}, remained: map[string]remained{}}
	if n != nil {
		o.role = n.Role
	}
	return o
}

// take counts one round of this observer.
func (o *observer) take(r Round, vip netip.Addr, faces map[string]*frames) {
	if r.Muted { // an experiment: no part of who answers as things are
		o.takeMuted(r, vip)
		return
	}
	if r.SendError != "" {
		o.errors = append(o.errors, r.SendError)
	}
	o.tested = o.tested || r.HearingExpected
	o.heard = o.heard || len(r.Heard) > 0
	byMAC := map[string]int{}
	for _, p := range r.Replies {
		if p.VLAN != 0 {
			continue // a socket sees frames of VLANs on top of its NIC too; their own links answer for those
		}
		o.heard = true
		if p.SenderIP.Unmap() != vip || p.SenderMAC == "" {
			continue // keyed by the sender protocol address and nothing else
		}
		mac := strings.ToLower(p.SenderMAC)
		byMAC[mac]++
		o.timed(mac, p.After)
		f := faces[mac]
		if f == nil {
			f = &frames{}
			faces[mac] = f
		}
		f.take(mac, strings.ToLower(p.EthSource))
		if r.Kind == Broadcast || r.Kind == ZeroSender {
			f.senders = appendNew(f.senders, r.SenderIP)
		}
	}
	for _, p := range r.Unsolicited {
		if p.SenderIP.Unmap() == vip && p.SenderMAC != "" && p.VLAN == 0 {
			o.announced[strings.ToLower(p.SenderMAC)] = true
		}
	}
	whole := r.Sent && r.SendError == "" && r.Dropped == 0 && !r.Truncated
	o.lost = o.lost || r.Sent && (r.Dropped > 0 || r.Truncated)
	if r.Sent {
		o.sent++
	}
	switch r.Kind {
	case AnnouncerQuestion:
		if r.Sent && r.TargetMAC != "" {
			o.asked[strings.ToLower(r.TargetMAC)] = o.asked[strings.ToLower(r.TargetMAC)] || whole
		}
		for mac := range byMAC {
			o.answered[mac] = true
		}
	case Broadcast, ZeroSender:
		o.takeOrdinary(r, byMAC, whole)
	}
}

func (o *observer) takeOrdinary(r Round, byMAC map[string]int, whole bool) {
	if r.Sent {
		o.ordinary++
	}
	for mac, n := range byMAC {
		o.replies[mac] += n
		o.most[mac] = max(o.most[mac], n)
		if r.Kind == Broadcast && n >= 2 {
			o.pairs[mac]++
		}
	}
	switch {
	case r.Kind == ZeroSender && whole:
		o.zero++
	case r.Kind == Broadcast && whole:
		o.broadcast++
	}
	if r.Kind == Broadcast && r.Sent {
		o.senders[r.SenderIP]++
	}
}

func (o *observer) timed(mac string, after time.Duration) {
	if t := o.fastest[mac]; !t.known || after < t.after {
		o.fastest[mac] = responseTime{after: after, known: true}
	}
}

// frames is how a MAC's replies looked on the wire.
type frames struct {
	consistent bool // some reply left from the MAC that it names
	sources    []string
	senders    []netip.Addr // that asked and were answered by it
}

func (f *frames) take(mac, source string) {
	if source == "" || source == mac {
		f.consistent = true
		return
	}
	f.sources = appendNew(f.sources, source)
}

func appendNew[T comparable](list []T, v T) []T {
	if slices.Contains(list, v) {
		return list
	}
	return append(list, v)
}

// conclude says what the observer's silence is worth.
func (o *observer) conclude() {
	switch {
	case o.sent == 0 && len(o.errors) > 0:
		slices.Sort(o.errors)
		o.state, o.detail = ObserverCannotProbe, o.errors[0]
	case o.sent == 0 && o.node != nil && !o.node.Connected:
		o.state, o.detail = ObserverAway, "not connected"
	case o.sent == 0:
		o.state, o.detail = ObserverIdle, "was not asked to look at this segment"
	case o.heard:
		o.state = ObserverHears
	case o.tested:
		o.state, o.detail = ObserverBlind, "heard nothing while others broadcast: its silence is unknown, not evidence"
	default:
		o.state, o.detail = ObserverBlind, "heard nothing, and nobody else broadcast: nothing shows that it can hear"
	}
}

// vouches tells whether this observer's silence about a MAC is evidence: it hears, lost no frame,
// and asked so that a kernel answers: from an address on the segment, or both with its own and 0.0.0.0.
func (o *observer) vouches(seg Segment) bool {
	if o.state != ObserverHears || o.broadcast == 0 {
		return false
	}
	return o.zero > 0 || o.onLink(seg)
}

func (o *observer) onLink(seg Segment) bool {
	for sender := range o.senders {
		if seg.Prefix.IsValid() && sender.IsValid() && seg.Prefix.Contains(sender) {
			return true
		}
	}
	return false
}

// caveat says why an observer that hears cannot vouch for silence.
func (o *observer) caveat(seg Segment) string {
	switch {
	case o.state != ObserverHears || o.vouches(seg):
		return ""
	case o.broadcast == 0 && o.lost:
		return "lost frames in every round: what it did not hear is unknown"
	case o.broadcast == 0:
		return "sent no broadcast request: what it did not hear is unknown"
	}
	return fmt.Sprintf("asked from outside %s without a 0.0.0.0 probe: what it did not hear is unknown", seg.Prefix)
}
