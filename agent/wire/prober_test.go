// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The story's first scene: seven nodes with the stale address, each of which
// answers; an observer that holds it too does not hear itself.
func TestAllSevenNodesThatHoldTheVIPAreHeardByMAC(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w world) {
		client := w.join(t, 2)
		var nodes []host
		for last := byte(11); last <= 17; last++ {
			n := w.join(t, last)
			n.hold(t, vip)
			nodes = append(nodes, n)
		}
		var shown []MAC
		show := OnReply(func(request int, r Reply) {
			if request != 0 || !r.Solicited {
				t.Errorf("shown: request %d, %+v", request, r)
			}
			shown = append(shown, r.SenderMAC)
		})
		q := Request{Kind: Broadcast, VIP: vip, Sender: client.addr(), Window: w.window()}
		r := ask(t, client, prober(client), []Request{q}, show)[0]
		if diff := cmp.Diff(once(nodes...), tally(t, client, r)); diff != "" {
			t.Errorf("heard by the client (-want +got):\n%s", diff)
		}
		if len(shown) != 7 || len(r.Replies) != 7 {
			t.Errorf("shown as heard: %v of %d", shown, len(r.Replies))
		}

		q.Sender = nodes[0].addr()
		r = ask(t, nodes[0], prober(nodes[0]), []Request{q})[0]
		if diff := cmp.Diff(once(nodes[1:]...), tally(t, nodes[0], r)); diff != "" {
			t.Errorf("heard by the first node (-want +got):\n%s", diff)
		}
	})
}

// CASES fact 13 and 17: an announcer and its node's kernel are two replies, and
// the announcer question tells them apart before anything is removed.
func TestTheAnnouncerIsToldFromTheKernelsThatHoldTheAddress(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w world) {
		client, n1, n2, n3 := w.join(t, 2), w.join(t, 11), w.join(t, 12), w.join(t, 13)
		for _, n := range []host{n1, n2, n3} {
			n.hold(t, vip)
		}
		n3.announce(t, vip)
		to := func(k Kind, h host) Request {
			q := Request{Kind: k, VIP: vip, TargetMAC: h.nic().MAC, Window: w.window()}
			if k == Unicast {
				q.Sender = client.addr()
			}
			return q
		}
		all := Request{Kind: Broadcast, VIP: vip, Sender: client.addr(), Window: w.window()}
		probe := Request{Kind: ZeroSender, VIP: vip, Window: w.window()}
		requests := []Request{
			all, probe, to(AnnouncerQuestion, n1), to(AnnouncerQuestion, n2), to(AnnouncerQuestion, n3),
			to(Unicast, n1), to(Unicast, n3), // collide with all: the next wave
		}
		want := []map[MAC]int{
			{n1.nic().MAC: 1, n2.nic().MAC: 1, n3.nic().MAC: 2},
			{n1.nic().MAC: 1, n2.nic().MAC: 1, n3.nic().MAC: 2},
			{}, {}, {n3.nic().MAC: 1},
			{n1.nic().MAC: 1}, {n3.nic().MAC: 2},
		}
		p := prober(client)
		for _, opts := range [][]RoundOption{nil, {WithoutCapture()}} {
			for i, r := range ask(t, client, p, requests, opts...) {
				if diff := cmp.Diff(want[i], tally(t, client, r)); diff != "" {
					t.Errorf("%v of %v (-want +got):\n%s", r.Request.Kind, r.Request.TargetMAC, diff)
				}
				if len(r.Replies) != len(r.Answers()) || len(r.Unsolicited) != 0 {
					t.Errorf("%v: unsolicited %+v", r.Request.Kind, r)
				}
			}
		}
	})
}

func TestAnAnnouncerThatHoldsNothingIsTheOneResponder(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w world) {
		client, n3 := w.join(t, 2), w.join(t, 13)
		n3.announce(t, vip)
		r := ask(t, client, prober(client), []Request{
			{Kind: Broadcast, VIP: vip, Sender: client.addr(), Window: w.window()},
			{Kind: Broadcast, VIP: other, Sender: client.addr(), Window: w.window()},
		})
		if diff := cmp.Diff(once(n3), tally(t, client, r[0])); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if len(r[1].Replies) != 0 {
			t.Errorf("someone answers for %v: %+v", other, r[1].Replies)
		}
	})
}

