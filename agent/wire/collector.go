// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/netip"
	"slices"
	"time"
)

// collector sorts the frames of a round into the results of the requests in
// flight. It knows no clock and does no I/O: a frame belongs to a window by its
// own time. Not safe for concurrent use.
type collector struct {
	own     MAC
	results []Result
	flying  []int // results whose window can still be open

	replies, unsolicited, outgoing int // kept so far in this round
	fromOne                        map[oneAnswerer]int
}

// oneAnswerer is a station answering one request.
type oneAnswerer struct {
	result int
	mac    MAC
}

func newCollector(own MAC, requests []Request) *collector {
	c := &collector{own: own, results: make([]Result, len(requests)), fromOne: map[oneAnswerer]int{}}
	for i, r := range requests {
		if r.Window == 0 {
			r.Window = DefaultWindow
		}
		c.results[i].Request = r
	}
	return c
}

// launch opens the window of a request; before it is sent, so that no answer
// can be early.
func (c *collector) launch(i int, at time.Time) {
	c.results[i].SentAt = at
	c.flying = append(c.flying, i)
}

// end is when the last window of what was sent is over; zero when nothing was.
func (c *collector) end() time.Time {
	var end time.Time
	for _, i := range c.flying {
		r := &c.results[i]
		if closes := r.SentAt.Add(r.Request.Window); r.Sent && closes.After(end) {
			end = closes
		}
	}
	return end
}

// land closes the windows of all requests in flight, whose frames have been
// taken.
func (c *collector) land(dropped uint32, listenError string) {
	for _, i := range c.flying {
		c.results[i].Dropped += dropped
		if c.results[i].ListenError == "" {
			c.results[i].ListenError = listenError
		}
	}
	c.flying = c.flying[:0]
}

// take files one frame. When it is kept as a reply, heard returns which of the
// requests it was filed under, with the reply.
func (c *collector) take(f Frame) (reply Reply, request int, heard bool) {
	open := c.open(f.At)
	if len(open) == 0 {
		return Reply{}, 0, false
	}
	if f.VLAN != 0 {
		c.each(open, f, func(r *Result) { r.OtherVLAN++ })
		return Reply{}, 0, false
	}
	if f.Direction == Outgoing {
		c.takeOutgoing(open, f)
		return Reply{}, 0, false
	}
	if f.Op == OpRequest && f.EthDst == BroadcastMAC && f.SenderMAC != c.own {
		c.hear(open, f.SenderMAC)
	}
	about := c.claimants(open, f.SenderIP)
	if len(about) == 0 {
		return Reply{}, 0, false
	}
	if i, solicited, ok := c.answered(about, f); ok {
		reply = Reply{Frame: f, After: f.At.Sub(c.results[i].SentAt), Solicited: solicited}
		return reply, i, c.keepReply(i, reply)
	}
	c.keepHint(&c.results[about[0]].Unsolicited, about[0], f, &c.unsolicited)
	return Reply{}, 0, false
}

// open returns the requests in flight whose window the time is in.
func (c *collector) open(at time.Time) []int {
	var open []int
	for _, i := range c.flying {
		r := &c.results[i]
		if !at.Before(r.SentAt) && at.Sub(r.SentAt) <= r.Request.Window {
			open = append(open, i)
		}
	}
	return open
}

// claimants returns those of the open requests that ask for vip; one that is
// broadcast with an ordinary sender first.
func (c *collector) claimants(open []int, vip netip.Addr) []int {
	var about []int
	for _, i := range open {
		switch r := c.results[i].Request; {
		case r.VIP != vip:
		case r.Kind == Broadcast:
			about = slices.Insert(about, 0, i)
		default:
			about = append(about, i)
		}
	}
	return about
}

// answered finds the request that a frame about its VIP replies to. At most
// one can have solicited it: others would collide.
func (c *collector) answered(about []int, f Frame) (i int, solicited, ok bool) {
	if f.Op != OpReply || f.EthDst != c.own && f.EthDst != BroadcastMAC {
		return 0, false, false
	}
	announcement, _ := f.Announcement()
	for _, i := range about {
		r := c.results[i].Request
		asked := r.toEveryone() || r.TargetMAC == f.SenderMAC || r.TargetMAC == f.EthSrc
		if asked && f.TargetIP == r.sender() && !announcement {
			return i, true, true
		}
	}
	if c.results[about[0]].Request.Kind == Broadcast {
		return about[0], false, true
	}
	return 0, false, false
}

// takeOutgoing files what this host itself sent.
func (c *collector) takeOutgoing(open []int, f Frame) {
	if f.Op == OpRequest {
		for _, i := range c.claimants(open, f.TargetIP) {
			c.results[i].OwnRequests++
		}
		return
	}
	if about := c.claimants(open, f.SenderIP); len(about) > 0 {
		c.keepHint(&c.results[about[0]].Outgoing, about[0], f, &c.outgoing)
	}
}

func (c *collector) hear(open []int, mac MAC) {
	for _, i := range open {
		r := &c.results[i]
		switch {
		case slices.Contains(r.Heard, mac):
		case len(r.Heard) < maxHeard:
			r.Heard = append(r.Heard, mac)
		default:
			r.overflow()
		}
	}
}

func (c *collector) keepReply(i int, reply Reply) bool {
	r := &c.results[i]
	who := oneAnswerer{i, reply.SenderMAC}
	if c.replies >= maxReplies || c.fromOne[who] >= maxFromOne {
		r.overflow()
		return false
	}
	c.fromOne[who]++
	c.replies++
	r.Replies = append(r.Replies, reply)
	return true
}

func (c *collector) keepHint(list *[]Frame, i int, f Frame, kept *int) {
	if *kept >= maxHints {
		c.results[i].overflow()
		return
	}
	*kept++
	*list = append(*list, f)
}

// each calls fn for the open requests that the frame is about.
func (c *collector) each(open []int, f Frame, fn func(*Result)) {
	for _, i := range open {
		if f.about(c.results[i].Request.VIP) {
			fn(&c.results[i])
		}
	}
}

func (r *Result) overflow() {
	r.Truncated = true
	r.Overflow++
}
