// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// judgement holds what one Judge works with. Each part reads what the parts before it left.
type judgement struct {
	s         Snapshot
	nodes     []*Node // by name
	seg       Segment
	ids       identities
	observers []*observer        // by name
	frames    map[string]*frames // by MAC
	now       map[string]Answer  // node: would its kernel answer an ordinary neighbour
	after     map[string]Answer  // and once its addresses on links that only carry are gone
	filtered  map[string]bool    // nodes whose replies leave and arrive nowhere
	answers   map[asking]Answer  // what kernelAnswer said
	c         *collector
	report    Report
}

// Judge says who answers for the VIP, seen by whom and why, and what stands in the way of a plan.
// It is a function of the snapshot alone; the order of what is in it does not matter. It never
// fails: what cannot be told is unknown, with a finding that says why.
func Judge(s Snapshot) Report {
	s.VIP = s.VIP.Unmap()
	j := &judgement{s: s, nodes: byName(s.Nodes), c: newCollector(s.VIP), frames: map[string]*frames{},
		now: map[string]Answer{}, after: map[string]Answer{}, filtered: map[string]bool{}, answers: map[asking]Answer{}}
	j.report.VIP = s.VIP
	j.seg = segmentOf(s, j.nodes, j.c)
	j.ids = identify(j.nodes, j.seg)
	j.observe()
	j.kernels()
	j.holders()
	j.responders()
	j.announcers()
	j.owner()
	j.report.Segment = j.seg
	j.report.Verdict = j.verdict()
	j.outgoing()
	j.findings()
	j.report.Observers = j.views()
	j.report.Findings = j.c.sorted()
	return j.report
}

