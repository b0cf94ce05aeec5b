// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Remains is what came of asking a responder while its kernel was mute.
type Remains string

// What remains of a responder when its kernel is mute (docs/design.md section 7). Silent means that nothing but
// the kernel was heard to answer; like the silence to the announcer question it proves no absence.
const (
	RemainsAnswering Remains = "answers"
	RemainsSilent    Remains = "silent"
	RemainsUnknown   Remains = "unknown"
)

// remained is what one observer heard of one MAC whose kernel was mute.
type remained struct {
	asked, answered bool
	trouble         string // why nothing may be concluded from silence
}

// takeMuted counts one round under a mute.
func (o *observer) takeMuted(r Round, vip netip.Addr) {
	mac := strings.ToLower(r.TargetMAC)
	if mac == "" {
		return
	}
	m := o.remained[mac]
	switch {
	case !r.Sent || r.SendError != "":
		m.trouble = orElse(r.SendError, "the request did not leave")
	case r.Dropped > 0 || r.Truncated:
		m.trouble = "frames were lost"
	}
	if r.Sent && r.SendError == "" {
		m.asked = true
		m.answered = m.answered || slices.ContainsFunc(r.Replies, func(p Reply) bool {
			return p.SenderIP.Unmap() == vip && strings.EqualFold(p.SenderMAC, mac)
		})
	}
	o.remained[mac] = m
}

// remains joins what all observers heard: one answer is proof, silence needs observers that hear.
func (j *judgement) remains(mac string) (Remains, string) {
	var by []string
	tried, silent, trouble := false, 0, ""
	for _, o := range j.observers {
		m, ok := o.remained[mac]
		tried = tried || ok
		switch {
		case !ok:
		case m.answered:
			by = append(by, o.name)
		case m.asked && m.trouble == "" && o.state == ObserverHears:
			silent++
		case m.trouble != "":
			trouble = m.trouble
		}
	}
	switch {
	case !tried:
		return "", ""
	case len(by) > 0:
		return RemainsAnswering, fmt.Sprintf("goes on answering with its kernel mute (heard by %s)", and(by))
	case silent > 0:
		return RemainsSilent, "silent with its kernel mute: nothing but the kernel was heard"
	}
	return RemainsUnknown, "what remains with its kernel mute is not known: " + orElse(trouble, "nobody that hears asked")
}

// proven: a program answered, and not the kernel.
func (r Responder) proven() bool { return r.AnswersQuestion || r.Muted == RemainsAnswering }

// provenByMute is for an announcer that is silent to the question, or could not be asked it.
func (j *judgement) provenByMute(r Responder, kernel Answer) (Announcer, string) {
	text := "an announcer that " + r.MutedReason + "; " + j.questionSays(r)
	switch kernel.Would {
	case AnswerYes:
		return AnnouncerBoth, text + "; the kernel would answer too: " + j.why(j.ids[r.MAC])
	case AnswerUnknown:
		return AnnouncerUnknown, text + "; it is not known whether the kernel answers too: " + kernel.Reason
	}
	return AnnouncerUserSpace, text + "; the kernel would not: " + kernel.Reason
}

func (j *judgement) answersQuestion(node string) bool {
	return slices.ContainsFunc(j.report.Responders, func(r Responder) bool { return r.Node == node && r.AnswersQuestion })
}

// ownerByMute: one node goes on when its kernel is mute, and every other responder was heard to fall silent.
func (j *judgement) ownerByMute(node string) {
	open := j.notExcluded(node)
	for _, r := range j.report.Responders {
		if r.Node != node && r.Muted != RemainsSilent {
			open = append(open, j.label(r)+" was not heard to fall silent with its kernel mute")
		}
	}
	if len(open) > 0 {
		j.report.OwnerReason = fmt.Sprintf("%s goes on with its kernel mute, but a second announcer is not excluded: %s", node, strings.Join(open, "; "))
		return
	}
	j.report.Owner = node
	j.report.OwnerReason = node + " alone goes on answering with its kernel mute, and every other responder falls silent"
}
