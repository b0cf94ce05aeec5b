// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"net/netip"
	"time"
)

// Verdict for a VIP on a segment; docs/design.md section 4.
type Verdict string

// Verdicts.
const (
	VerdictNone      Verdict = "none"      // nobody answers
	VerdictSingle    Verdict = "single"    // exactly one MAC of one node
	VerdictFlux      Verdict = "flux"      // one node, several NICs
	VerdictContested Verdict = "contested" // several nodes
	VerdictForeign   Verdict = "foreign"   // a MAC of no agent answers
	VerdictSplit     Verdict = "split"     // observers disagree
	VerdictUnknown   Verdict = "unknown"   // not enough evidence
)

// Announcer is the software behind a responder.
type Announcer string

// Announcers as far as ARP alone can tell them.
const (
	AnnouncerKernel    Announcer = "kernel"            // only the kernel answers
	AnnouncerUserSpace Announcer = "user-space"        // answers and the kernel would not: user space or eBPF
	AnnouncerBoth      Announcer = "kernel+user-space" // two replies to one request, or held and answers the announcer question
	AnnouncerForeign   Announcer = "foreign"
	AnnouncerUnknown   Announcer = "unknown"
)

// HolderState judges one address or local route of a node that covers the VIP.
type HolderState string

// Holder states.
const (
	HolderStale   HolderState = "stale"   // nothing behind it, and the kernel answers for it
	HolderLatent  HolderState = "latent"  // stale, silent only because of a sysctl
	HolderLive    HolderState = "live"    // an IPVS service or a manager is behind it
	HolderOwn     HolderState = "own"     // the node's own address, or on a real NIC
	HolderUnknown HolderState = "unknown" // not enough is known
)

// ObserverState judges an observer.
type ObserverState string

// Observer states. Only an observer that hears can vouch for silence.
const (
	ObserverHears       ObserverState = "hears"
	ObserverBlind       ObserverState = "blind"
	ObserverCannotProbe ObserverState = "cannot-probe"
	ObserverAway        ObserverState = "away"
	ObserverIdle        ObserverState = "not-asked"
)

// Segment is the local network that the VIP is judged on.
type Segment struct {
	Prefix     netip.Prefix
	Interfaces map[string]string // node -> NIC
	Reason     string
}

// Responder is a (node, NIC, MAC) that answers on the wire.
type Responder struct {
	Node, Interface   string // Node is empty for a foreign MAC
	MAC               string
	Announcer         Announcer
	Reason            string
	SeenBy            []string
	RepliesPerRequest int
	AnswersQuestion   bool
	QuestionAsked     bool // by at least two observers, or all there are, that could probe
	Mismatched        bool
	Fastest           time.Duration
	Muted             Remains // with its kernel mute; empty: that was not tried
	MutedReason       string
}

// Holder is a node whose kernel has the VIP as a local address or local route.
type Holder struct {
	Node    string
	Address Address
	Route   *Route // set where it is only a local route
	State   HolderState
	Reason  string
}

// ObserverView is one row of the observer x responder matrix.
type ObserverView struct {
	Observer  string
	Role      Role
	Interface string
	State     ObserverState
	Detail    string
	Replies   map[string]int // responder MAC -> replies over its ordinary rounds
	Rounds    int
}

// Report is the judgement of one snapshot.
type Report struct {
	VIP         netip.Addr
	Segment     Segment
	Verdict     Verdict
	Responders  []Responder
	Holders     []Holder
	Observers   []ObserverView
	Findings    []Finding
	Owner       string // node whose announcer answers, proven by the announcer question; empty: not proven
	OwnerReason string
}

// Severity of a finding.
type Severity string

// Severities. A refusal blocks a plan unless that very code is overridden.
const (
	Info   Severity = "info"
	Warn   Severity = "warn"
	Refuse Severity = "refuse"
)

// Finding is one diagnosed fact; its code is documented in docs/findings.md.
type Finding struct {
	Code     Code
	Severity Severity
	Nodes    []string
	Subject  string
	Message  string
	Evidence []string
	NextStep string
}

// Code names a kind of finding.
type Code string

// Codes of findings, each with a section in docs/findings.md (held by a test).
const (
	StaleAddress       Code = "STALE_ADDRESS"
	LatentAddress      Code = "LATENT_ADDRESS"
	LiveAddress        Code = "LIVE_ADDRESS"
	AddressOnNIC       Code = "ADDRESS_ON_NIC"
	ResidualRoute      Code = "RESIDUAL_ROUTE"
	TwinAddress        Code = "TWIN_ADDRESS"
	NotHostPrefix      Code = "NOT_HOST_PREFIX"
	ProxyARP           Code = "PROXY_ARP"
	IPVSNotReadable    Code = "IPVS_UNREADABLE"
	ManagerRunning     Code = "MANAGER_RUNNING"
	UnknownManager     Code = "UNKNOWN_MANAGER"
	InventoryUnknown   Code = "INVENTORY_UNKNOWN"
	NodeAway           Code = "NODE_AWAY"
	ForeignResponder   Code = "FOREIGN_RESPONDER"
	TwoAnnouncers      Code = "TWO_ANNOUNCERS"
	NoAnnouncer        Code = "NO_ANNOUNCER"
	NobodyAnswers      Code = "NOBODY_ANSWERS"
	OwnerFiltered      Code = "OWNER_FILTERED"
	SplitView          Code = "SPLIT_VIEW"
	ObserverBlindCode  Code = "OBSERVER_BLIND"
	CannotProbe        Code = "CANNOT_PROBE"
	TooFewObservers    Code = "TOO_FEW_OBSERVERS"
	MismatchedSender   Code = "MISMATCHED_SENDER"
	QuestionUnusable   Code = "QUESTION_UNUSABLE"
	ARPPathUnknown     Code = "ARP_PATH_UNKNOWN"
	NoSegment          Code = "NO_SEGMENT"
	OutsideSubnet      Code = "OUTSIDE_SUBNET"
	VIPIsNodeAddress   Code = "VIP_IS_NODE_ADDRESS"
	UndoPendingCode    Code = "UNDO_PENDING"
	AgentCannotAct     Code = "AGENT_CANNOT_ACT"
	UnexplainedAnswer  Code = "UNEXPLAINED_ANSWER"
	ShadowedClusterIPs Code = "OTHER_STALE_ADDRESSES"
	NotAnswering       Code = "NOT_ANSWERING"
	CachesLag          Code = "CACHES_LAG"
)
