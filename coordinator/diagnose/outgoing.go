// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"net/netip"
	"strings"
)

// leaving counts a node's own replies with this MAC that left for one observer's sender address.
func (j *judgement) leaving(mac string, to *observer, sender netip.Addr) int {
	n := 0
	for _, g := range j.s.Outgoing {
		if !g.Captured || g.Node != j.nameOf(mac) {
			continue
		}
		for _, r := range g.Replies {
			if strings.ToLower(r.SenderMAC) == mac && r.TargetIP == sender && j.nameOf(strings.ToLower(r.TargetMAC)) == to.name {
				n++
			}
		}
	}
	return n
}

// outgoing compares what nodes saw leaving with what others heard: OWNER_FILTERED where the network
// ate all of it, UNEXPLAINED_ANSWER where something answers with a node's MAC and it was not the node.
func (j *judgement) outgoing() {
	for _, g := range j.s.Outgoing {
		nic := j.seg.Interfaces[g.Node]
		if !g.Captured || g.Interface != nic || nic == "" {
			continue
		}
		heard, left := j.heardFrom(g.Node), ordinaryReplies(g)
		switch {
		case left > 0 && len(heard) == 0 && j.silent(g.Node):
			j.filtered[g.Node] = true
			j.c.add(OwnerFiltered, Refuse, g.Node, fmt.Sprintf("%s: %s left %s, none was heard by %s",
				g.Node, count(left, "reply", "replies"), nic, and(j.listeners(g.Node))))
		case left == 0 && len(heard) > 0 && g.Error == "":
			j.c.add(UnexplainedAnswer, Warn, g.Node, fmt.Sprintf("%s: %s heard it answer, and its own agent saw no reply leave %s",
				g.Node, and(heard), nic))
		}
	}
}

// ordinaryReplies counts those to real senders; an answer to 127.0.0.1 is to the announcer question.
func ordinaryReplies(g Outgoing) int {
	n := 0
	for _, r := range g.Replies {
		if !r.TargetIP.IsLoopback() {
			n++
		}
	}
	return n
}

// heardFrom lists the observers that heard any MAC of this node answer an ordinary request.
func (j *judgement) heardFrom(node string) []string {
	var out []string
	for _, o := range j.observers {
		for mac := range o.replies {
			if j.nameOf(mac) == node {
				out = appendNew(out, o.name)
			}
		}
	}
	return out
}

// listeners are the observers whose silence about this node is evidence. A node never hears itself.
func (j *judgement) listeners(node string) []string {
	var out []string
	for _, o := range j.observers {
		if o.name != node && o.vouches(j.seg) {
			out = append(out, o.name)
		}
	}
	return out
}

// silent: some observers could have heard this node, and none did.
func (j *judgement) silent(node string) bool {
	return len(j.heardFrom(node)) == 0 && len(j.listeners(node)) > 0
}
