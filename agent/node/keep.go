// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// commit moves a step where nothing in the kernel has changed yet: the disk
// first, then memory. After an error memory has the old record (for a new one:
// that it is cancelled), the disk may have either, and so memory's is written
// again until that works.
func (s *Steps) commit(next Step) error {
	err := s.cfg.Store.SaveStep(next)
	if err != nil {
		s.unsaved[next.CommandID] = err
		s.saveAt = s.cfg.Kernel.BootTime() + retryAfter
		if _, old := s.ledger.steps[next.CommandID]; !old {
			next.Phase, next.Ended, next.Detail = Cancelled, s.cfg.Kernel.BootTime(), "it could not be recorded, so nothing was done"
			s.ledger.steps[next.CommandID] = next
		}
		return err
	}
	delete(s.unsaved, next.CommandID)
	s.ledger.steps[next.CommandID] = next
	return nil
}

// note moves a step after the kernel has changed: memory says what is true,
// and the disk follows, now or later. Until then no answer repeats it and no
// new change is begun.
func (s *Steps) note(next Step) error {
	s.ledger.steps[next.CommandID] = next
	if err := s.commit(next); err != nil {
		s.cfg.Log.Error("cannot write what came of a step", "command", next.CommandID, "phase", string(next.Phase), "error", err)
		return err
	}
	return nil
}

// saveUnsaved brings the disk up to memory.
func (s *Steps) saveUnsaved() {
	now := s.cfg.Kernel.BootTime()
	if len(s.unsaved) == 0 || now < s.saveAt {
		return
	}
	for id := range s.unsaved {
		if err := s.commit(s.ledger.steps[id]); err == nil {
			s.cfg.Log.Info("wrote what came of a step", "command", id, "phase", string(s.ledger.steps[id].Phase))
		}
	}
}

// prune forgets the oldest records. One that cannot be dropped stays.
func (s *Steps) prune() {
	since := s.cfg.Kernel.BootTime() - ChangeWindow
	commands, runs := s.ledger.surplus(s.bootID, since)
	for _, id := range commands {
		if err := s.cfg.Store.DropStep(id); err != nil {
			s.cfg.Log.Warn("cannot forget an old step", "command", id, "error", err)
			continue
		}
		delete(s.ledger.steps, id)
		delete(s.unsaved, id)
	}
	for _, id := range runs {
		if err := s.cfg.Store.DropPrepared(id); err != nil {
			s.cfg.Log.Warn("cannot forget an old run", "run", id, "error", err)
			continue
		}
		delete(s.ledger.prepared, id)
	}
}

// say answers from the record. What is not on disk is not said (I9).
func (s *Steps) say(step Step) *vipmovev1.StepAnswer {
	a := answer(step)
	if err := s.unsaved[step.CommandID]; err != nil {
		return &vipmovev1.StepAnswer{
			State:  vipmovev1.StepAnswer_STATE_UNKNOWN,
			Detail: fmt.Sprintf("what came of it (%s) could not be written yet: %v", step.Phase, err),
		}
	}
	if why := s.blocked[step.CommandID]; why != "" && step.open() {
		a.State = vipmovev1.StepAnswer_STATE_UNKNOWN
		a.Detail = "its address is off and cannot be put back now: " + why
	}
	return a
}
