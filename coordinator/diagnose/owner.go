// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"slices"
	"strings"
)

// owner names the one node whose announcer answers, where that is proven and a second one is
// excluded: by the announcer question, by who remains when kernels are mute, else by two replies to one request.
func (j *judgement) owner() {
	proven, thought := j.nodesThat(Responder.proven),
		j.nodesThat(func(r Responder) bool {
			return r.proven() || r.Announcer == AnnouncerUserSpace || r.Announcer == AnnouncerBoth
		})
	switch {
	case len(thought) > 1:
		j.report.OwnerReason = fmt.Sprintf("several announcers answer: on %s", and(thought))
		j.twoAnnouncers(thought)
	case len(proven) == 1 && !j.answersQuestion(proven[0]):
		j.ownerByMute(proven[0])
	case len(proven) == 1:
		if open := j.notExcluded(proven[0]); len(open) > 0 {
			j.report.OwnerReason = fmt.Sprintf("%s answers the announcer question, but a second announcer is not excluded: %s", proven[0], strings.Join(open, "; "))
			return
		}
		j.report.Owner = proven[0]
		j.report.OwnerReason = fmt.Sprintf("%s alone answers the announcer question, to which a kernel is silent (heard by %s)", proven[0], and(j.heardAnswers(proven[0])))
	default:
		j.ownerByTwoReplies()
	}
}

// ownerByTwoReplies is for an announcer that is silent to the question: kernel and announcer answer
// one request each, by the node's own outgoing frames and two observers, where all others answer once.
func (j *judgement) ownerByTwoReplies() {
	for _, r := range j.report.Responders {
		by := j.sawTwoAlways(r.MAC)
		if r.Node == "" || r.Announcer != AnnouncerBoth || len(by) < 2 || len(j.notExcluded(r.Node)) > 0 {
			continue
		}
		j.report.Owner = r.Node
		j.report.OwnerReason = fmt.Sprintf("two replies to one request, seen leaving %s and heard by %s, where every other responder sends one: the kernel and an announcer", r.Node, and(by))
		return
	}
	j.report.OwnerReason = "nobody answers the announcer question"
}

// sawTwoAlways lists the observers that got two replies from this MAC to each of their broadcast
// requests, as many of them as the node's own NIC saw leave for that observer.
func (j *judgement) sawTwoAlways(mac string) []string {
	if !j.doubles(mac) {
		return nil
	}
	var by []string
	for _, o := range j.observers {
		if o.name == j.nameOf(mac) || o.state != ObserverHears || len(o.senders) != 1 {
			continue
		}
		for sender, asked := range o.senders {
			if o.pairs[mac] == asked && j.leaving(mac, o, sender) >= 2*asked {
				by = append(by, o.name)
			}
		}
	}
	return by
}

// doubles: this MAC sent two replies to one broadcast request and no other did, so that it was no
// frame that the network copied.
func (j *judgement) doubles(mac string) bool {
	for _, o := range j.observers {
		for other, n := range o.most {
			if other != mac && n >= 2 {
				return false
			}
		}
	}
	return slices.ContainsFunc(j.observers, func(o *observer) bool { return o.pairs[mac] > 0 })
}

func (j *judgement) nodesThat(is func(Responder) bool) []string {
	var out []string
	for _, r := range j.report.Responders {
		if n := j.ids[r.MAC].node; n != nil && n.Role == RoleAgent && is(r) {
			out = appendNew(out, r.Node)
		}
	}
	return out
}

// notExcluded says of each other responder, known or not, why an announcer may be behind it. What
// excludes one is that its kernel explains its answers and that it is silent to the question:
// silence alone proves nothing.
func (j *judgement) notExcluded(owner string) []string {
	var out []string
	for _, r := range j.report.Responders {
		id := j.ids[r.MAC]
		switch {
		case r.Node == owner:
		case !r.QuestionAsked:
			out = append(out, "two observers did not put the question to "+j.label(r))
		case !r.AnswersQuestion && j.anyAnswer(r.MAC):
			out = append(out, j.label(r)+" answers it too, and what its kernel would do is not known")
		case id.node == nil || j.kernelWould(id, r.MAC).Would != AnswerYes:
			out = append(out, "no kernel that is known explains the answers of "+j.label(r))
		}
	}
	return out
}

// anyAnswer tells whether this MAC answered the announcer question, whatever that proves of it.
func (j *judgement) anyAnswer(mac string) bool {
	return slices.ContainsFunc(j.observers, func(o *observer) bool { return o.answered[mac] })
}

func (j *judgement) heardAnswers(node string) []string {
	var out []string
	for _, o := range j.observers {
		for mac := range o.answered {
			if j.nameOf(mac) == node {
				out = appendNew(out, o.name)
			}
		}
	}
	return out
}

func (j *judgement) nameOf(mac string) string {
	if n := j.ids[mac].node; n != nil {
		return n.Name
	}
	return ""
}

// twoAnnouncers says on what ground each of them is thought to be one.
func (j *judgement) twoAnnouncers(nodes []string) {
	for _, r := range j.report.Responders {
		if slices.Contains(nodes, r.Node) && r.Announcer != AnnouncerKernel {
			j.c.add(TwoAnnouncers, Refuse, r.Node, r.Node+": "+r.Reason)
		}
	}
}
