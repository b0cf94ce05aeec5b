// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"net/netip"
	"strings"
)

// Would says whether a kernel would answer one ARP request.
type Would string

// Answers of WouldAnswer. Unknown is neither yes nor no.
const (
	AnswerYes     Would = "yes"
	AnswerNo      Would = "no"
	AnswerUnknown Would = "unknown"
)

// Cause is the one thing that decided an Answer.
type Cause string

// Causes. CauseArpIgnore, CauseArpFilter and CauseSource are settings: what is silent by them
// answers again when somebody changes them.
const (
	CauseLocal     Cause = "local"      // the address is local and nothing hides it
	CauseProxy     Cause = "proxy"      // proxy ARP answers, up to 0.8 s late
	CauseNotLocal  Cause = "not-local"  // no address, no local route, no proxy
	CauseArpIgnore Cause = "arp_ignore" // net.ipv4.conf.*.arp_ignore
	CauseArpFilter Cause = "arp_filter" // net.ipv4.conf.*.arp_filter
	CauseSource    Cause = "rp_filter"  // the sender is not routed back here (rp_filter)
	CauseMartian   Cause = "martian"    // a sender that no kernel accepts
	CauseNIC       Cause = "nic"        // down, without ARP, or a port of something else
	CauseUnknown   Cause = "unknown"
)

// Answer is the judgement of one request, with a sentence for people.
type Answer struct {
	Would  Would
	Cause  Cause
	Reason string
}

func answer(w Would, c Cause, format string, args ...any) Answer {
	return Answer{Would: w, Cause: c, Reason: fmt.Sprintf(format, args...)}
}

// Sender is the sender protocol address of a request. The zero Sender is an ordinary neighbour
// with an address of the NIC's own subnet, whichever.
type Sender struct{ Addr netip.Addr }

// From is the sender with this very address.
func From(a netip.Addr) Sender { return Sender{Addr: a} }

// ZeroAddress is the sender of an RFC 5227 probe, 0.0.0.0.
func ZeroAddress() Sender { return Sender{Addr: netip.IPv4Unspecified()} }

// Martian is the sender of the announcer question, 127.0.0.1 (docs/design.md section 7).
func Martian() Sender { return Sender{Addr: netip.AddrFrom4([4]byte{127, 0, 0, 1})} }

// WouldAnswer says whether n's kernel would answer an ARP request for vip that arrives on nic
// from sender, as Linux does in arp_process (net/ipv4/arp.c). It is a judgement of what is held
// and set, not of what was heard. Whatever is not known and could change the answer makes it
// unknown; nftables, tc and XDP on the ARP path always do.
//
// Not in the inventory and so not judged: proxy neighbours (ip neigh add proxy), proxy_arp_pvlan,
// medium_id, routes of one TOS, a local route that was deleted under its address, and policy rules
// that are about unmarked packets; that there are others is allowed for. lab/oracle compares all of
// it with a real kernel.
func WouldAnswer(n Node, nic string, vip netip.Addr, sender Sender) Answer {
	a := kernelAnswer(n, nic, vip, sender)
	if n.Kernel != nil && n.Kernel.ARPPath.Unknown {
		return answer(AnswerUnknown, CauseUnknown, "something else is on the ARP path of %s: %s",
			n.Name, orNothing(n.Kernel.ARPPath.Reasons))
	}
	return a
}

// kernelAnswer is WouldAnswer as if nothing else stood on the ARP path. A no of it holds whatever
// stands there: what answers then is a program and not the kernel.
func kernelAnswer(n Node, nic string, vip netip.Addr, sender Sender) Answer {
	k := n.Kernel
	switch {
	case k == nil:
		return answer(AnswerUnknown, CauseUnknown, "the inventory of %s is not known", n.Name)
	case len(k.Incomplete) > 0:
		return answer(AnswerUnknown, CauseUnknown, "the inventory of %s is not complete: %s", n.Name, k.Incomplete[0])
	case !vip.Is4():
		return answer(AnswerUnknown, CauseUnknown, "%s is not an IPv4 address; only ARP is judged", vip)
	}
	if sender.Addr = sender.Addr.Unmap(); sender.Addr.IsValid() && !sender.Addr.Is4() {
		return answer(AnswerUnknown, CauseUnknown, "%s cannot be the sender of an ARP request", sender.Addr)
	}
	l := k.link(nic)
	if l == nil {
		return answer(AnswerUnknown, CauseUnknown, "%s has no link %s", n.Name, nic)
	}
	if a, deaf := k.deaf(*l); deaf {
		return a
	}
	return newRequest(k, l, vip, sender).judge()
}

// deaf tells whether ARP never reaches the kernel through this link: arp_rcv drops on NOARP, and
// a port's frames are taken by its master.
func (k *Kernel) deaf(l Link) (Answer, bool) {
	const noARP = 0x80 // IFF_NOARP
	switch {
	case !l.Up && l.Flags == 0: // every link has flags: none were told
		return answer(AnswerUnknown, CauseUnknown, "it was not told whether %s is up", l.Name), true
	case !l.Up:
		return answer(AnswerNo, CauseNIC, "%s is down", l.Name), true
	case l.Flags&noARP != 0:
		return answer(AnswerNo, CauseNIC, "%s has no ARP (NOARP)", l.Name), true
	case l.BridgePort:
		return answer(AnswerNo, CauseNIC, "%s is a port of a bridge, which takes its ARP", l.Name), true
	case l.MasterIndex == 0:
		return Answer{}, false
	}
	m := k.linkByIndex(l.MasterIndex)
	if m == nil {
		return answer(AnswerUnknown, CauseUnknown, "%s belongs to link %d, which is not listed", l.Name, l.MasterIndex), true
	}
	switch m.Kind {
	case "bridge", "bond", "team":
		return answer(AnswerNo, CauseNIC, "%s is a port of %s, which takes its ARP", l.Name, m.Name), true
	}
	return answer(AnswerUnknown, CauseUnknown, "%s belongs to %s (%s), whose ARP is not judged", l.Name, m.Name, m.Kind), true
}

func (k *Kernel) link(name string) *Link {
	for i := range k.Links {
		if k.Links[i].Name == name {
			return &k.Links[i]
		}
	}
	return nil
}

func (k *Kernel) linkByIndex(index int) *Link {
	for i := range k.Links {
		if k.Links[i].Index == index && index != 0 {
			return &k.Links[i]
		}
	}
	return nil
}

// linkName is the name that the link has now; index wins where both are given.
func (k *Kernel) linkName(name string, index int) string {
	if l := k.linkByIndex(index); l != nil {
		return l.Name
	}
	return name
}

func orNothing(reasons []string) string {
	if len(reasons) == 0 {
		return "no reason given"
	}
	return strings.Join(reasons, "; ")
}
