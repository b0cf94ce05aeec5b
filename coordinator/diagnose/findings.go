// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"slices"
	"strings"
)

// findings notes all that a plan must know, from what the other parts found.
func (j *judgement) findings() {
	for _, n := range j.nodes {
		j.nodeFindings(n)
	}
	for _, h := range j.report.Holders {
		j.holderFindings(h)
	}
	j.wireFindings()
	j.observerFindings()
	j.announcerFindings()
}

// nodeFindings are about a node as such: whether it can be read and relied on.
func (j *judgement) nodeFindings(n *Node) {
	if n.PendingUndo != nil {
		j.c.add(UndoPendingCode, Refuse, n.Name, undoEvidence(n))
	}
	unread := Refuse
	switch {
	case n.Connected:
	case n.Role == RoleWitness:
		j.c.add(NodeAway, Warn, n.Name, n.Name+": the witness is not connected")
	case slices.Contains(j.s.Without, n.Name):
		unread = Warn
		j.c.add(NodeAway, Warn, n.Name, n.Name+": not connected, left out by --without: what it holds is unknown")
	default:
		j.c.add(NodeAway, Refuse, n.Name, n.Name+": not connected")
	}
	switch {
	case n.Role == RoleWitness:
	case n.Kernel == nil:
		j.c.add(InventoryUnknown, unread, n.Name, n.Name+": nothing was read")
	case len(n.Kernel.Incomplete) > 0:
		for _, part := range n.Kernel.Incomplete {
			j.c.add(InventoryUnknown, unread, n.Name, n.Name+": "+part)
		}
	default:
		j.kernelFindings(n)
	}
}

func undoEvidence(n *Node) string {
	u := n.PendingUndo
	text := fmt.Sprintf("%s: %s of run %s, step %s", n.Name, u.Prefix, u.RunID, u.Step)
	if u.Blocked != "" {
		text += "; its agent cannot put it back: " + u.Blocked
	}
	return text
}

// kernelFindings compare what the kernel would do with what was heard of it.
func (j *judgement) kernelFindings(n *Node) {
	now, after := j.now[n.Name], j.after[n.Name]
	for _, a := range []Answer{now, after} {
		if a.Would == AnswerUnknown {
			j.c.add(InventoryUnknown, Refuse, n.Name, n.Name+": whether its kernel answers: "+a.Reason)
		}
	}
	if heard := j.heardFrom(n.Name); j.seg.Interfaces[n.Name] == "" && len(heard) > 0 {
		j.c.add(InventoryUnknown, Refuse, n.Name, fmt.Sprintf("%s: %s heard it on the segment, and none of its NICs is known to be there", n.Name, and(heard)))
	}
	if after.Would == AnswerYes && after.Cause == CauseProxy {
		j.c.add(ProxyARP, Refuse, n.Name, n.Name+": "+after.Reason)
	}
	silent := j.silent(n.Name)
	switch {
	case now.Would != AnswerYes || j.filtered[n.Name] || !silent:
	case n.Kernel.ARPPath.Unknown:
		j.c.add(ARPPathUnknown, Refuse, n.Name, fmt.Sprintf("%s: it should answer (%s), and nobody hears it; on its ARP path: %s", n.Name, now.Reason, orNothing(n.Kernel.ARPPath.Reasons)))
	default:
		j.c.add(UnexplainedAnswer, Refuse, n.Name, fmt.Sprintf("%s: it should answer (%s), and %s did not hear it", n.Name, now.Reason, and(j.listeners(n.Name))))
	}
	if n.Kernel.ARPPath.Unknown && !silent && (now.Would == AnswerYes || len(j.heardFrom(n.Name)) > 0) {
		j.c.add(ARPPathUnknown, Warn, n.Name, n.Name+": "+orNothing(n.Kernel.ARPPath.Reasons))
	}
}

// wireFindings are about who answers.
func (j *judgement) wireFindings() {
	for _, r := range j.report.Responders {
		j.responderFindings(r, j.ids[r.MAC])
	}
	for _, d := range j.disagreements() {
		j.c.add(SplitView, Refuse, "", d)
	}
	j.hintFindings()
	if j.report.Verdict == VerdictNone && len(j.filtered) == 0 { // else somebody answers, and the network eats it
		j.c.add(NobodyAnswers, Refuse, "", fmt.Sprintf("%s listened, over every round", and(j.listeners(""))))
	}
	if j.onlyQuestionAnswered() {
		for _, r := range j.report.Responders {
			j.c.add(UnexplainedAnswer, Refuse, r.Node, j.label(r)+": answers the announcer question and no ordinary request")
		}
	}
}

