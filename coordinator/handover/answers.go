// SPDX-License-Identifier: Apache-2.0

package handover

import "fmt"

// answered takes an agent's word about its step. What it means depends on where the step stands; an
// answer that cannot belong there is an impossible move.
func (r *Run) answered(s *Step, e Event) ([]Effect, error) {
	if e.Answer == AnswerPrepared || (s.CommandID == "" && r.State == Running) {
		return r.prepared(s, e)
	}
	if e.CommandID != s.CommandID {
		return nil, nil // of an attempt that is over
	}
	if r.State == Aborting {
		return r.closing(s, e)
	}
	if !s.open() || r.State != Running {
		return nil, nil
	}
	if e.PresentAgain {
		return r.stop(AddressCameBack, orElse(e.Detail, fmt.Sprintf("the address is on node %s again although this run removed it", s.Node))), nil
	}
	switch e.Answer {
	case AnswerRemoved:
		return r.removed(s, e)
	case AnswerAlreadyAbsent:
		s.NoUndo = true
		return r.removed(s, e)
	case AnswerConfirmed:
		if s.State != Verified {
			return nil, fmt.Errorf("a confirmed answer to a step that is %s", s.State)
		}
		return r.confirmed(s, e), nil
	case AnswerNotSeen, AnswerCancelled:
		if s.State != Recorded {
			return nil, fmt.Errorf("a %s answer to a step that is %s", e.Answer, s.State)
		}
		s.State, s.Detail = Pending, "the order never reached the node"
		return r.proceed(), nil
	case AnswerRestored:
		s.State, s.Detail = Restored, e.Detail
		return r.stop(UndoExpired, orElse(e.Detail, "node "+s.Node+" put the address back: no confirm came in time")), nil
	case AnswerStillPresent:
		s.State, s.Detail = Restored, e.Detail
		return r.stop(StillPresent, "node "+s.Node+": "+e.Detail), nil
	case AnswerRefused:
		return r.refused(s, e), nil
	case AnswerUnknown:
		return r.stop(EvidenceUnknown, "node "+s.Node+" does not know what came of its step: "+e.Detail), nil
	}
	return nil, fmt.Errorf("unknown answer %q", e.Answer)
}

// prepared: every agent stores its entry before the first step; one that does not ends the run unchanged.
func (r *Run) prepared(s *Step, e Event) ([]Effect, error) {
	if r.State != Running {
		return nil, nil
	}
	if e.Answer != AnswerPrepared {
		s.Detail = e.Detail
		code := e.Code
		if code == "" {
			code = AgentRefused
		}
		return r.stop(code, "node "+s.Node+" did not prepare: "+e.Detail), nil
	}
	if s.Prepared {
		return nil, nil
	}
	s.Prepared = true
	if !r.allPrepared() {
		return nil, nil
	}
	return r.proceed(), nil
}

// removed: gone by the agent's listing; from here the undo is pending until confirm.
func (r *Run) removed(s *Step, e Event) ([]Effect, error) {
	switch s.State {
	case Recorded:
		s.RemovedAt = e.At
	case Applied, Verified: // said again after a lost answer or a take-over: look again before confirming
	default:
		return nil, fmt.Errorf("a removed answer to a step that is %s", s.State)
	}
	s.State, r.Changed = Applied, true
	return []Effect{{Kind: DoVerify, Node: s.Node, CommandID: s.CommandID}}, nil
}

// refused: the node is as it was unless something had been removed before.
func (r *Run) refused(s *Step, e Event) []Effect {
	code := e.Code
	if code == "" {
		code = AgentRefused
	}
	if s.State == Recorded {
		s.State = Refused
	}
	s.Detail = e.Detail
	return r.stop(code, "node "+s.Node+" refused: "+e.Detail)
}

// closing takes answers while the run stops: every open step ends restored, confirmed or unknown (I10).
func (r *Run) closing(s *Step, e Event) ([]Effect, error) {
	if s.State == Confirmed && r.Rollback {
		return r.rollbackAnswer(s, e), nil
	}
	if !s.open() {
		return nil, nil
	}
	switch e.Answer {
	case AnswerRestored, AnswerCancelled:
		s.State, s.Detail = Restored, e.Detail
	case AnswerConfirmed: // the confirm had been executed and its answer was lost: a verified step
		s.State, s.ConfirmedAt = Confirmed, e.At
	case AnswerRemoved, AnswerNotSeen, AnswerStillPresent: // said before the restore was done: ask again
		if e.Answer == AnswerRemoved {
			r.Changed = true
			if s.RemovedAt.IsZero() {
				s.RemovedAt = e.At
			}
		}
		return []Effect{{Kind: DoRestore, Node: s.Node, CommandID: s.CommandID}}, nil
	case AnswerAlreadyAbsent:
		s.State, s.Detail = Restored, "it was already absent; nothing to put back"
	case AnswerRefused, AnswerUnknown:
		s.State, s.Detail = Unknown, e.Detail
	default:
		return nil, fmt.Errorf("unknown answer %q", e.Answer)
	}
	return r.proceed(), nil
}

func (r *Run) rollbackAnswer(s *Step, e Event) []Effect {
	switch e.Answer {
	case AnswerRestored:
		s.State, s.Detail = Restored, e.Detail
	default:
		s.State, s.Detail = Unknown, string(e.Answer)+": "+e.Detail
	}
	return r.proceed()
}

// lost: the answer did not come, so the order was not done, or it was. Ask, never assume (I6).
func (r *Run) lost(s *Step, e Event) []Effect {
	switch {
	case r.State == Running && !s.Prepared:
		return r.stop(NodeUnreachable, "node "+s.Node+" did not answer prepare: "+e.Detail)
	case r.State == Running && s.open():
		return []Effect{{Kind: DoInquire, Node: s.Node, CommandID: s.CommandID}}
	case r.State == Aborting && s.open():
		return []Effect{{Kind: DoRestore, Node: s.Node, CommandID: s.CommandID}}
	case r.State == Aborting && r.Rollback && s.State == Confirmed:
		return []Effect{{Kind: DoRestore, Node: s.Node, CommandID: s.CommandID, Rollback: true}}
	}
	return nil
}

// unreachable: the node could not be asked for longer than its undo lives. It is named unknown (I10).
func (r *Run) unreachable(s *Step, e Event) []Effect {
	if r.Ended() || !s.open() && !(r.Rollback && s.State == Confirmed) {
		return nil
	}
	s.State = Unknown
	s.Detail = orElse(e.Detail, "could not be asked; its agent puts an unconfirmed removal back by itself")
	return r.stop(NodeUnreachable, "node "+s.Node+": "+s.Detail)
}
