// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

var (
	everyone  = Request{Kind: Broadcast, VIP: vip, Sender: own}
	probe     = Request{Kind: ZeroSender, VIP: vip}
	question2 = Request{Kind: AnnouncerQuestion, VIP: vip, TargetMAC: m2}
	question3 = Request{Kind: AnnouncerQuestion, VIP: vip, TargetMAC: m3}
	only2     = Request{Kind: Unicast, VIP: vip, Sender: own, TargetMAC: m2}
)

// inFlight are requests sent at start by M1.
func inFlight(requests ...Request) *collector {
	c := newCollector(m1, requests)
	for i := range requests {
		c.launch(i, start)
		c.results[i].Sent = true
	}
	return c
}

func answer(from MAC, f func(*Frame)) Frame {
	a := Frame{At: start.Add(time.Millisecond), EthSrc: from, EthDst: m1, Op: OpReply, SenderMAC: from, SenderIP: vip, TargetMAC: m1, TargetIP: own}
	if f != nil {
		f(&a)
	}
	return a
}

// picture says in one line what a result holds.
func picture(r Result) string {
	var parts []string
	for _, reply := range r.Replies {
		mark := "?"
		if reply.Solicited {
			mark = "!"
		}
		parts = append(parts, "reply"+mark+fmt.Sprint(reply.SenderMAC[5]))
	}
	for _, f := range r.Unsolicited {
		parts = append(parts, fmt.Sprint("hint", f.SenderMAC[5]))
	}
	for _, f := range r.Outgoing {
		parts = append(parts, fmt.Sprint("sent to ", f.TargetIP))
	}
	for _, m := range r.Heard {
		parts = append(parts, fmt.Sprint("heard", m[5]))
	}
	if r.OwnRequests > 0 {
		parts = append(parts, fmt.Sprint("asked itself ", r.OwnRequests))
	}
	if r.OtherVLAN > 0 {
		parts = append(parts, fmt.Sprint("other VLAN ", r.OtherVLAN))
	}
	return strings.Join(parts, ", ")
}

