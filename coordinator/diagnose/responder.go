// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// responders lists who answers on the wire: every MAC that answered an ordinary request or the
// announcer question.
func (j *judgement) responders() {
	macs := map[string]bool{}
	for _, o := range j.observers {
		for mac := range o.replies {
			macs[mac] = true
		}
		for mac := range o.answered {
			macs[mac] = true
		}
	}
	for mac := range macs {
		j.report.Responders = append(j.report.Responders, j.responder(mac))
	}
	slices.SortFunc(j.report.Responders, func(a, b Responder) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Interface, b.Interface), cmp.Compare(a.MAC, b.MAC))
	})
}

// responder is one MAC with what was heard of it; who answers behind it is judged later.
func (j *judgement) responder(mac string) Responder {
	id := j.ids[mac]
	r := Responder{MAC: mac}
	if id.node != nil {
		r.Node, r.Interface = id.node.Name, id.link
	}
	if f := j.frames[mac]; f != nil {
		r.Mismatched = !f.consistent && len(f.sources) > 0
	}
	var fastest responseTime
	for _, o := range j.observers {
		if o.replies[mac] > 0 || o.answered[mac] {
			r.SeenBy = append(r.SeenBy, o.name)
		}
		r.RepliesPerRequest = max(r.RepliesPerRequest, o.most[mac])
		if t := o.fastest[mac]; t.known && (!fastest.known || t.after < fastest.after) {
			fastest = t
		}
		r.AnswersQuestion = r.AnswersQuestion || o.answered[mac] && j.questionUsable(id)
	}
	r.Fastest = fastest.after
	r.QuestionAsked = j.asked(mac, r.Node)
	r.Muted, r.MutedReason = j.remains(mac)
	return r
}

// questionUsable: only where the kernel itself is known to stay silent to 127.0.0.1 does an answer
// prove an announcer. What else is on the ARP path does not matter: it cannot make the kernel answer.
func (j *judgement) questionUsable(id identity) bool {
	return id.node != nil && j.kernelOn(id.node, id.link, Martian()).Would == AnswerNo
}

// asked: the announcer question was put to this MAC by two observers besides its own node, or by
// all there are that hear. An answer counts as having been asked.
func (j *judgement) asked(mac, node string) bool {
	able, did := 0, 0
	for _, o := range j.observers {
		if o.name == node || o.state != ObserverHears {
			continue
		}
		able++
		if o.asked[mac] || o.answered[mac] {
			did++
		}
	}
	return did > 0 && did >= min(2, able)
}

// announcers says who answers behind each responder, and why that is thought.
func (j *judgement) announcers() {
	for i := range j.report.Responders {
		r := &j.report.Responders[i]
		r.Announcer, r.Reason = j.announcer(*r)
		if r.Muted != "" && !(r.Muted == RemainsAnswering && !r.AnswersQuestion) { // there it is the reason already
			r.Reason += "; " + r.MutedReason
		}
	}
}

func (j *judgement) announcer(r Responder) (Announcer, string) {
	id := j.ids[r.MAC]
	switch {
	case len(id.shared) > 0:
		return AnnouncerUnknown, fmt.Sprintf("%s list this MAC as theirs: a cloned machine", and(id.shared))
	case id.node == nil:
		return AnnouncerForeign, "a MAC of no agent" + j.frameSource(r.MAC)
	case id.node.Role == RoleWitness:
		return AnnouncerForeign, fmt.Sprintf("the witness %s answers itself, and it is no node of the cluster", r.Node)
	}
	kernel := j.kernelWould(id, r.MAC)
	switch {
	case r.AnswersQuestion:
		return j.provenAnnouncer(r, kernel)
	case r.Muted == RemainsAnswering:
		return j.provenByMute(r, kernel)
	case kernel.Would == AnswerNo:
		return AnnouncerUserSpace, "user space or eBPF: answers although the kernel would not (" + kernel.Reason + "); " + j.questionSays(r)
	case kernel.Would == AnswerUnknown:
		return AnnouncerUnknown, "it is not known whether the kernel answers: " + kernel.Reason
	case j.doubles(r.MAC):
		return AnnouncerBoth, fmt.Sprintf("%d replies to one request: a user-space announcer beside the kernel; %s", r.RepliesPerRequest, j.why(id))
	case id.node.Kernel.ARPPath.Unknown:
		return AnnouncerUnknown, j.why(id) + " would explain it, but something else is on the ARP path: " + orNothing(id.node.Kernel.ARPPath.Reasons)
	}
	return AnnouncerKernel, j.why(id)
}

