// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"net/netip"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// contradiction finds what cannot be so, or says nothing although nothing is judged without it, in a
// snapshot that is well-formed. No kernel lists such a thing and no observer sends it, so it is a
// mistake of whoever wrote the file, and judging the rest would hide it.
func contradiction(p *vipmovev1.Snapshot, s diagnose.Snapshot) error {
	r := &reader{}
	if !s.VIP.IsValid() {
		r.bad("vip", fmt.Errorf("it has none"))
	}
	nodes := map[string]bool{}
	for _, n := range p.GetNodes() {
		r.in("node "+n.GetName(), func() {
			r.once(nodes, n.GetName(), "name", "another node has it too")
			if n.GetKernel() != nil {
				r.agrees(n.GetKernel())
			}
		})
	}
	for i, q := range p.GetRounds() {
		r.in(fmt.Sprintf("round %d of %s", i+1, q.GetObserver()), func() {
			r.known(nodes, "observer", q.GetObserver())
			r.asked(q, s.VIP)
		})
	}
	for _, g := range p.GetOutgoing() {
		r.in("outgoing of "+g.GetNode(), func() {
			r.known(nodes, "node", g.GetNode())
			if !g.GetCaptured() && len(g.GetReplies()) > 0 {
				r.bad("captured", fmt.Errorf("it is false, and there are replies"))
			}
			r.answers(g.GetReplies(), false)
		})
	}
	witnesses := map[string]bool{}
	for _, q := range p.GetRequests() {
		r.in("requests of "+q.GetWitness(), func() {
			r.once(witnesses, q.GetWitness(), "witness", "another count is its own too")
			if q.GetSucceeded() > q.GetSent() || q.GetFailed() > q.GetSent()-q.GetSucceeded() {
				r.bad("sent", fmt.Errorf("%d, and %d succeeded and %d failed", q.GetSent(), q.GetSucceeded(), q.GetFailed()))
			}
		})
	}
	return r.err
}

func (r *reader) once(seen map[string]bool, name, field, otherwise string) {
	if seen[name] {
		r.bad(field, fmt.Errorf("%s", otherwise))
	}
	seen[name] = true
}

func (r *reader) known(nodes map[string]bool, field, name string) {
	if !nodes[name] {
		r.bad(field, fmt.Errorf("%q is no node of this snapshot", name))
	}
}

// asked holds a round against its own kind, and against the address that the snapshot is about.
func (r *reader) asked(q *vipmovev1.Round, vip netip.Addr) {
	sender := r.addr("sender ip", q.GetSenderIp())
	alone := false
	switch kind := q.GetKind(); kind {
	case vipmovev1.ProbeKind_PROBE_KIND_UNSPECIFIED:
		r.bad("kind", fmt.Errorf("it has none"))
	case vipmovev1.ProbeKind_PROBE_KIND_ANNOUNCER_QUESTION:
		alone = true
		if sender.IsValid() && sender != diagnose.Martian().Addr {
			r.bad("sender ip", fmt.Errorf("%s, and the announcer question is asked from %s", sender, diagnose.Martian().Addr))
		}
	case vipmovev1.ProbeKind_PROBE_KIND_ZERO_SENDER:
		if sender.IsValid() && !sender.IsUnspecified() {
			r.bad("sender ip", fmt.Errorf("%s, and the kind says 0.0.0.0", sender))
		}
	case vipmovev1.ProbeKind_PROBE_KIND_UNICAST:
		alone = true
	}
	switch about := r.addr("vip", q.GetVip()); {
	case !about.IsValid():
		r.bad("vip", fmt.Errorf("it has none"))
	case vip.IsValid() && about != vip:
		r.bad("vip", fmt.Errorf("%s, and the snapshot is about %s", about, vip))
	}
	switch {
	case q.GetInterface() == "":
		r.bad("interface", fmt.Errorf("it has none"))
	case alone && q.GetTargetMac() == "":
		r.bad("target mac", fmt.Errorf("it has none, and this kind asks one MAC alone"))
	case !alone && q.GetTargetMac() != "":
		r.bad("target mac", fmt.Errorf("%s, and this kind is a broadcast", q.GetTargetMac()))
	}
	r.answers(q.GetReplies(), true)
}

// answers: a frame that names no sender can be put to nobody's account, and to leave it out could
// hide who answers.
func (r *reader) answers(replies []*vipmovev1.Reply, about bool) {
	for i, m := range replies {
		r.in(fmt.Sprintf("reply %d", i+1), func() {
			if m.GetSenderMac() == "" {
				r.bad("sender mac", fmt.Errorf("it has none"))
			}
			if about && m.GetSenderIp() == "" {
				r.bad("sender ip", fmt.Errorf("it has none: which address does it speak for?"))
			}
		})
	}
}