func TestFramesAreFiledUnderTheRequestTheyAnswer(t *testing.T) {
	toZero := func(f *Frame) { f.TargetIP = zero }
	toMartian := func(f *Frame) { f.TargetIP = martian }
	tests := []struct {
		name     string
		inFlight []Request
		frames   []Frame
		want     []string
	}{
		{"two stations answer: two replies", []Request{everyone},
			[]Frame{answer(m2, nil), answer(m3, nil)}, []string{"reply!2, reply!3"}},
		{"kernel and announcer of one node: two replies of one MAC", []Request{everyone},
			[]Frame{answer(m3, nil), answer(m2, nil), answer(m3, nil)}, []string{"reply!3, reply!2, reply!3"}},
		{"replies are told apart by the sender they go back to", []Request{everyone, probe, question2, question3},
			[]Frame{answer(m2, nil), answer(m2, toZero), answer(m3, toZero), answer(m3, toMartian)},
			[]string{"reply!2", "reply!2, reply!3", "", "reply!3"}},
		{"a question is answered by the one that was asked", []Request{question2, question3},
			[]Frame{answer(m2, toMartian), answer(m3, toMartian), answer(mac("02:00:00:00:00:09"), toMartian)},
			[]string{"reply!2, hint9", "reply!3"}},
		{"an ordinary answer is none to the question", []Request{question2},
			[]Frame{answer(m2, nil)}, []string{"hint2"}},
		{"a late answer to a broadcast is none to the unicast request of another", []Request{only2},
			[]Frame{answer(m2, nil), answer(m3, nil)}, []string{"reply!2, hint3"}},
		{"the one that was asked answers with another sender MAC", []Request{question2},
			[]Frame{answer(m2, func(f *Frame) { toMartian(f); f.SenderMAC = m3 })}, []string{"reply!3"}},
		{"a reply to a third station is a hint", []Request{everyone},
			[]Frame{answer(m2, func(f *Frame) { f.EthDst, f.PacketType = m3, PacketOtherHost })}, []string{"hint2"}},
		{"a reply to us with odd target fields counts and is not solicited (RFC 826)", []Request{everyone, question2},
			[]Frame{answer(m2, func(f *Frame) { f.TargetIP, f.TargetMAC = other, m3 })}, []string{"reply?2", ""}},
		{"a broadcast reply counts and is not solicited (C23)", []Request{probe, everyone},
			[]Frame{answer(m2, func(f *Frame) { f.EthDst, f.TargetMAC, f.TargetIP = ff, ff, vip })}, []string{"", "reply?2"}},
		{"a broadcast answer to our probe is solicited (RFC 5227)", []Request{probe},
			[]Frame{answer(m2, func(f *Frame) { toZero(f); f.EthDst = ff })}, []string{"reply!2"}},
		{"an announcement to 0.0.0.0 does not answer the probe (C26)", []Request{probe},
			[]Frame{answer(m2, func(f *Frame) { f.EthDst, f.TargetMAC, f.TargetIP = ff, ff, zero })}, []string{"hint2"}},
		{"an announcement in request form is a hint, and heard", []Request{everyone},
			[]Frame{answer(m2, func(f *Frame) { f.Op, f.EthDst, f.TargetMAC, f.TargetIP = OpRequest, ff, z, vip })}, []string{"hint2, heard2"}},
		{"a claim belongs to its sender address", []Request{everyone},
			[]Frame{answer(m2, func(f *Frame) { f.SenderIP, f.TargetIP = other, vip })}, []string{""}},
		{"our own outgoing reply to the router is no answer (C23)", []Request{everyone},
			[]Frame{answer(m1, func(f *Frame) {
				f.Direction, f.EthDst, f.TargetMAC, f.TargetIP = Outgoing, m3, m3, addrs("192.0.2.1")[0]
			})},
			[]string{"sent to 192.0.2.1"}},
		{"our own outgoing reply to ourselves is no answer either", []Request{everyone},
			[]Frame{answer(m1, func(f *Frame) { f.Direction = Outgoing })}, []string{"sent to 192.0.2.2"}},
		{"the host's own requests are counted", []Request{everyone, question2},
			[]Frame{answer(m1, func(f *Frame) {
				f.Direction, f.Op, f.EthDst, f.SenderIP, f.TargetIP = Outgoing, OpRequest, m2, own, vip
			})},
			[]string{"asked itself 1", "asked itself 1"}},
		{"others' broadcast requests are heard once a sender", []Request{everyone, probe},
			[]Frame{
				answer(m3, func(f *Frame) { f.Op, f.EthDst, f.SenderIP, f.TargetIP = OpRequest, ff, other, vip }),
				answer(m3, func(f *Frame) { f.Op, f.EthDst, f.SenderIP, f.TargetIP = OpRequest, ff, other, own }),
				answer(m2, func(f *Frame) { f.Op, f.SenderIP, f.TargetIP = OpRequest, other, vip }), // unicast
				answer(m1, func(f *Frame) { f.Op, f.EthDst, f.SenderIP, f.TargetIP = OpRequest, ff, own, vip }),
			}, []string{"heard3", "heard3"}},
		{"another VLAN is another segment (C24)", []Request{everyone},
			[]Frame{answer(m2, func(f *Frame) { f.VLAN = 217 })}, []string{"other VLAN 1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := inFlight(tt.inFlight...)
			for _, f := range tt.frames {
				c.take(f)
			}
			var got []string
			for _, r := range c.results {
				got = append(got, picture(r))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAReplyBelongsToAWindowByItsOwnTime(t *testing.T) {
	for _, tt := range []struct {
		at   time.Duration
		want string
	}{
		{-time.Nanosecond, ""},
		{0, "reply!2"},
		{800 * time.Millisecond, "reply!2"}, // proxy ARP
		{DefaultWindow, "reply!2"},
		{DefaultWindow + time.Nanosecond, ""},
	} {
		c := inFlight(everyone)
		reply, _, heard := c.take(answer(m2, func(f *Frame) { f.At = start.Add(tt.at) }))
		if got := picture(c.results[0]); got != tt.want {
			t.Errorf("after %v: %q, want %q", tt.at, got, tt.want)
		}
		if heard != (tt.want != "") || heard && reply.After != tt.at {
			t.Errorf("after %v: heard %v after %v", tt.at, heard, reply.After)
		}
	}
}

func TestWindowsAreClosedByLanding(t *testing.T) {
	c := inFlight(everyone)
	c.land(3, "cut short")
	c.take(answer(m2, nil))
	r := c.results[0]
	if picture(r) != "" || r.Dropped != 3 || r.ListenError != "cut short" || r.Complete() {
		t.Errorf("got %+v", r)
	}
}

// Bounded memory, whatever arrives: what is kept and what is only counted adds
// up to what came.
func TestListsAreBoundedAndTheRestIsCounted(t *testing.T) {
	const flood = 20000
	from := func(i int) MAC {
		m := m2
		binary.BigEndian.PutUint32(m[1:], uint32(i))
		return m
	}
	tests := []struct {
		name  string
		frame func(i int) Frame
		list  func(Result) int
		limit int
	}{
		{"replies of many MACs", func(i int) Frame { return answer(from(i), nil) },
			func(r Result) int { return len(r.Replies) }, maxReplies},
		{"replies of one MAC", func(int) Frame { return answer(m2, nil) },
			func(r Result) int { return len(r.Replies) }, maxFromOne},
		{"hints", func(i int) Frame { return answer(from(i), func(f *Frame) { f.EthDst = m3 }) },
			func(r Result) int { return len(r.Unsolicited) }, maxHints},
		{"own replies", func(int) Frame { return answer(m1, func(f *Frame) { f.Direction = Outgoing }) },
			func(r Result) int { return len(r.Outgoing) }, maxHints},
		{"requests", func(i int) Frame {
			return answer(from(i), func(f *Frame) { f.Op, f.EthDst, f.SenderIP, f.TargetIP = OpRequest, ff, other, vip })
		}, func(r Result) int { return len(r.Heard) }, maxHeard},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := inFlight(everyone)
			heard := 0
			for i := range flood {
				if _, _, ok := c.take(tt.frame(i)); ok {
					heard++
				}
			}
			r := c.results[0]
			kept := tt.list(r)
			if kept != tt.limit || kept+r.Overflow != flood || !r.Truncated || r.Complete() {
				t.Errorf("kept %d, overflow %d, truncated %v", kept, r.Overflow, r.Truncated)
			}
			if len(c.fromOne) > maxReplies || heard != len(r.Replies) {
				t.Errorf("%d senders counted, %d replies shown of %d", len(c.fromOne), heard, len(r.Replies))
			}
		})
	}
}

func TestOneMACThatFloodsDoesNotCrowdOutTheOthers(t *testing.T) {
	c := inFlight(everyone)
	for range 2 * maxReplies {
		c.take(answer(m2, nil))
	}
	c.take(answer(m3, nil))
	if r := c.results[0]; r.Replies[len(r.Replies)-1].SenderMAC != m3 || !r.Truncated {
		t.Errorf("last reply %+v", r.Replies[len(r.Replies)-1])
	}
}

func TestAnswersAreTheSolicitedReplies(t *testing.T) {
	c := inFlight(everyone)
	c.take(answer(m2, func(f *Frame) { f.TargetIP = other }))
	c.take(answer(m3, nil))
	if got := c.results[0].Answers(); len(got) != 1 || got[0].SenderMAC != m3 {
		t.Errorf("got %+v", got)
	}
}