func (j *judgement) responderFindings(r Responder, id identity) {
	if r.Mismatched {
		j.c.add(MismatchedSender, Warn, r.Node, fmt.Sprintf("replies name %s%s", r.MAC, j.frameSource(r.MAC)))
	}
	switch {
	case r.Announcer == AnnouncerForeign:
		j.c.add(ForeignResponder, Refuse, r.Node, j.foreign(r))
		return
	case len(id.shared) > 0:
		for _, n := range id.shared {
			j.c.add(UnexplainedAnswer, Refuse, n, fmt.Sprintf("%s answers, and %s list it as theirs", r.MAC, and(id.shared)))
		}
		return
	}
	usable, kernel := j.questionUsable(id), j.kernelWould(id, r.MAC)
	if !usable {
		j.c.add(QuestionUnusable, Warn, r.Node, j.whyUnusable(id))
	}
	switch {
	case kernel.Would == AnswerUnknown && len(id.node.Kernel.Incomplete) == 0:
		j.c.add(InventoryUnknown, Refuse, r.Node, fmt.Sprintf("%s: whether its kernel answers on %s: %s", r.Node, r.Interface, kernel.Reason))
	case r.Announcer == AnnouncerUserSpace && !r.AnswersQuestion && r.QuestionAsked && usable:
		j.c.add(UnexplainedAnswer, Warn, r.Node, fmt.Sprintf("%s: its kernel would not answer (%s), and nothing on it answers the announcer question", r.Node, kernel.Reason))
	}
}

func (j *judgement) whyUnusable(id identity) string {
	if a := j.kernelOn(id.node, id.link, Martian()); a.Would == AnswerUnknown {
		return fmt.Sprintf("%s: whether its kernel is silent to 127.0.0.1: %s", id.node.Name, a.Reason)
	}
	return fmt.Sprintf("%s: route_localnet and accept_local are both on for %s, so its kernel answers 127.0.0.1 too", id.node.Name, id.link)
}

// foreign describes a MAC that answers and is no node's.
func (j *judgement) foreign(r Responder) string {
	text := fmt.Sprintf("%s: %s; heard by %s", r.MAC, r.Reason, and(r.SeenBy))
	if strings.HasPrefix(r.MAC, "00:00:5e:00:01:") {
		text += "; it is a VRRP virtual router's MAC"
	}
	for _, n := range j.nodes {
		if n.Role == RoleAgent && (n.Kernel == nil || len(n.Kernel.Incomplete) > 0) {
			text += "; it may be one of " + n.Name + ", whose links are not known"
		}
	}
	return text
}

// observerFindings say how much the silence is worth.
func (j *judgement) observerFindings() {
	for _, o := range j.observers {
		switch o.state {
		case ObserverBlind:
			j.c.add(ObserverBlindCode, Warn, o.name, o.name+": "+o.detail)
		case ObserverCannotProbe:
			j.c.add(CannotProbe, Warn, o.name, fmt.Sprintf("%s on %s: %s", o.name, o.nic, o.detail))
		}
	}
	if by := j.listeners(""); len(by) < 2 && len(j.seg.Interfaces) > 0 {
		evidence := fmt.Sprintf("%s: %s", count(len(by), "observer vouches for silence", "observers vouch for silence"), and(by))
		if len(by) == 0 {
			evidence = "no observer vouches for silence"
		}
		j.c.add(TooFewObservers, Refuse, "", evidence)
		for _, o := range j.observers {
			if why := o.caveat(j.seg); why != "" {
				j.c.add(TooFewObservers, Refuse, "", o.name+": "+why)
			}
		}
	}
}

// announcerFindings: without proof that something else answers, nothing that answers may go (I1).
func (j *judgement) announcerFindings() {
	if j.report.Owner != "" || len(j.seg.Interfaces) == 0 || j.c.has(TwoAnnouncers) {
		return
	}
	removable := slices.ContainsFunc(j.report.Holders, func(h Holder) bool {
		return h.State == HolderStale || h.State == HolderUnknown
	})
	severity := Warn
	switch {
	case removable:
		severity = Refuse
	case len(j.report.Responders) == 0:
		return
	}
	j.c.add(NoAnnouncer, severity, "", j.report.OwnerReason)
	for _, r := range j.report.Responders {
		if r.Node != "" && !r.AnswersQuestion {
			j.c.add(NoAnnouncer, severity, "", fmt.Sprintf("%s: %s", r.Node, j.questionSays(r)))
		}
	}
}
