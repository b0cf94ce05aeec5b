// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"time"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

// RunState of a run; docs/design.md section 6.
type RunState string

// States of a run. Done, rolled-back and needs-decision are ends; paused waits for a new plan.
const (
	Planned       RunState = "planned"
	Running       RunState = "running"
	Paused        RunState = "paused"
	Aborting      RunState = "aborting"
	Done          RunState = "done"
	RolledBack    RunState = "rolled-back"
	NeedsDecision RunState = "needs-decision"
)

// StepState of one node's step.
type StepState string

// States of a step. Recorded, applied and verified are open: the node is in change (I2).
const (
	Pending   StepState = "pending"
	Recorded  StepState = "recorded" // intent durable, the order may be on its way
	Applied   StepState = "applied"  // gone by listing, undo pending
	Verified  StepState = "verified" // silent on the wire, requests fine
	Confirmed StepState = "confirmed"
	Restored  StepState = "restored" // as before
	Unknown   StepState = "unknown"  // could not be asked; a person has to look
	Refused   StepState = "refused"  // the agent said no; as before
)

// Step is one node's part of a run.
type Step struct {
	PlannedStep
	State       StepState `json:"stepState"`
	CommandID   string    `json:"commandId"`
	Attempt     int       `json:"attempt"`
	Prepared    bool      `json:"prepared"`
	NoUndo      bool      `json:"noUndo"` // it was already absent: nothing to confirm or to put back
	RemovedAt   time.Time `json:"removedAt"`
	VerifiedAt  time.Time `json:"verifiedAt"`
	ConfirmedAt time.Time `json:"confirmedAt"`
	Detail      string    `json:"detail"`
}

func (s Step) open() bool { return s.State == Recorded || s.State == Applied || s.State == Verified }

// Run is one execution of a plan. It changes through Apply alone.
type Run struct {
	ID        string        `json:"id"`
	Plan      Plan          `json:"plan"`
	State     RunState      `json:"state"`
	Term      uint64        `json:"term"`
	Steps     []Step        `json:"steps"`
	Code      diagnose.Code `json:"code"`   // why it stopped; empty while nothing went wrong
	Reason    string        `json:"reason"` // the same as a sentence
	Changed   bool          `json:"changed"`
	Rollback  bool          `json:"rollback"` // confirmed nodes are put back too
	StartedBy string        `json:"startedBy"`
	StartedAt time.Time     `json:"startedAt"`
	EndedAt   time.Time     `json:"endedAt"`
	Verdict   string        `json:"verdict"` // after; empty until looked at
	Revision  uint64        `json:"revision"`
}

// Ended reports whether nothing more will happen by itself.
func (r Run) Ended() bool {
	return r.State == Done || r.State == RolledBack || r.State == NeedsDecision || r.State == Paused
}

// Open lists the nodes in change.
func (r Run) Open() []string {
	var out []string
	for _, s := range r.Steps {
		if s.open() {
			out = append(out, s.Node)
		}
	}
	return out
}

// Step returns a copy of the node's step.
func (r Run) Step(node string) (Step, bool) {
	for _, s := range r.Steps {
		if s.Node == node {
			return s, true
		}
	}
	return Step{}, false
}

// Codes for why a run stopped; documented in docs/findings.md.
const (
	AddressCameBack   diagnose.Code = "ADDRESS_CAME_BACK"
	UndoExpired       diagnose.Code = "UNDO_EXPIRED"
	StillPresent      diagnose.Code = "STILL_PRESENT"
	NodeUnreachable   diagnose.Code = "NODE_UNREACHABLE"
	AgentRefused      diagnose.Code = "AGENT_REFUSED"
	SurvivorMoved     diagnose.Code = "SURVIVOR_MOVED"
	WorldChanged      diagnose.Code = "WORLD_CHANGED"
	LastResponder     diagnose.Code = "LAST_RESPONDER"
	StillAnswers      diagnose.Code = "STILL_ANSWERS"
	RequestBudget     diagnose.Code = "REQUEST_BUDGET"
	NodeDoesNotServe  diagnose.Code = "NODE_DOES_NOT_SERVE"
	EvidenceUnknown   diagnose.Code = "EVIDENCE_UNKNOWN"
	VerdictNotSingle  diagnose.Code = "VERDICT_NOT_SINGLE"
	AbortedByOperator diagnose.Code = "ABORTED"
	RolledBackByOrder diagnose.Code = "ROLLED_BACK"
	InvariantBroken   diagnose.Code = "INVARIANT_BROKEN"
	NotStarted        diagnose.Code = "NOT_STARTED"
	CachesLag         diagnose.Code = "CACHES_LAG" // of a run that is done
)

