// SPDX-License-Identifier: Apache-2.0

package diagnose

import "slices"

// words are a finding's two sentences, for a tired operator. {vip} and {nodes} are filled in; what
// was measured stands in the evidence. docs/findings.md has a section for each code.
type words struct {
	message, next string
}

var catalogue = map[Code]words{
	StaleAddress: {"{vip} is held with nothing behind it on {nodes}: the kernel answers for it",
		"make a plan (vipmove plan {vip}); it removes this one address, canary first, owner last"},
	LatentAddress: {"{vip} is held with nothing behind it on {nodes} and silent only for now",
		"leave the sysctl as it is and let the plan remove the address too; a reboot or another sysctl brings the answer back"},
	LiveAddress: {"{vip} is in use on {nodes}: an IPVS service is behind it",
		"find out who still programs IPVS there (ipvsadm -Ln); a live address is never removed, and this cannot be overridden"},
	AddressOnNIC: {"{vip} is on a link of {nodes} that is somebody's: left alone",
		"if a VIP manager (kube-vip, keepalived) should no longer hold it, stop or restart that manager on the node"},
	ResidualRoute: {"a local route covers {vip} on {nodes} without an address: the kernel answers for it, or would, all the same",
		"remove the route on the node (ip route show table local; ip route del local PREFIX dev LINK table local), then look again"},
	TwinAddress: {"{vip} is on two links of {nodes}: without one of them the other goes on answering",
		"decide which of the two belongs there; a plan takes one address of a node off, so take the other leftover off by hand before"},
	NotHostPrefix: {"{vip} has a subnet on {nodes}, it is no host address: never removed",
		"find out who put it there with a subnet; removing it by hand can drop its siblings, see the evidence"},
	ProxyARP: {"proxy ARP would answer for {vip} on {nodes} without any address",
		"turn off proxy_arp on that NIC, or mend the route that leads to {vip} by another link; then look again"},
	IPVSNotReadable: {"whether an IPVS service is behind {vip} is not known on {nodes}",
		"give the agent NET_ADMIN, or let it read /proc/net/ip_vs; then look again"},
	ManagerRunning: {"whoever fills the link that holds {vip} runs on {nodes}: it may put the address back",
		"stop it there for good, then plan again; if it will not touch the address, plan with --override MANAGER_RUNNING"},
	UnknownManager: {"it is not known whether something manages the link that holds {vip} on {nodes}",
		"look on the node whether kube-proxy runs (Cilium answers on its health port too); if not, plan with --override UNKNOWN_MANAGER"},
	InventoryUnknown: {"what {nodes} holds could not be read completely: unknown, not clean",
		"mend what the evidence names and look again; no step starts on unknown"},
	NodeAway: {"no session with {nodes}: what is held there is unknown",
		"bring the agent back (vipmove nodes shows all); a node that is gone for good can be left out with --without"},
	ForeignResponder: {"a machine that is none of the cluster's nodes answers for {vip}",
		"find the MAC in the switch's address table or the DHCP leases and take {vip} off that machine, or choose another address"},
	TwoAnnouncers: {"several announcers answer for {vip}: on {nodes}; no removal makes that one",
		"look for two Services with this address, or announcers that cannot hear each other (MetalLB: port 7946), and mend that first"},
	NoAnnouncer: {"nothing proves that an announcer would answer for {vip} once the stale addresses are gone",
		"start the announcer (MetalLB, Cilium, …) and look again; if it ignores the announcer question, name its node with --owner"},
	NobodyAnswers: {"nobody answers for {vip}",
		"look whether the announcer runs and the Service still has the address; there is nothing to verify a change against"},
	OwnerFiltered: {"{nodes} answers for {vip} and the network delivers none of it",
		"look for port security, allowed address pairs, MAC filters and forged-transmit settings on the switch or hypervisor port"},
	SplitView: {"observers disagree on who answers for {vip}",
		"ask again (vipmove owners {vip} --rounds 3); if it stays, the segment is partitioned or something filters ARP between them"},
	ObserverBlindCode: {"{nodes} hears nothing: what it did not hear is no evidence",
		"look at the NIC (Wi-Fi, a bridge, a VM without promiscuous mode); the others' word stands without it"},
	CannotProbe: {"{nodes} could not send its requests",
		"mend what the evidence names; until then the others' word stands without it"},
	TooFewObservers: {"too few observers can vouch for silence: two are needed, on different nodes",
		"connect another agent or a witness on this segment (vipmove witness)"},
	MismatchedSender: {"replies for {vip} name another MAC than the one they left from",
		"ask the named MAC alone; where it answers itself this is a bond or a proxying access point, else somebody forges replies"},
	QuestionUnusable: {"the announcer question proves nothing on {nodes}",
		"turn off route_localnet or accept_local on that NIC, or name the owner with --owner"},
	ARPPathUnknown: {"something else is on the ARP path of {nodes} and may silence or answer ARP",
		"see whether it is Cilium's program (expected) or a rule about ARP (nft list ruleset; arptables -L; tc filter show; ip link)"},
	NoSegment: {"there is no local network to ask for {vip} on",
		"name the NIC that faces the clients with --interface"},
	OutsideSubnet: {"{vip} is in no subnet of the NIC that was named",
		"check the address and the NIC; clients reach it only if their router sends it to this segment"},
	VIPIsNodeAddress: {"{vip} is the own address of {nodes}, not a VIP",
		"check the address; a node's own address is never touched, and this cannot be overridden"},
	UndoPendingCode: {"a removal on {nodes} waits for its confirm or its undo",
		"wait for the undo (vipmove status); if it is blocked, give the agent its rights back, and it puts the address back itself"},
	AgentCannotAct: {"the agent of {nodes} may not change anything",
		"mend what the evidence names (rights, allowed links and prefixes, the pause file), then plan again"},
	UnexplainedAnswer: {"the inventory of {nodes} does not explain what it answers, or does not",
		"look again; if it stays, something answers or silences ARP that no agent sees: do not change anything before it is found"},
	NotAnswering: {"{vip} is announced (gratuitous ARP) by a MAC that answers no request for it",
		"look at the announcer there (its address, its filters, restart it): caches learn a MAC that does not answer"},
	CachesLag: {"the neighbour entry of {nodes} for {vip} names a MAC that does not answer",
		"have the machine that answers announce the address again, or clear the entry (ip neigh del {vip} dev NIC) there and on routers"},
	ShadowedClusterIPs: {"other addresses with nothing behind them are on the same link of {nodes}: listed and left alone",
		"nothing; they answer only if the LAN asks for them, and are removed only when named"},
}

// Codes lists every code that a judgement can give, sorted.
func Codes() []Code {
	out := make([]Code, 0, len(catalogue))
	for c := range catalogue {
		out = append(out, c)
	}
	slices.Sort(out)
	return out
}
