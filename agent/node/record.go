// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/agent/report"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// Term is the highest (journal, term) that this agent has obeyed. A lower term
// of that journal, and any other journal, is refused (I7).
type Term struct {
	Journal string `json:"journal"`
	Term    uint64 `json:"term"`
}

// Prepared is this node's own entry of a plan: the only thing that commands of
// that run can name (I5).
type Prepared struct {
	RunID     string     `json:"runId"`
	PlanHash  string     `json:"planHash"`
	Step      string     `json:"step"`
	VIP       string     `json:"vip"`
	Entry     host.Tuple `json:"entry"`
	Overrides []string   `json:"overrides,omitempty"` // names of Refusal.Code
	Sequence  uint64     `json:"sequence"`            // order of preparing, for pruning
}

// Phase is how far a step has come on this node.
type Phase string

// Phases. Intended and Removed are open: an undo is pending. All others are
// final, but that a confirmed removal can be rolled back once.
const (
	Intended      Phase = "intended"       // recorded; the delete may or may not have happened
	Removed       Phase = "removed"        // gone by listing, undo pending
	Confirmed     Phase = "confirmed"      // the undo is retired
	Restored      Phase = "restored"       // put back, or found present when it was to be put back
	AlreadyAbsent Phase = "already-absent" // was not there; nothing was done, nothing to undo
	StillPresent  Phase = "still-present"  // the delete did not take it away
	Cancelled     Phase = "cancelled"      // nothing was removed and nothing will be
	Refused       Phase = "refused"        // nothing was sent to the kernel, Refusal says why
	Dropped       Phase = "dropped"        // the node booted while the removal was unconfirmed
)

// Why an address was put back (StepAnswer.restore_reason).
const (
	reasonExpired    = "expired"     // its time ran out with a coordinator connected
	reasonHeadless   = "headless"    // its time ran out without one
	reasonOrdered    = "ordered"     // the coordinator said so, rollback included
	reasonShutdown   = "shutdown"    // the agent was told to stop
	reasonNotDurable = "not-durable" // the removal could not be recorded
	reasonPresent    = "present"     // found present after a crash: nothing was removed, or it came back
)

// Step is what this agent did about one Remove command, or swore not to do.
// While its phase is open it is the undo record: on disk before the delete.
// Times are CLOCK_BOOTTIME of the boot that BootID names.
type Step struct {
	CommandID string     `json:"commandId"`
	RunID     string     `json:"runId"`
	PlanHash  string     `json:"planHash"`
	Step      string     `json:"step"`
	BootID    string     `json:"bootId"`
	Entry     host.Tuple `json:"entry"` // as the kernel listed it right before the delete
	Phase     Phase      `json:"phase"`

	Deadline time.Duration `json:"deadlineNs"` // the undo fires then
	Removed  time.Duration `json:"removedNs"`  // when the delete returned; 0: nothing was removed
	Ended    time.Duration `json:"endedNs"`    // when the phase became final

	Reason  string `json:"reason,omitempty"`  // of Restored
	Detail  string `json:"detail,omitempty"`  // a sentence for people
	Refusal string `json:"refusal,omitempty"` // of Refused: name of a Refusal.Code

	Sequence uint64 `json:"sequence"` // order of first recording, for pruning
}

// open reports whether an undo is pending.
func (s Step) open() bool { return s.Phase == Intended || s.Phase == Removed }

// took reports whether this agent took the address off.
func (s Step) took() bool { return s.Removed != 0 }

// states are the answers that phases stand for.
var states = map[Phase]vipmovev1.StepAnswer_State{
	Intended:      vipmovev1.StepAnswer_STATE_UNKNOWN,
	Removed:       vipmovev1.StepAnswer_STATE_REMOVED,
	Confirmed:     vipmovev1.StepAnswer_STATE_CONFIRMED,
	Restored:      vipmovev1.StepAnswer_STATE_RESTORED,
	AlreadyAbsent: vipmovev1.StepAnswer_STATE_ALREADY_ABSENT,
	StillPresent:  vipmovev1.StepAnswer_STATE_STILL_PRESENT,
	Cancelled:     vipmovev1.StepAnswer_STATE_CANCELLED,
	Refused:       vipmovev1.StepAnswer_STATE_REFUSED,
	Dropped:       vipmovev1.StepAnswer_STATE_UNKNOWN,
}

// Records are all that an agent keeps on disk.
type Records struct {
	Term     Term
	Prepared []Prepared
	Steps    []Step
}

// answer is what the record says.
func answer(s Step) *vipmovev1.StepAnswer {
	a := &vipmovev1.StepAnswer{State: states[s.Phase], Detail: s.Detail, RestoreReason: s.Reason}
	if s.open() {
		a.DeadlineBoottime = durationpb.New(s.Deadline)
	}
	if s.took() {
		a.RemovedBoottime = durationpb.New(s.Removed)
	}
	return a
}

// undo is the open step as others see it.
func undo(s Step, blocked string) *vipmovev1.PendingUndo {
	return &vipmovev1.PendingUndo{
		RunId: s.RunID, Step: s.Step, CommandId: s.CommandID, Address: report.AddressToProto(s.Entry),
		DeadlineBoottime: durationpb.New(s.Deadline), Blocked: blocked,
	}
}
