// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vipmove/vipmove/agent/wire"
)

var (
	m2 = wire.MAC{2, 0, 0, 0, 0, 2}
	m3 = wire.MAC{2, 0, 0, 0, 0, 3}
)

func replyOf(mac wire.MAC, solicited bool) wire.Reply {
	return wire.Reply{Frame: wire.Frame{SenderMAC: mac, EthSrc: mac, SenderIP: vip, At: time.Unix(10, 0)}, Solicited: solicited}
}

// TestOnlyAnswersToThisVeryRequestCountTwice: two replies of one MAC prove an
// announcer beside a kernel, so nothing else may look like that.
func TestOnlyAnswersToThisVeryRequestCountTwice(t *testing.T) {
	for _, tt := range []struct {
		name        string
		replies     []wire.Reply
		own         int
		unsolicited []wire.Frame
		answers     []wire.MAC
		hints       []wire.MAC
	}{
		{name: "kernel and announcer", replies: []wire.Reply{replyOf(m2, true), replyOf(m2, true), replyOf(m3, true)},
			answers: []wire.MAC{m2, m2, m3}},
		{name: "an announcement beside an answer", replies: []wire.Reply{replyOf(m2, false), replyOf(m2, true)},
			answers: []wire.MAC{m2}, hints: []wire.MAC{m2}},
		{name: "broadcast replies alone still tell who (C23)", replies: []wire.Reply{replyOf(m2, false), replyOf(m2, false), replyOf(m3, true)},
			answers: []wire.MAC{m3, m2}, hints: []wire.MAC{m2}},
		{name: "our own kernel asked too", own: 1, replies: []wire.Reply{replyOf(m2, true), replyOf(m2, true), replyOf(m3, true)},
			answers: []wire.MAC{m2, m3}, hints: []wire.MAC{m2}},
		{name: "hints stay hints", unsolicited: []wire.Frame{replyOf(m3, false).Frame}, hints: []wire.MAC{m3}},
	} {
		r := wire.Result{Replies: tt.replies, OwnRequests: tt.own, Unsolicited: tt.unsolicited, Request: wire.Request{VIP: vip}}
		answers, hints := split(r)
		var gotAnswers, gotHints []wire.MAC
		for _, a := range answers {
			gotAnswers = append(gotAnswers, a.SenderMAC)
		}
		for _, h := range hints {
			gotHints = append(gotHints, h.SenderMAC)
		}
		if diff := cmp.Diff(tt.answers, gotAnswers); diff != "" {
			t.Errorf("%s: answers (-want +got):\n%s", tt.name, diff)
		}
		if diff := cmp.Diff(tt.hints, gotHints); diff != "" {
			t.Errorf("%s: hints (-want +got):\n%s", tt.name, diff)
		}
		p := round("n1", "eth0", r)
		if len(p.GetReplies()) != len(tt.answers) || len(p.GetUnsolicited()) != len(tt.hints) {
			t.Errorf("%s: message %v", tt.name, p)
		}
	}
}

func TestAWindowThatWasNotHeardToItsEndSaysSo(t *testing.T) {
	for name, r := range map[string]wire.Result{
		"the NIC went down": {Sent: true, ListenError: "the NIC is down"},
		"frames were lost":  {Sent: true, Dropped: 3},
		"too many replies":  {Sent: true, Truncated: true},
		"not sent":          {SendError: "no buffer space available"},
	} {
		r.Request.VIP = vip
		p := round("n1", "eth0", r)
		if p.GetSent() && !p.GetTruncated() && p.GetDropped() == 0 && p.GetSendError() == "" {
			t.Errorf("%s: silence of %v would mean something", name, p)
		}
	}
	whole := round("n1", "eth0", wire.Result{Sent: true, Request: wire.Request{VIP: vip}})
	if whole.GetTruncated() || whole.GetSendError() != "" {
		t.Errorf("a whole one: %v", whole)
	}
}