// CASES fact 9: proxy ARP is late, and answers neither a probe nor a martian.
func TestTheWindowIsLongEnoughForProxyARP(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w world) {
		client, n1, n2 := w.join(t, 2), w.join(t, 11), w.join(t, 12)
		n1.hold(t, vip)
		n2.proxy(t, vip)
		r := ask(t, client, prober(client), []Request{
			{Kind: Broadcast, VIP: vip, Sender: client.addr()},
			{Kind: ZeroSender, VIP: vip},
			{Kind: AnnouncerQuestion, VIP: vip, TargetMAC: n2.nic().MAC},
		})
		want := []map[MAC]int{once(n1, n2), once(n1), {}}
		for i := range r {
			if diff := cmp.Diff(want[i], tally(t, client, r[i])); diff != "" {
				t.Errorf("%v (-want +got):\n%s", r[i].Request.Kind, diff)
			}
		}
	})
}

func TestANodesOwnRepliesAreEvidenceAndNoAnswer(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w world) {
		client, n1 := w.join(t, 2), w.join(t, 11)
		n1.hold(t, vip)
		// n1 is asked by the client while it asks itself, for longer.
		q := Request{Kind: Broadcast, VIP: vip, Sender: n1.addr(), Window: 3 * w.window()}
		nodeSees := begin(t, n1, prober(n1), []Request{q})
		q = Request{Kind: Broadcast, VIP: vip, Sender: client.addr(), Window: w.window()}
		clientSaw := ask(t, client, prober(client), []Request{q, q})
		nodeSaw := whole(t, await(t, nodeSees, "the node's round"))
		if diff := cmp.Diff(once(n1), tally(t, client, clientSaw[1])); diff != "" {
			t.Errorf("client (-want +got):\n%s", diff)
		}
		r := nodeSaw[0]
		if len(r.Replies) != 0 || len(r.Unsolicited) != 0 {
			t.Errorf("the node took its own answers for another's: %+v", r)
		}
		if len(r.Outgoing) == 0 {
			t.Fatal("the node has no evidence of its own answers")
		}
		for _, f := range r.Outgoing {
			if f.Direction != Outgoing || f.PacketType != PacketOutgoing || f.SenderMAC != n1.nic().MAC || f.TargetIP != client.addr() {
				t.Errorf("outgoing %+v", f)
			}
		}
		if len(r.Heard) != 1 || r.Heard[0] != client.nic().MAC {
			t.Errorf("the node heard requests of %v", r.Heard)
		}
		if r.OwnRequests != 0 {
			t.Errorf("the round's own request was taken for another's (%d)", r.OwnRequests)
		}
	})
}

// A witness sends real requests, for which its kernel resolves the VIP. The
// answers to that are no second answer to the probe: at least it is said.
func TestRequestsOfTheHostItselfAreCounted(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w world) {
		client, n1 := w.join(t, 2), w.join(t, 11)
		n1.hold(t, vip)
		kernels := bytesOf(t, Frame{EthSrc: client.nic().MAC, EthDst: ff, Op: OpRequest, SenderMAC: client.nic().MAC, SenderIP: client.addr(), TargetIP: vip}, 42)
		first := true
		r := ask(t, client, prober(client), []Request{{Kind: Broadcast, VIP: vip, Sender: client.addr(), Window: w.window()}},
			OnReply(func(int, Reply) {
				if first {
					first = false
					client.send(t, kernels)
				}
			}))[0]
		if r.OwnRequests != 1 || len(r.Replies) != 2 {
			t.Errorf("%d requests of our own, %d replies", r.OwnRequests, len(r.Replies))
		}
	})
}

