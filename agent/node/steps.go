// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/vipmove/vipmove/agent/host"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// Bounds of a removal's time to live. A coordinator that wants longer extends.
const (
	DefaultTTL = 30 * time.Second
	MaxTTL     = 10 * time.Minute
)

// retryAfter is how long a restore or a save that did not work is left alone.
const retryAfter = time.Second

// StepsConfig says what Steps works on and what it may do.
type StepsConfig struct {
	Node   string
	Policy Policy
	Kernel host.Kernel
	Store  Store
	Log    *slog.Logger
	// Connected reports whether a coordinator is there; it only decides
	// whether an expiry is called expired or headless. nil: never.
	Connected func() bool
	// Rights says why the kernel would refuse a change by this process; empty
	// when it would not. nil: it would not.
	Rights func() string
	// OnRefusal is told every refusal, OnRestore every address that was put
	// back. They must not block. nil: nobody is told.
	OnRefusal func(vipmovev1.Refusal_Code)
	OnRestore func(Step)
}

// Steps is the step machine: the orders that change this node, one at a time,
// and the undo of what nobody confirmed. Its rules, and where a crash leaves it:
//
//	prepare   entry saved
//	remove    guard, record "intended" saved │ address deleted │ "removed" saved, answer
//	          ─ crash: listed → "restored"   │ crash: not listed → "removed", undo pending
//	extend    later deadline saved, answer
//	confirm   "confirmed" saved, answer        (never past the deadline)
//	restore   address put back │ "restored" saved, answer
//	          ─ crash: still open, put back at the deadline, which is found done
//
// All methods are safe for concurrent use.
type Steps struct {
	cfg    StepsConfig
	bootID string
	wake   chan struct{} // capacity 1: Next may have changed

	mu      sync.Mutex // held through kernel and disk: changes are one at a time
	ledger  ledger
	damaged string                   // why the records cannot be trusted, since the start
	unsaved map[string]error         // command ids whose record in memory is newer than on disk, or may be
	saveAt  time.Duration            // when to try again to save those
	blocked map[string]string        // open command ids that cannot be put back, and why
	retryAt map[string]time.Duration // when to try those again
	muted   *muting                  // nil: the kernel answers as it likes
}

// setDefaults has nobody told and nothing denied where nothing is set.
func (cfg *StepsConfig) setDefaults() {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Connected == nil {
		cfg.Connected = func() bool { return false }
	}
	if cfg.Rights == nil {
		cfg.Rights = func() string { return "" }
	}
	if cfg.OnRefusal == nil {
		cfg.OnRefusal = func(vipmovev1.Refusal_Code) {}
	}
	if cfg.OnRestore == nil {
		cfg.OnRestore = func(Step) {}
	}
}

// NewSteps reads the records and changes nothing; Recover comes next. Records
// that cannot be read are no error here: every order that changes something is
// then refused with STATE_NOT_DURABLE.
func NewSteps(cfg StepsConfig) (*Steps, error) {
	cfg.setDefaults()
	bootID, err := cfg.Kernel.BootID()
	if err != nil {
		return nil, fmt.Errorf("reading this boot's id: %w", err)
	}
	s := &Steps{
		cfg: cfg, bootID: bootID, wake: make(chan struct{}, 1),
		unsaved: map[string]error{}, blocked: map[string]string{}, retryAt: map[string]time.Duration{},
	}
	records, err := cfg.Store.Load()
	if err != nil {
		s.damaged = err.Error()
		cfg.Log.Error("cannot trust the records on disk, refusing changes", "error", err)
	}
	s.ledger = newLedger(records)
	return s, nil
}

// Order carries out one order that is about a step: Prepare, Remove, Extend,
// Confirm, Restore or Inquire; or a Mute, which ends before any of those
// begins. id is the command's own. It returns when the
// outcome is on disk, or says that it is not (I9).
func (s *Steps) Order(ctx context.Context, c *vipmovev1.Command) *vipmovev1.CommandResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.signal()
	s.settleDue(ctx) // expiry beats whatever is queued
	s.saveUnsaved()
	result := &vipmovev1.CommandResult{CommandId: c.GetCommandId()}
	answer, refusal, err := s.answer(ctx, c, result)
	switch {
	case err != nil:
		result.Error = err.Error()
		return result
	case refusal == nil && answer == nil:
		return result
	case refusal != nil:
		s.cfg.OnRefusal(refusal.GetCode())
		s.cfg.Log.Warn("refused an order", "refusal", refusal.GetCode().String(), "reason", refusal.GetMessage(),
			"command", c.GetCommandId())
		result.Refusal = refusal
		answer = &vipmovev1.StepAnswer{State: vipmovev1.StepAnswer_STATE_REFUSED, Detail: refusal.GetMessage()}
	}
	result.Answer = &vipmovev1.CommandResult_Step{Step: answer}
	return result
}

// answer puts the answer to a mute into result, and returns that about a step.
func (s *Steps) answer(ctx context.Context, c *vipmovev1.Command, result *vipmovev1.CommandResult) (*vipmovev1.StepAnswer, *vipmovev1.Refusal, error) {
	if c.GetMute() == nil {
		if s.muted != nil { // a step judges and changes the kernel as it is (I1)
			_, _ = s.unmute(s.muted.vip)
		}
		return s.order(ctx, c)
	}
	mute, refusal, err := s.mute(c.GetMute())
	if mute != nil {
		result.Answer = &vipmovev1.CommandResult_Mute{Mute: mute}
	}
	return nil, refusal, err
}

