// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vipmove/vipmove/agent/host"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// model watches a story from outside: through the fake kernel's own ledger and
// through what the agent said, never through the agent's records.
type model struct {
	*story
	said     map[string]vipmovev1.StepAnswer_State // newest word on each command
	runs     map[string]string                     // command -> its run
	took     map[string]int                        // run -> times its address went by the agent
	ordering string                                // run of the removal that is being carried out
	term     uint64                                // highest that was obeyed

	// The kernel, mirrored: its own listings are made to fail.
	present   bool
	denied    bool
	deletions []bool // scripted answers to the next requests: done all the same?
	additions []bool
}

const maxTerm = 4

var runNames = []string{"run1", "run2"}

func newModel(t *rapid.T) *model {
	m := &model{
		story: newStory(t), present: true, said: map[string]vipmovev1.StepAnswer_State{}, runs: map[string]string{}, took: map[string]int{},
	}
	m.policy.MaxChanges = MaxMaxChanges
	m.start()
	m.watch()
	return m
}

// watch has the kernel tell what is done to it, and when.
func (m *model) watch() {
	m.kernel.OnStep(func(step host.Step, entry host.Tuple) {
		if entry.Prefix != m.entry.Prefix || entry.LinkIndex != m.entry.LinkIndex {
			m.t.Errorf("I5: the agent works on %s, prepared was %s", entry, m.entry)
		}
		switch step {
		case host.Deleting:
			if m.ordering == "" {
				m.t.Errorf("I13: a delete without an order")
			}
		case host.Deleted:
			if m.done(&m.deletions) && m.present {
				m.present = false
				m.took[m.ordering]++
			}
		case host.Added:
			if m.done(&m.additions) {
				m.present = true
			}
		}
	})
}

// done is whether the request that just came took effect.
func (m *model) done(script *[]bool) bool {
	switch {
	case m.denied:
		return false
	case len(*script) == 0:
		return true
	}
	done := (*script)[0]
	*script = (*script)[1:]
	return done
}

// order sends one and holds the answer to the invariants.
func (m *model) order(t *rapid.T, id string, c *vipmovev1.Command, f *vipmovev1.Fence) {
	pending, now := m.steps.Pending(), m.kernel.BootTime()
	deletes := len(m.kernel.Deletes())
	if c.GetRemove() != nil {
		m.ordering = f.GetRunId()
	}
	r := m.send(c)
	m.ordering = ""
	code, state := r.GetRefusal().GetCode(), r.GetStep().GetState()
	switch {
	case f.GetTerm() < m.term:
		if code != vipmovev1.Refusal_STALE_TERM && code != vipmovev1.Refusal_STATE_NOT_DURABLE || len(m.kernel.Deletes()) != deletes {
			t.Fatalf("I7: an order of term %d took effect after term %d: %v", f.GetTerm(), m.term, r)
		}
	case code == vipmovev1.Refusal_NONE && c.GetInquire() == nil:
		m.term = max(m.term, f.GetTerm())
	}
	if code != vipmovev1.Refusal_NONE || c.GetPrepare() != nil {
		return
	}
	due := pending.GetCommandId() == id && now >= pending.GetDeadlineBoottime().AsDuration()
	if state == confirmed && m.said[id] != confirmed && due {
		t.Fatalf("expiry beats confirm: confirmed at %v, due at %v", now, pending.GetDeadlineBoottime().AsDuration())
	}
	m.hear(t, id, state)
}

// follows are the states that may be said after a state was said (I9). unknown
// may always be said, and takes nothing back.
var follows = map[vipmovev1.StepAnswer_State][]vipmovev1.StepAnswer_State{
	notSeenBefore: {notSeenBefore, removed, confirmed, alreadyAbsent, stillPresent, cancelled, restored}, // its answer may be lost
	removed:       {removed, restored, confirmed},
	confirmed:     {confirmed, restored},
	restored:      {restored},
	stillPresent:  {stillPresent},
	alreadyAbsent: {alreadyAbsent},
	cancelled:     {cancelled},
}

func (m *model) hear(t *rapid.T, id string, state vipmovev1.StepAnswer_State) {
	if state == unknown {
		return
	}
	if before, ok := m.said[id]; ok && !slices.Contains(follows[before], state) {
		t.Fatalf("I9: said %v of %s before, and %v now", before, id, state)
	}
	m.said[id] = state
}

func (m *model) check(t *rapid.T) {
	for run, times := range m.took {
		if times > 1 {
			t.Fatalf("I8: the address went %d times in %s", times, run)
		}
	}
	if r := m.steps.Pending(); r == nil {
		if at, ok := m.steps.Next(); ok && len(m.steps.unsaved) == 0 {
			t.Fatalf("nothing is pending and something is due at %v", at)
		}
	}
}

// TestWhateverComesTheInvariantsHold draws orders, faults, kills and time
// passing, and ends with the world healed: then every unconfirmed removal must
// have been put back (I10, I13).
func TestWhateverComesTheInvariantsHoldI5I7I8I9I13(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		t.Repeat(m.actions())
		m.heal(t)
	})
}