func TestOddRepliesAreKeptApartFromAnswers(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w world) {
		client, n1, n2 := w.join(t, 2), w.join(t, 11), w.join(t, 12)
		n1.hold(t, vip)
		c, one, two := client.nic().MAC, n1.nic().MAC, n2.nic().MAC
		tagged := Frame{EthSrc: two, EthDst: c, VLAN: 217, Op: OpReply, SenderMAC: two, SenderIP: vip, TargetMAC: c, TargetIP: client.addr()}
		mismatched := Frame{EthSrc: two, EthDst: c, Op: OpReply, SenderMAC: m3, SenderIP: vip, TargetMAC: c, TargetIP: client.addr()}
		announced := Frame{EthSrc: two, EthDst: ff, Op: OpReply, SenderMAC: two, SenderIP: vip, TargetMAC: two, TargetIP: vip}
		overheard := Frame{EthSrc: two, EthDst: m3, Op: OpReply, SenderMAC: two, SenderIP: vip, TargetMAC: m3, TargetIP: own}
		garbage := bytesOf(t, tagged, 0)[:45]
		first := true
		r := ask(t, client, prober(client), []Request{{Kind: Broadcast, VIP: vip, Sender: client.addr(), Window: w.window()}},
			OnReply(func(int, Reply) {
				if !first {
					return
				}
				first = false
				for _, f := range []Frame{tagged, mismatched, announced, overheard} {
					n2.send(t, bytesOf(t, f, 0))
				}
				n2.send(t, garbage)
			}))[0]
		if r.OtherVLAN != 1 {
			t.Errorf("%d frames of another VLAN", r.OtherVLAN)
		}
		var got []string
		for _, reply := range r.Replies {
			switch {
			case reply.SenderMAC == one && reply.Solicited && !reply.Mismatched:
				got = append(got, "answer")
			case reply.Mismatched && reply.EthSrc == two && reply.SenderMAC == m3 && reply.Solicited:
				got = append(got, "mismatched answer")
			case reply.SenderMAC == two && !reply.Solicited && reply.EthDst == ff:
				got = append(got, "announcement")
			default:
				t.Errorf("reply %+v", reply)
			}
		}
		if diff := cmp.Diff([]string{"answer", "mismatched answer", "announcement"}, got); diff != "" {
			t.Errorf("replies (-want +got):\n%s", diff)
		}
		// m3 is on no port, so the switch floods.
		if len(r.Unsolicited) != 1 || r.Unsolicited[0].TargetMAC != m3 || r.Unsolicited[0].PacketType != PacketOtherHost {
			t.Errorf("hints %+v", r.Unsolicited)
		}
	})
}

// The hearing test: what another observer is known to broadcast.
func TestADeafNICCanBeToldFromASilentSegment(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w world) {
		client, n1 := w.join(t, 2), w.join(t, 11)
		n1.hold(t, vip)
		beacon := Frame{EthSrc: n1.nic().MAC, EthDst: ff, Op: OpRequest, SenderMAC: n1.nic().MAC, SenderIP: n1.addr(), TargetIP: other}
		for _, hear := range []bool{false, true} {
			var opts []RoundOption
			want := 0
			if hear {
				opts, want = []RoundOption{Hear(other)}, 1
			}
			opts = append(opts, OnReply(func(int, Reply) { n1.send(t, bytesOf(t, beacon, 42)) }))
			r := ask(t, client, prober(client), []Request{{Kind: Broadcast, VIP: vip, Sender: client.addr(), Window: w.window()}}, opts...)[0]
			if len(r.Heard) != want {
				t.Errorf("hear %v: heard %v", hear, r.Heard)
			}
		}
	})
}

// Unknown is never absent (I6): a sensor that fails says so in every result.
func TestANICThatFailsInTheMiddleOfARoundIsNoSilence(t *testing.T) {
	for _, state := range []error{ErrDown, ErrNoCarrier} {
		t.Run(state.Error(), func(t *testing.T) {
			inBothWorlds(t, func(t *testing.T, w world) {
				client, n1 := w.join(t, 2), w.join(t, 11)
				n1.hold(t, vip)
				q := Request{Kind: Broadcast, VIP: vip, Sender: client.addr(), Window: w.window()}
				var results []Result
				var err error
				client.in(func() {
					results, err = prober(client).Round(t.Context(), []Request{q, q},
						OnReply(func(int, Reply) { client.fail(t, state) }))
				})
				var nicErr *NICError
				if !errors.Is(err, state) || !errors.As(err, &nicErr) || nicErr.NIC != "eth0" {
					t.Fatalf("error %v", err)
				}
				if r := results[0]; len(r.Replies) != 1 || r.ListenError == "" || r.Complete() {
					t.Errorf("first: %+v", r)
				}
				if r := results[1]; r.Sent || r.SendError == "" || r.Complete() {
					t.Errorf("second: %+v", r)
				}
			})
		})
	}
}

func TestARoundEndsWithItsContextAndKeepsWhatItHeard(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w world) {
		client, n1 := w.join(t, 2), w.join(t, 11)
		n1.hold(t, vip)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		begun := time.Now()
		var results []Result
		var err error
		client.in(func() {
			results, err = prober(client).Round(ctx, []Request{{Kind: Broadcast, VIP: vip, Sender: client.addr(), Window: maxWindow}},
				OnReply(func(int, Reply) { cancel() }))
		})
		if !errors.Is(err, context.Canceled) || time.Since(begun) > maxWindow/2 {
			t.Errorf("error %v after %v", err, time.Since(begun))
		}
		if r := results[0]; !r.Sent || len(r.Replies) != 1 || r.ListenError == "" || r.Complete() {
			t.Errorf("got %+v", r)
		}
	})
}