// provenAnnouncer: the kernel is silent to the question, so a program answered it. Where the kernel
// would answer too it is both, also at one reply per request: an eBPF announcer takes the request
// before the kernel sees it, and the kernel answers again when that program is gone.
func (j *judgement) provenAnnouncer(r Responder, kernel Answer) (Announcer, string) {
	const answers = "user-space announcer: answers the announcer question"
	switch {
	case kernel.Would == AnswerYes && r.RepliesPerRequest >= 2:
		return AnnouncerBoth, fmt.Sprintf("%s, and the kernel answers too (%d replies to one request): %s", answers, r.RepliesPerRequest, j.why(j.ids[r.MAC]))
	case kernel.Would == AnswerYes:
		return AnnouncerBoth, answers + ", and the kernel would answer too (one reply: an eBPF announcer takes the request first): " + j.why(j.ids[r.MAC])
	case kernel.Would == AnswerUnknown:
		return AnnouncerUnknown, answers + "; it is not known whether the kernel answers too: " + kernel.Reason
	case !j.holdsAny(r.Node):
		return AnnouncerUserSpace, answers + " and holds no address"
	}
	return AnnouncerUserSpace, answers + "; the kernel would not: " + kernel.Reason
}

// kernelWould is whether the kernel explains the replies of this MAC: whether it answers any of the
// senders that were answered.
func (j *judgement) kernelWould(id identity, mac string) Answer {
	best := j.kernelOn(id.node, id.link, Sender{})
	if f := j.frames[mac]; f != nil {
		slices.SortFunc(f.senders, netip.Addr.Compare)
		for _, s := range f.senders {
			if a := j.kernelOn(id.node, id.link, From(s)); s.IsValid() && rankOf(a) > rankOf(best) {
				best = a
			}
		}
	}
	return best
}

func rankOf(a Answer) int {
	return map[Would]int{AnswerNo: 0, AnswerUnknown: 1, AnswerYes: 2}[a.Would]
}

func (j *judgement) questionSays(r Responder) string {
	switch {
	case !r.QuestionAsked:
		return "the announcer question was not put to it by two observers"
	case !j.questionUsable(j.ids[r.MAC]):
		return "the announcer question is unusable on it"
	}
	return "silent to the announcer question"
}

// why is what makes the kernel answer: "stale /32 on kube-ipvs0, arp_ignore 0 on eth0".
func (j *judgement) why(id identity) string {
	var text string
	for _, h := range j.report.Holders {
		if h.Node != id.node.Name {
			continue
		}
		if text != "" {
			text += " and "
		}
		text += h.what(id.node.Kernel)
	}
	if text == "" {
		return j.kernelOn(id.node, id.link, Sender{}).Reason
	}
	if v, ok := id.node.Kernel.ArpIgnore(id.link); ok {
		return fmt.Sprintf("%s, arp_ignore %d on %s", text, v, id.link)
	}
	return text
}

func (j *judgement) holdsAny(node string) bool {
	return slices.ContainsFunc(j.report.Holders, func(h Holder) bool { return h.Node == node })
}

// frameSource names the node whose Ethernet source a foreign reply bore.
func (j *judgement) frameSource(mac string) string {
	f := j.frames[mac]
	if f == nil || len(f.sources) == 0 {
		return ""
	}
	sources := slices.Clone(f.sources)
	slices.Sort(sources)
	if n := j.ids[sources[0]].node; n != nil {
		return fmt.Sprintf("; its frames left from %s (%s on %s)", sources[0], j.ids[sources[0]].link, n.Name)
	}
	return "; its frames left from " + sources[0]
}
