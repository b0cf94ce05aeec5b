// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// observerHears is the state of an observer whose silence counts.
const observerHears = "hears"

// judgement draws who answers, seen by whom, why, and what to do.
func (p *printer) judgement(j *vipmovev1.Judgement) {
	p.verdict(j)
	if len(j.GetResponders()) > 0 {
		p.title("Who answers")
		p.responders(j)
	}
	if len(j.GetObservers()) > 0 {
		p.title("Who heard whom")
		p.matrix(j)
	}
	if len(j.GetHolders()) > 0 {
		p.title("Held by kernels")
		t := newTable("NODE", "LINK", "ADDRESS", "STATE", "REASON")
		for _, h := range j.GetHolders() {
			t.row(h.GetNode(), h.GetAddress().GetLink(), h.GetAddress().GetPrefix(), h.GetState(), h.GetReason())
		}
		p.table(t)
	}
	p.findings(j.GetFindings())
}

// verdict draws the first lines: the judgement in one sentence, owner and segment with their reasons.
func (p *printer) verdict(j *vipmovev1.Judgement) {
	p.field("VIP", j.GetVip())
	p.field("verdict", fmt.Sprintf("%s: %s", p.style.word(j.GetVerdict()), verdictSentence(j)))
	owner := j.GetOwner()
	if owner == "" {
		owner = "not proven"
	}
	p.field("owner", withReason(owner, j.GetOwnerReason()))
	p.field("segment", withReason(j.GetSegment().GetPrefix(), j.GetSegment().GetReason()))
}

func verdictSentence(j *vipmovev1.Judgement) string {
	nodes := map[string]bool{}
	foreign := 0
	for _, r := range j.GetResponders() {
		if r.GetNode() == "" {
			foreign++
			continue
		}
		nodes[r.GetNode()] = true
	}
	switch j.GetVerdict() {
	case "none":
		return "nobody answers"
	case "single":
		return fmt.Sprintf("exactly one answers, %s", strings.Join(sortedNames(nodes), ", "))
	case "flux":
		return fmt.Sprintf("one node answers from %s", count(len(j.GetResponders()), "NIC"))
	case "contested":
		return fmt.Sprintf("%s answer", count(len(nodes), "node"))
	case "foreign":
		return fmt.Sprintf("%s of no known node, beside %s", count(foreign, "MAC"), count(len(nodes), "node"))
	case "split":
		return "observers disagree about who answers"
	case "unknown":
		return "not enough evidence; that is not the same as nobody"
	}
	return count(len(j.GetResponders()), "responder")
}

func (p *printer) responders(j *vipmovev1.Judgement) {
	muted := slices.ContainsFunc(j.GetResponders(), func(r *vipmovev1.Responder) bool { return r.GetMuted() != "" })
	header := []string{"NODE", "NIC", "MAC", "ANNOUNCER", "REPLIES", "SEEN-BY"}
	if muted {
		header = append(header, "MUTED")
	}
	t := newTable(append(header, "REASON")...)
	for _, r := range j.GetResponders() {
		node, reason := r.GetNode(), r.GetReason()
		if node == "" {
			node = "foreign"
		}
		if r.GetMismatched() {
			reason = strings.TrimPrefix(reason+"; ARP sender and Ethernet source differ", "; ")
		}
		row := []string{node, r.GetInterface(), r.GetMac(), r.GetAnnouncer(), strconv.Itoa(int(r.GetRepliesPerRequest())), seenBy(j, r)}
		if muted {
			row = append(row, r.GetMuted()) // what remains with its kernel mute
		}
		t.row(append(row, reason)...)
	}
	p.table(t)
}

// seenBy counts the observers that heard r among those that could: a node never hears itself, and who does not hear at
// all is no evidence.
func seenBy(j *vipmovev1.Judgement, r *vipmovev1.Responder) string {
	able := 0
	for _, o := range j.GetObservers() {
		if o.GetState() == observerHears && o.GetObserver() != r.GetNode() {
			able++
		}
	}
	seen := len(r.GetSeenBy())
	if seen <= 2 && seen > 0 {
		return strings.Join(r.GetSeenBy(), ",")
	}
	return fmt.Sprintf("%d of %d", seen, max(able, seen))
}

// matrix has a row for every observer and a column for every responder; a cell is replies heard over all rounds.
func (p *printer) matrix(j *vipmovev1.Judgement) {
	header := []string{"OBSERVER", "NIC", "STATE", "ROUNDS"}
	for _, r := range j.GetResponders() {
		header = append(header, columnName(j, r))
	}
	t := newTable(append(header, "")...)
	for _, o := range j.GetObservers() {
		name := o.GetObserver()
		if o.GetRole() == vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS {
			name += " (witness)"
		}
		row := []string{name, o.GetInterface(), o.GetState(), strconv.Itoa(int(o.GetRounds()))}
		for _, r := range j.GetResponders() {
			row = append(row, heardCell(o, r))
		}
		t.row(append(row, o.GetDetail())...)
	}
	p.table(t)
	p.line("%s", p.style.paint(sgrDim, "replies heard over all rounds; self: a node never hears itself; ?: this observer's silence proves nothing"))
}

// columnName is the node, with its NIC where a node answers from several; a foreign MAC is its own name.
func columnName(j *vipmovev1.Judgement, r *vipmovev1.Responder) string {
	if r.GetNode() == "" {
		return r.GetMac()
	}
	others := slices.ContainsFunc(j.GetResponders(), func(o *vipmovev1.Responder) bool {
		return o.GetNode() == r.GetNode() && o.GetMac() != r.GetMac()
	})
	if others {
		return r.GetNode() + "/" + r.GetInterface()
	}
	return r.GetNode()
}

func heardCell(o *vipmovev1.ObserverView, r *vipmovev1.Responder) string {
	heard, asked := o.GetReplies()[r.GetMac()]
	switch {
	case asked && heard > 0:
		return strconv.Itoa(int(heard))
	case o.GetObserver() == r.GetNode():
		return "self"
	case o.GetState() != observerHears:
		return "?" // unknown is not absent (I6)
	}
	return "0"
}
