// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vipmove/vipmove/agent/host"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// Recover takes up what an earlier process of this agent left open, before any
// order is taken. Of this boot: the timer goes on where it was. Of another
// boot: nothing is known of what the kernel held then, so nothing is put back.
func (s *Steps) Recover(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.signal()
	if err := s.cfg.Kernel.ClearMute(); err != nil {
		s.cfg.Log.Warn("cannot look for a mute that an earlier process may have left; the kernel ends it by itself", "error", err)
	}
	for _, step := range s.ledger.steps {
		switch {
		case !step.open():
		case step.BootID != s.bootID:
			step.Phase, step.Ended = Dropped, s.cfg.Kernel.BootTime()
			step.Detail = "the node booted while the removal was unconfirmed; what its kernel holds since then is not this agent's doing"
			s.cfg.Log.Warn("dropped an undo of another boot, nothing is put back", "command", step.CommandID,
				"address", step.Entry.Prefix.String(), "link", step.Entry.Link, "boot", step.BootID)
			_ = s.note(step)
		default:
			s.cfg.Log.Info("took up an undo", "command", step.CommandID, "phase", string(step.Phase),
				"address", step.Entry.Prefix.String(), "link", step.Entry.Link, "deadline", step.Deadline)
			s.settle(ctx, step, Restored)
		}
	}
	s.settleDue(ctx)
}

// settle decides by a listing what came of a step that is only intended. The
// delete is never waited for: a listing that shows the entry means that it did
// not happen, or that the entry came back, and present is what the step is then.
func (s *Steps) settle(ctx context.Context, step Step, present Phase) Step {
	if step.Phase != Intended {
		return step
	}
	list, err := s.cfg.Kernel.ListLink(ctx, step.Entry.LinkIndex)
	if err != nil && !errors.Is(err, host.ErrNoLink) {
		return step // still unknown: the deadline decides
	}
	now := s.cfg.Kernel.BootTime()
	if _, there := listed(step.Entry, list); there {
		step.Phase, step.Ended = present, now
		step.Detail = "the listing shows it: nothing was removed, or it came back"
		if present == Restored {
			step.Reason = reasonPresent
		}
	} else {
		step.Phase, step.Removed = Removed, now
	}
	_ = s.note(step)
	s.cfg.Log.Info("settled a step by a listing", "command", step.CommandID, "phase", string(step.Phase), "address", step.Entry.Prefix.String())
	return step
}

// settleDue puts back every open removal whose time is over.
func (s *Steps) settleDue(ctx context.Context) {
	now := s.cfg.Kernel.BootTime()
	for id, step := range s.ledger.steps {
		if !step.open() || now < step.Deadline || now < s.retryAt[id] {
			continue
		}
		reason := reasonExpired
		if !s.cfg.Connected() {
			reason = reasonHeadless
		}
		s.putBack(ctx, step, reason)
	}
}

// putBack restores what a step took off and returns the step as it is then: it
// stays open, and is tried again, for as long as the kernel does not have it.
func (s *Steps) putBack(ctx context.Context, step Step, reason string) Step {
	if step.Reason == "" {
		step.Reason = reason
	}
	out, err := s.cfg.Kernel.Restore(context.WithoutCancel(ctx), step.Entry)
	now := s.cfg.Kernel.BootTime()
	if err != nil {
		if s.blocked[step.CommandID] != err.Error() {
			s.cfg.Log.Error("cannot put an address back, trying again", "command", step.CommandID,
				"address", step.Entry.Prefix.String(), "link", step.Entry.Link, "reason", reason, "error", err)
		}
		s.blocked[step.CommandID], s.retryAt[step.CommandID] = err.Error(), now+retryAfter
		// From now on it is due, whoever asked, and after a crash too.
		if step.Deadline > now {
			step.Deadline = now
			_ = s.note(step)
		}
		return step
	}
	delete(s.blocked, step.CommandID)
	delete(s.retryAt, step.CommandID)
	step.Phase, step.Ended, step.Detail = Restored, now, out.Detail
	if out.Result == host.AlreadyPresent {
		step.Detail = "it was there already"
	}
	_ = s.note(step)
	s.cfg.Log.Info("put an address back", "command", step.CommandID, "address", step.Entry.Prefix.String(),
		"link", step.Entry.Link, "reason", step.Reason, "detail", step.Detail)
	s.cfg.OnRestore(step)
	return step
}

// Tick does what is due: expired undos, restores and records to try again.
func (s *Steps) Tick(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleDue(ctx)
	s.saveUnsaved()
	s.unmuteDue()
}

// Next is the CLOCK_BOOTTIME of the next thing to do; false: nothing.
func (s *Steps) Next() (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var next time.Duration
	found := false
	consider := func(at time.Duration) {
		if !found || at < next {
			next, found = at, true
		}
	}
	for id, step := range s.ledger.steps {
		if step.open() {
			consider(max(step.Deadline, s.retryAt[id]))
		}
	}
	if len(s.unsaved) > 0 {
		consider(s.saveAt)
	}
	if s.muted != nil {
		consider(s.muted.until)
	}
	return next, found
}

// Wake receives whenever Next may have changed.
func (s *Steps) Wake() <-chan struct{} { return s.wake }

// Shutdown puts back what is not confirmed, since nobody would be there to do
// it at its deadline, and lifts a mute. It reports whether everything is back.
func (s *Steps) Shutdown(ctx context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.muted != nil {
		_, _ = s.unmute(s.muted.vip)
	}
	for _, step := range s.ledger.steps {
		if step.open() {
			s.putBack(ctx, step, reasonShutdown)
		}
	}
	return s.ledger.pending() == nil
}

// look answers from the record, after looking whether the address is there
// although this step took it off.
func (s *Steps) look(ctx context.Context, step Step) *vipmovev1.StepAnswer {
	a := s.say(step)
	if !step.took() || step.Phase != Removed && step.Phase != Confirmed {
		return a
	}
	list, err := s.cfg.Kernel.ListLink(ctx, step.Entry.LinkIndex)
	switch {
	case errors.Is(err, host.ErrNoLink):
	case err != nil:
		a.Detail = join(a.Detail, fmt.Sprintf("whether it is there again is not known: %v", err))
	default:
		_, a.PresentAgain = listed(step.Entry, list)
	}
	return a
}

// othersLeft says where else the address is still held, by a listing of each
// link: those copies are not this agent's to touch.
func (s *Steps) othersLeft(ctx context.Context, others []host.Address) string {
	var parts []string
	for _, other := range others {
		list, err := s.cfg.Kernel.ListLink(ctx, other.LinkIndex)
		switch _, there := listed(other.Tuple(), list); {
		case err != nil:
			parts = append(parts, fmt.Sprintf("whether %s still has it is not known: %v", other.Link, err))
		case there:
			parts = append(parts, other.Link+" still has it, left alone")
		default:
			parts = append(parts, other.Link+" has it no longer, and not by this agent")
		}
	}
	return strings.Join(parts, "; ")
}

// join puts two remarks into one, either of which may be empty.
func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
