// SPDX-License-Identifier: Apache-2.0

package report

import (
	"net/netip"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/vipmove/vipmove/agent/wire"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// Rounds puts results into messages, one each. number is left 0 and heard is
// that of each result.
func Rounds(observer, nic string, results []wire.Result) []*vipmovev1.Round {
	rounds := make([]*vipmovev1.Round, 0, len(results))
	for _, r := range results {
		rounds = append(rounds, round(observer, nic, r))
	}
	return rounds
}

var probeKinds = map[wire.Kind]vipmovev1.ProbeKind{
	wire.Broadcast:         vipmovev1.ProbeKind_PROBE_KIND_BROADCAST,
	wire.ZeroSender:        vipmovev1.ProbeKind_PROBE_KIND_ZERO_SENDER,
	wire.AnnouncerQuestion: vipmovev1.ProbeKind_PROBE_KIND_ANNOUNCER_QUESTION,
	wire.Unicast:           vipmovev1.ProbeKind_PROBE_KIND_UNICAST,
}

func round(observer, nic string, r wire.Result) *vipmovev1.Round {
	p := &vipmovev1.Round{
		Observer: observer, Interface: nic, Vip: r.Request.VIP.String(),
		Kind: probeKinds[r.Request.Kind], SenderIp: text(senderOf(r.Request)),
		Window: durationpb.New(r.Request.Window),
		Sent:   r.Sent, SendError: r.SendError,
		Dropped: r.Dropped, Truncated: r.Truncated,
	}
	if !r.Request.TargetMAC.IsZero() {
		p.TargetMac = r.Request.TargetMAC.String()
	}
	if !r.SentAt.IsZero() {
		p.SentAt = timestamppb.New(r.SentAt)
	}
	// A window that was not heard to its end: what came is true, silence is not.
	if r.ListenError != "" {
		p.Truncated = true
		if p.SendError == "" {
			p.SendError = r.ListenError
		}
	}
	answers, hints := split(r)
	for _, a := range answers {
		p.Replies = append(p.Replies, reply(a.Frame, a.After))
	}
	for _, f := range hints {
		p.Unsolicited = append(p.Unsolicited, reply(f, f.At.Sub(r.SentAt)))
	}
	for _, mac := range r.Heard {
		p.Heard = append(p.Heard, mac.String())
	}
	return p
}

// split tells answers from hints. Two answers of one MAC to one request prove
// an announcer beside a kernel, so only frames that answer this very request
// count twice: a reply to somebody else, or one that this host's own kernel
// may have asked for, counts where its MAC has no answer otherwise, and once.
func split(r wire.Result) (answers []wire.Reply, hints []wire.Frame) {
	have := map[wire.MAC]bool{}
	var rest []wire.Reply
	for _, reply := range r.Replies {
		if reply.Solicited && (r.OwnRequests == 0 || !have[reply.SenderMAC]) {
			answers = append(answers, reply)
			have[reply.SenderMAC] = true
		} else {
			rest = append(rest, reply)
		}
	}
	for _, reply := range rest {
		if !have[reply.SenderMAC] {
			answers = append(answers, reply)
			have[reply.SenderMAC] = true
		} else {
			hints = append(hints, reply.Frame)
		}
	}
	return answers, append(hints, r.Unsolicited...)
}

// senderOf is the ARP sender address that the request carried.
func senderOf(r wire.Request) netip.Addr {
	switch r.Kind {
	case wire.ZeroSender:
		return netip.IPv4Unspecified()
	case wire.AnnouncerQuestion:
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return r.Sender
}

// reply puts one frame into its message.
func reply(f wire.Frame, after time.Duration) *vipmovev1.Reply {
	return &vipmovev1.Reply{
		SenderMac: f.SenderMAC.String(), EthSource: f.EthSrc.String(), SenderIp: text(f.SenderIP),
		TargetMac: f.TargetMAC.String(), TargetIp: text(f.TargetIP),
		After: durationpb.New(after), Vlan: uint32(f.VLAN), At: timestamppb.New(f.At),
	}
}