func byName(nodes []Node) []*Node {
	out := make([]*Node, 0, len(nodes))
	for i := range nodes {
		out = append(out, &nodes[i])
	}
	slices.SortStableFunc(out, func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// observe counts each observer's rounds on its NIC of the segment.
func (j *judgement) observe() {
	by := map[string]*observer{}
	for _, n := range j.nodes {
		o := newObserver(n.Name, n)
		o.nic = j.seg.Interfaces[n.Name]
		by[n.Name] = o
		j.observers = append(j.observers, o)
	}
	for _, r := range j.s.Rounds {
		o := by[r.Observer]
		if o == nil {
			o = newObserver(r.Observer, nil)
			by[r.Observer] = o
			j.observers = append(j.observers, o)
		}
		if o.node == nil || o.node.Kernel == nil { // no inventory: the round itself says where it was
			if o.nic == "" || r.Interface < o.nic {
				o.nic = r.Interface
			}
		} else if r.Interface != o.nic {
			continue // another segment's
		}
		if r.VIP.Unmap() == j.s.VIP {
			o.take(r, j.s.VIP, j.frames)
		}
	}
	slices.SortFunc(j.observers, func(a, b *observer) int { return cmp.Compare(a.name, b.name) })
	for _, o := range j.observers {
		o.conclude()
	}
}

// kernels asks of each node on the segment whether its kernel would answer, now and afterwards.
func (j *judgement) kernels() {
	for _, n := range j.nodes {
		nic := j.seg.Interfaces[n.Name]
		if nic == "" || n.Kernel == nil {
			continue
		}
		j.now[n.Name] = j.kernelOn(n, nic, Sender{})
		rest := *n
		rest.Kernel = n.Kernel.withoutVIP(j.s.VIP)
		j.after[n.Name] = kernelAnswer(rest, nic, j.s.VIP, Sender{})
		if l := n.Kernel.link(nic); l != nil && l.unplugged() && len(j.heardFrom(n.Name)) == 0 {
			dead := answer(AnswerNo, CauseNIC, "%s has no carrier, no request arrives", nic)
			j.now[n.Name], j.after[n.Name] = dead, dead
		}
	}
}

// unplugged: no carrier. A link that was told without flags was told without its carrier too.
func (l Link) unplugged() bool { return l.Flags != 0 && !l.Carrier }

// asking is one question to a kernel.
type asking struct {
	node   *Node
	nic    string
	sender Sender
}

// kernelOn is kernelAnswer for the VIP, worked out once.
func (j *judgement) kernelOn(n *Node, nic string, s Sender) Answer {
	key := asking{n, nic, s}
	a, ok := j.answers[key]
	if !ok {
		a = kernelAnswer(*n, nic, j.s.VIP, s)
		if a.Cause == CauseNIC && j.heardAt(n, nic) {
			a = answer(AnswerUnknown, CauseUnknown, "%s, and yet it is heard there", a.Reason)
		}
		j.answers[key] = a
	}
	return a
}

// heardAt: frames came from this very NIC, whatever they answered.
func (j *judgement) heardAt(n *Node, nic string) bool {
	for mac := range j.frames {
		if id := j.ids[mac]; id.node == n && id.link == nic {
			return true
		}
	}
	return false
}

// verdict weighs the wire alone: held addresses and claims are never one.
func (j *judgement) verdict() Verdict {
	var nodes, macs []string
	foreign, cloned := false, false
	for _, r := range j.report.Responders {
		foreign = foreign || r.Announcer == AnnouncerForeign
		cloned = cloned || len(j.ids[r.MAC].shared) > 0
		nodes, macs = appendNew(nodes, r.Node), appendNew(macs, r.MAC)
	}
	vouching := j.listeners("")
	switch {
	case foreign:
		return VerdictForeign
	case len(j.seg.Interfaces) == 0, !slices.ContainsFunc(j.observers, func(o *observer) bool { return o.state == ObserverHears }), cloned:
		return VerdictUnknown
	case len(j.disagreements()) > 0:
		return VerdictSplit
	case len(nodes) > 1:
		return VerdictContested
	case len(vouching) == 0, j.onlyQuestionAnswered():
		return VerdictUnknown
	case len(macs) > 1:
		return VerdictFlux
	case len(macs) == 1:
		return VerdictSingle
	}
	return VerdictNone
}

// onlyQuestionAnswered: something answers the announcer question and no ordinary request, which is no
// state that clients could use.
func (j *judgement) onlyQuestionAnswered() bool {
	for _, o := range j.observers {
		if len(o.replies) > 0 {
			return false
		}
	}
	return len(j.report.Responders) > 0
}

// disagreements lists, for each responder, the observers that could have heard it and never did
// while another heard it. Silence that its kernel owes to that sender is none.
func (j *judgement) disagreements() []string {
	var out []string
	for _, r := range j.report.Responders {
		var heard, missed []string
		for _, o := range j.observers {
			switch {
			case o.replies[r.MAC] > 0:
				heard = append(heard, o.name)
			case o.name != r.Node && o.vouches(j.seg) && !j.owed(r, o):
				missed = append(missed, o.name)
			}
		}
		if len(heard) > 0 && len(missed) > 0 {
			out = append(out, fmt.Sprintf("%s: heard by %s, not by %s", j.label(r), and(heard), and(missed)))
		}
	}
	return out
}

// owed: a kernel without announcer is rightly silent towards every sender that this observer used.
func (j *judgement) owed(r Responder, o *observer) bool {
	id := j.ids[r.MAC]
	if id.node == nil || r.AnswersQuestion || len(o.senders) == 0 {
		return false
	}
	senders := make([]netip.Addr, 0, len(o.senders)+1)
	for s := range o.senders {
		senders = append(senders, s)
	}
	if o.zero > 0 {
		senders = append(senders, netip.IPv4Unspecified())
	}
	return !slices.ContainsFunc(senders, func(s netip.Addr) bool {
		return !s.IsValid() || j.kernelOn(id.node, id.link, From(s)).Would != AnswerNo
	})
}

// label names a responder for people.
func (j *judgement) label(r Responder) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Node, r.Interface, r.MAC))
}

// views are the rows of the observer x responder matrix.
func (j *judgement) views() []ObserverView {
	var out []ObserverView
	for _, o := range j.observers {
		v := ObserverView{Observer: o.name, Role: o.role, Interface: o.nic, State: o.state, Detail: o.detail,
			Replies: o.replies, Rounds: o.ordinary}
		if why := o.caveat(j.seg); why != "" {
			v.Detail = why
		}
		out = append(out, v)
	}
	return out
}