func (m *model) actions() map[string]func(*rapid.T) {
	fence := func(t *rapid.T) *vipmovev1.Fence {
		f := m.fence()
		f.RunId = rapid.SampledFrom(runNames).Draw(t, "run")
		f.Term = uint64(rapid.IntRange(1, maxTerm).Draw(t, "term"))
		return f
	}
	command := func(t *rapid.T, f *vipmovev1.Fence) string {
		id := fmt.Sprintf("%s/%d", f.GetRunId(), rapid.IntRange(1, 2).Draw(t, "attempt"))
		m.runs[id] = f.GetRunId()
		return id
	}
	return map[string]func(*rapid.T){
		"": m.check,
		"prepare": func(t *rapid.T) {
			f := fence(t)
			m.order(t, "", prepareOrder(f, m.entry), f)
		},
		"remove": func(t *rapid.T) {
			f := fence(t)
			id := command(t, f)
			m.order(t, id, removeOrder(f, id), f)
		},
		"extend": func(t *rapid.T) {
			f := fence(t)
			id := command(t, f)
			m.order(t, id, extendOrder(f, id), f)
		},
		"confirm": func(t *rapid.T) {
			f := fence(t)
			id := command(t, f)
			m.order(t, id, confirmOrder(f, id), f)
		},
		"restore": func(t *rapid.T) {
			f := fence(t)
			id := command(t, f)
			m.order(t, id, restoreOrder(f, id, false), f)
		},
		"inquire": func(t *rapid.T) {
			f := fence(t)
			id := command(t, f)
			m.order(t, id, inquireOrder(f, id), f)
		},
		"time passes": func(t *rapid.T) {
			m.kernel.Advance(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
			if rapid.Bool().Draw(t, "timer fires") {
				m.steps.Tick(t.Context())
			}
		},
		"somebody adds":   func(*rapid.T) { m.kernel.HoldIP(testDummy, vip); m.present = true },
		"restart":         func(*rapid.T) { m.start() },
		"graceful":        func(t *rapid.T) { m.steps.Shutdown(t.Context()); m.start() },
		"killed":          m.killed,
		"disk fails":      m.diskFails,
		"kernel fails":    m.kernelFails,
		"dumps interrupt": func(t *rapid.T) { m.kernel.InterruptDumps(rapid.IntRange(1, 12).Draw(t, "tries")) },
		"rights": func(t *rapid.T) {
			m.denied = rapid.Bool().Draw(t, "denied")
			m.kernel.Deny(m.denied)
		},
	}
}

// diskFails makes one of the next writes fail in either way.
func (m *model) diskFails(t *rapid.T) {
	n := rapid.IntRange(1, 3).Draw(t, "write")
	how := rapid.SampledFrom([]fault{notDone, doneAndError}).Draw(t, "how")
	m.store.onWrite = func(_ string, after bool) fault {
		if after {
			return works
		}
		if n--; n == 0 {
			return how
		}
		return works
	}
}

func (m *model) kernelFails(t *rapid.T) {
	done := rapid.Bool().Draw(t, "done all the same")
	if rapid.Bool().Draw(t, "delete") {
		m.kernel.FailDelete(syscall.ENOBUFS, done)
		m.deletions = append(m.deletions, done)
	} else {
		m.kernel.FailAdd(syscall.ENOBUFS, done)
		m.additions = append(m.additions, done)
	}
}

// killed ends the process somewhere in a removal that is prepared for it.
func (m *model) killed(t *rapid.T) {
	n := rapid.IntRange(1, 8).Draw(t, "moment")
	f := m.fence()
	f.RunId, f.Term = rapid.SampledFrom(runNames).Draw(t, "run"), m.term
	id := f.GetRunId() + "/1"
	m.store.onWrite = func(string, bool) fault {
		if n--; n == 0 {
			panic(killed{})
		}
		return works
	}
	defer func() {
		m.store.onWrite = nil
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
		}
		m.ordering = ""
		m.start()
	}()
	m.order(t, id, removeOrder(f, id), f)
	m.order(t, id, confirmOrder(f, id), f)
}

// heal mends everything and lets all time run out.
func (m *model) heal(t *rapid.T) {
	m.store.onWrite = nil
	m.kernel.Deny(false)
	m.denied = false
	m.kernel.InterruptDumps(0)
	m.pass(MaxTTL)
	for range 20 { // scripted kernel faults that are left
		m.pass(retryAfter)
	}
	if p := m.steps.Pending(); p != nil {
		t.Fatalf("I10: still pending at the end: %v", p)
	}
	m.check(t)
	m.start()
	for id, run := range m.runs {
		f := m.fence()
		f.RunId, f.Term = run, maxTerm // one that nothing can be above
		before := m.said[id]
		m.order(t, id, inquireOrder(f, id), f)
		if before == removed && m.said[id] == removed {
			t.Fatalf("I10: %s is still said to be removed, unconfirmed", id)
		}
	}
	anyConfirmed := false
	for _, step := range m.steps.ledger.steps {
		anyConfirmed = anyConfirmed || step.Phase == Confirmed
	}
	if m.held() != m.present {
		t.Fatalf("the mirror says held %v, the kernel %v", m.present, m.held())
	}
	if !anyConfirmed && !m.present {
		t.Fatalf("I13: nothing is confirmed and the address is gone")
	}
	list, err := m.kernel.ListLink(t.Context(), m.entry.LinkIndex)
	if others := len(list); err != nil || m.present && others != 45 || !m.present && others != 44 {
		t.Fatalf("I5: %d addresses are left: %v, %v", others, list, err)
	}
}