func (s *Steps) order(ctx context.Context, c *vipmovev1.Command) (*vipmovev1.StepAnswer, *vipmovev1.Refusal, error) {
	if c.GetCommandId() == "" {
		return nil, nil, errors.New("reading the command: it has no id")
	}
	switch o := c.GetOrder().(type) {
	case *vipmovev1.Command_Prepare:
		return s.prepare(ctx, o.Prepare)
	case *vipmovev1.Command_Remove:
		answer, refusal := s.remove(ctx, c.GetCommandId(), o.Remove)
		return answer, refusal, nil
	case *vipmovev1.Command_Extend:
		answer, refusal := s.extend(ctx, o.Extend)
		return answer, refusal, nil
	case *vipmovev1.Command_Confirm:
		answer, refusal := s.confirm(ctx, o.Confirm)
		return answer, refusal, nil
	case *vipmovev1.Command_Restore:
		answer, refusal := s.restore(ctx, o.Restore)
		return answer, refusal, nil
	case *vipmovev1.Command_Inquire:
		answer, refusal := s.inquire(ctx, o.Inquire)
		return answer, refusal, nil
	}
	return nil, nil, fmt.Errorf("reading the command: %T is no order about a step", c.GetOrder())
}

// obey checks who orders, for which node and which boot, and keeps the highest
// term on disk before anything else is done (I7).
func (s *Steps) obey(f *vipmovev1.Fence) *vipmovev1.Refusal {
	if s.damaged != "" {
		return s.notDurable(errors.New(s.damaged))
	}
	term, reset := s.ledger.term, false
	refusal := checkSender(term, s.cfg.Node, f)
	if refusal.GetCode() == vipmovev1.Refusal_OTHER_JOURNAL || refusal.GetCode() == vipmovev1.Refusal_STALE_TERM {
		if reset = s.resetRequested(); reset {
			term = Term{}
			refusal = checkSender(term, s.cfg.Node, f)
		}
	}
	if refusal != nil {
		return refusal
	}
	if r := checkBoot(s.bootID, f); r != nil {
		return r
	}
	if wanted := (Term{Journal: f.GetJournalId(), Term: f.GetTerm()}); wanted != s.ledger.term {
		if err := s.cfg.Store.SaveTerm(wanted); err != nil {
			return s.notDurable(err)
		}
		s.cfg.Log.Info("obeying a new term", "journal", wanted.Journal, "term", wanted.Term, "before", s.ledger.term.Term, "reset", reset)
		s.ledger.term = wanted
	}
	if reset {
		if err := s.cfg.Store.ResetDone(); err != nil {
			s.cfg.Log.Error("cannot remove the request to reset the term", "error", err)
		}
	}
	return nil
}

func (s *Steps) resetRequested() bool {
	asked, err := s.cfg.Store.ResetRequested()
	return asked && err == nil
}

func (s *Steps) notDurable(err error) *vipmovev1.Refusal {
	return refuse(vipmovev1.Refusal_STATE_NOT_DURABLE, "make the state directory readable and writable, then restart the agent",
		"this agent cannot keep records: %v", err)
}

// facts is what the guard has to know now.
func (s *Steps) facts() facts {
	now := s.cfg.Kernel.BootTime()
	f := facts{NoRights: s.cfg.Rights(), Damaged: s.damaged, Pending: s.ledger.pending()}
	f.Changes = s.ledger.changes(s.bootID, now-ChangeWindow)
	for id, err := range s.unsaved {
		f.Damaged = fmt.Sprintf("what came of command %s could not be written: %v", id, err)
	}
	paused, path, err := s.cfg.Store.Paused()
	switch {
	case err != nil:
		f.Paused = fmt.Sprintf("whether %s is there cannot be told: %v", path, err)
	case paused:
		f.Paused = path + " is there"
	}
	return f
}

// Pending is the undo that is pending on this node; nil: none is.
func (s *Steps) Pending() *vipmovev1.PendingUndo {
	s.mu.Lock()
	defer s.mu.Unlock()
	step := s.ledger.pending()
	if step == nil {
		return nil
	}
	return undo(*step, s.blocked[step.CommandID])
}

// CannotAct says why this agent would refuse any change now; nil: it would
// not. An undo that is pending is told apart, by Pending.
func (s *Steps) CannotAct() *vipmovev1.Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.facts()
	f.Pending = nil
	return checkNode(s.cfg.Policy, f)
}

// Welcome hears of a coordinator's term before its first order: a higher one
// of the journal that this agent obeys is kept, so that the coordinator that
// was replaced is refused from now on. A first journal, and another one, wait
// for an order.
func (s *Steps) Welcome(journal string, term uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.damaged != "" || journal != s.ledger.term.Journal || term <= s.ledger.term.Term {
		return
	}
	next := Term{Journal: journal, Term: term}
	if err := s.cfg.Store.SaveTerm(next); err != nil {
		s.cfg.Log.Warn("cannot keep the coordinator's term yet", "journal", journal, "term", term, "error", err)
		return
	}
	s.cfg.Log.Info("obeying a new term", "journal", journal, "term", term, "before", s.ledger.term.Term)
	s.ledger.term = next
}

// signal wakes whoever waits for Next to come.
func (s *Steps) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
