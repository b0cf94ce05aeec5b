// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// nodes draws observers and what witnesses count.
func (p *printer) nodes(r *vipmovev1.ListNodesResponse) {
	if len(r.GetNodes()) == 0 {
		p.line("no agent or witness is connected or known")
	} else {
		t := newTable("NODE", "ROLE", "CONNECTED", "CAN-ACT", "VERSION", "UNDO", "NOTE")
		for _, n := range r.GetNodes() {
			t.row(n.GetName(), roleText(n), p.connected(n), canAct(n), n.GetVersion(), pendingUndo(n), nodeNote(n))
		}
		p.table(t)
	}
	if len(r.GetRequests()) == 0 {
		return
	}
	p.title("Requests of witnesses")
	t := newTable("WITNESS", "TARGET", "SENT", "FAILED", "LONGEST-GAP", "SINCE-SUCCESS", "VIP-MAC", "LAST-ERROR")
	for _, q := range r.GetRequests() {
		t.row(q.GetWitness(), q.GetTarget(), fmt.Sprint(q.GetSent()), failures(q), spanOf(q.GetLongestGap()), spanOf(q.GetOpenGap()), q.GetNeighbourMac(), q.GetLastError())
	}
	p.table(t)
}

func roleText(n *vipmovev1.Node) string {
	role := strings.ToLower(strings.TrimPrefix(n.GetRole().String(), "OBSERVER_ROLE_"))
	if n.GetRole() == vipmovev1.ObserverRole_OBSERVER_ROLE_UNSPECIFIED {
		role = "unknown"
	}
	if n.GetControlPlane() {
		role += ",control-plane"
	}
	return role
}

func (p *printer) connected(n *vipmovev1.Node) string {
	switch {
	case n.GetConnected():
		return "yes"
	case n.GetLastSeen() == nil:
		return "never"
	}
	return "no, last " + p.date(n.GetLastSeen())
}

func canAct(n *vipmovev1.Node) string {
	switch {
	case n.GetRole() == vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS:
		return ""
	case n.GetCanAct():
		return "yes"
	}
	return "no"
}

// pendingUndo is the address that comes back unless it is confirmed, and when.
func pendingUndo(n *vipmovev1.Node) string {
	u := n.GetPendingUndo()
	if u == nil {
		return ""
	}
	text := addressText(u.GetAddress())
	if u.GetDeadlineBoottime() != nil && n.GetKernel().GetBoottime() != nil {
		left := u.GetDeadlineBoottime().AsDuration() - n.GetKernel().GetBoottime().AsDuration()
		text += " in " + span(max(0, left).Round(time.Second))
	}
	return text
}

func nodeNote(n *vipmovev1.Node) string {
	var notes []string
	if !n.GetCanAct() && n.GetCannotActReason() != "" {
		notes = append(notes, n.GetCannotActReason())
	}
	if blocked := n.GetPendingUndo().GetBlocked(); blocked != "" {
		notes = append(notes, "undo blocked: "+blocked)
	}
	if incomplete := n.GetKernel().GetIncomplete(); len(incomplete) > 0 {
		notes = append(notes, "unknown: "+strings.Join(incomplete, "; "))
	}
	return strings.Join(notes, "; ")
}

// failures shows the count with its types: 3 (reset 1, timeout 2).
func failures(q *vipmovev1.Requests) string {
	if q.GetFailed() == 0 {
		return "0"
	}
	var types []string
	for _, name := range sortedNames(q.GetFailedByType()) {
		types = append(types, fmt.Sprintf("%s %d", name, q.GetFailedByType()[name]))
	}
	return withReason(fmt.Sprint(q.GetFailed()), strings.Join(types, ", "))
}