// personNeeded are the reasons that a second try by itself would not mend.
var personNeeded = map[diagnose.Code]bool{
	AddressCameBack: true, NodeUnreachable: true, InvariantBroken: true, VerdictNotSingle: true,
}

// EventKind names what happened.
type EventKind string

// Events. Every event is durable before its effects are carried out and before it is shown (I9).
const (
	Created     EventKind = "created"
	Started     EventKind = "started"
	Observed    EventKind = "observed"     // carriers, before the next step is chosen
	Baselined   EventKind = "baselined"    // a node was looked at before its step
	Answered    EventKind = "answered"     // an agent's StepAnswer
	Lost        EventKind = "lost"         // the answer did not come: not done, or done
	Unreachable EventKind = "unreachable"  // the node could not be asked in time
	VerifiedEv  EventKind = "verified"     // a node was looked at after its step
	Dwelled     EventKind = "dwelled"      // it stayed right for its dwell
	FinalLooked EventKind = "final-looked" // the verdict after the last step
	Announced   EventKind = "announced"    // the survivor announced, or could not
	AbortAsked  EventKind = "abort-asked"
	RollbackAsk EventKind = "rollback-asked"
	Resumed     EventKind = "resumed" // a coordinator took the run over, with a higher term
	Broken      EventKind = "broken"  // an impossible move was tried
)

// Answer is what an agent said of a step; the values are those of proto StepAnswer.State.
type Answer string

// Answers of an agent.
const (
	AnswerPrepared      Answer = "prepared"
	AnswerNotSeen       Answer = "not-seen"
	AnswerRemoved       Answer = "removed"
	AnswerAlreadyAbsent Answer = "already-absent"
	AnswerConfirmed     Answer = "confirmed"
	AnswerRestored      Answer = "restored"
	AnswerCancelled     Answer = "cancelled"
	AnswerStillPresent  Answer = "still-present"
	AnswerUnknown       Answer = "unknown"
	AnswerRefused       Answer = "refused"
)

// Event is one durable fact of a run's history. At is the rim's clock.
type Event struct {
	Kind         EventKind     `json:"kind"`
	At           time.Time     `json:"at"`
	Node         string        `json:"node,omitempty"`
	CommandID    string        `json:"commandId,omitempty"`
	OK           bool          `json:"ok,omitempty"`
	Answer       Answer        `json:"answer,omitempty"`
	PresentAgain bool          `json:"presentAgain,omitempty"`
	Code         diagnose.Code `json:"code,omitempty"`
	Detail       string        `json:"detail,omitempty"`
	Carriers     []string      `json:"carriers,omitempty"`
	Term         uint64        `json:"term,omitempty"`
	By           string        `json:"by,omitempty"`
	Verdict      string        `json:"verdict,omitempty"`
	Plan         *Plan         `json:"plan,omitempty"`
	RunID        string        `json:"runId,omitempty"`
}

// EffectKind names what the driver has to do next.
type EffectKind string

// Effects. Each is answered by an event; none is carried out before its event is durable.
const (
	DoPrepare  EffectKind = "prepare"
	DoObserve  EffectKind = "observe"
	DoBaseline EffectKind = "baseline"
	DoRemove   EffectKind = "remove"
	DoVerify   EffectKind = "verify"
	DoDwell    EffectKind = "dwell" // with extends of the undo
	DoConfirm  EffectKind = "confirm"
	DoRestore  EffectKind = "restore"
	DoInquire  EffectKind = "inquire"
	DoFinal    EffectKind = "final"
	DoAnnounce EffectKind = "announce" // by the survivor, after the final verdict
)

// Effect is one thing for the driver to do.
type Effect struct {
	Kind      EffectKind
	Node      string
	CommandID string
	Dwell     time.Duration
	Rollback  bool // restore a confirmed removal
}
