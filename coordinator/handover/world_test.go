// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

// world is what the tests look at instead of believing the machine: agents with their kernels, and a driver
// whose every remote effect can fail in both ways.
type world struct {
	run     Run
	history []Event  // the journal
	queue   []Effect // effects that are due
	agents  map[string]*agent
	term    uint64
	clock   time.Time
	broken  []string            // invariants that the world itself saw broken
	fault   func(Effect) string // "", lost-before, lost-after, fail, expire, crash, refuse, unreachable
}

// agent is a node's kernel and its record, with the rules of docs/design.md section 6.
type agent struct {
	present   bool
	undo      string // command id that is unconfirmed
	executed  map[string]int
	confirmed map[string]bool
	cancelled map[string]bool
	restored  map[string]bool
}

var start = time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)

// plan of n nodes n1..nn: canary n1, survivor the last.
func testPlan(n int, o Options) Plan {
	p := Plan{Options: o.WithDefaults(), Canary: "n1", Survivor: fmt.Sprintf("n%d", n), Hash: "h"}
	p.Options.VIP = netip.MustParseAddr("192.0.2.50")
	for i := 1; i <= n; i++ {
		e := Entry{Node: fmt.Sprintf("n%d", i), BootID: "boot", State: diagnose.HolderStale,
			Address: diagnose.Address{Link: "kube-ipvs0", LinkIndex: 3, Prefix: netip.MustParsePrefix("192.0.2.50/32")}}
		p.Steps = append(p.Steps, PlannedStep{Entry: e, Role: roleOf(e.Node, p.Canary, p.Survivor, nil)})
	}
	return p
}

func newWorld(p Plan) *world {
	w := &world{agents: map[string]*agent{}, term: 1, clock: start, fault: func(Effect) string { return "" }}
	for _, s := range p.Steps {
		w.agents[s.Node] = &agent{present: true, executed: map[string]int{}, confirmed: map[string]bool{}, cancelled: map[string]bool{}, restored: map[string]bool{}}
	}
	w.event(Event{Kind: Created, RunID: "r1", Plan: &p, By: "alice", Term: 1})
	return w
}

// event applies one event as the driver does: an impossible move becomes Broken.
func (w *world) event(e Event) {
	w.clock = w.clock.Add(time.Second)
	e.At = w.clock
	next, effects, err := w.run.Apply(e)
	if err != nil {
		w.broken = append(w.broken, err.Error())
		e = Event{Kind: Broken, At: w.clock, Detail: err.Error()}
		next, effects, _ = w.run.Apply(e)
	}
	w.history = append(w.history, e)
	w.run = next
	w.queue = append(w.queue, effects...)
}

// drive carries effects out until none is left; it gives up after many, which is itself a fault.
func (w *world) drive() {
	w.event(Event{Kind: Started})
	w.drain()
}

func (w *world) drain() {
	for i := 0; len(w.queue) > 0; i++ {
		if i > 2000 {
			w.broken = append(w.broken, "the run does not end")
			return
		}
		f := w.queue[0]
		w.queue = w.queue[1:]
		w.carryOut(f)
		w.check()
	}
}

// check looks at the world: I2, I3, I4 by what the kernels hold.
func (w *world) check() {
	var open []string
	for name, a := range w.agents {
		if a.undo != "" {
			open = append(open, name)
		}
		for id, n := range a.executed {
			if n > 1 {
				w.broken = append(w.broken, fmt.Sprintf("I8: %s executed %d times", id, n))
			}
		}
	}
	if len(open) > w.run.Plan.Options.MaxParallel {
		w.broken = append(w.broken, fmt.Sprintf("I2: %v in change at once", open))
	}
	if s := w.agents[w.run.Plan.Survivor]; s != nil && !s.present && !w.run.Rollback {
		for name, a := range w.agents {
			if a.present {
				w.broken = append(w.broken, "I3: survivor clean while "+name+" still holds the address")
			}
		}
	}
	if c := w.agents[w.run.Plan.Canary]; c != nil && c.present && !w.run.Rollback && w.run.State == Running {
		for name, a := range w.agents {
			if !a.present && name != w.run.Plan.Canary {
				w.broken = append(w.broken, "I4: "+name+" clean before the canary")
			}
		}
	}
}

func (w *world) carryOut(f Effect) {
	fault := w.fault(f)
	switch fault {
	case "crash": // the coordinator dies before the effect; all that was due is gone
		w.restart()
		return
	case "crash-after":
		w.atAgent(f)
		w.restart()
		return
	case "lost-before":
		w.event(Event{Kind: Lost, Node: f.Node, CommandID: f.CommandID, Detail: "stream broke"})
		return
	case "lost-after":
		w.atAgent(f)
		w.event(Event{Kind: Lost, Node: f.Node, CommandID: f.CommandID, Detail: "stream broke"})
		return
	case "unreachable":
		w.expire(f.Node)
		w.event(Event{Kind: Unreachable, Node: f.Node, CommandID: f.CommandID})
		return
	case "expire":
		w.expire(f.Node)
	}
	ok, code := fault != "fail", diagnose.Code("")
	if !ok {
		code = EvidenceUnknown
	}
	switch f.Kind {
	case DoObserve:
		w.event(Event{Kind: Observed})
	case DoBaseline:
		w.event(Event{Kind: Baselined, Node: f.Node, OK: ok, Code: code, Detail: "baseline"})
	case DoVerify:
		w.event(Event{Kind: VerifiedEv, Node: f.Node, CommandID: f.CommandID, OK: ok, Code: code, Detail: "verify"})
	case DoDwell:
		w.event(Event{Kind: Dwelled, Node: f.Node, CommandID: f.CommandID, OK: ok, Code: code, Detail: "dwell"})
	case DoFinal:
		w.event(Event{Kind: FinalLooked, OK: ok, Code: code, Verdict: "single"})
	case DoAnnounce:
		w.event(Event{Kind: Announced, Node: f.Node, OK: ok, Detail: "announced"})
	default:
		e := w.atAgent(f)
		if fault == "refuse" && f.Kind != DoRestore {
			e = Event{Kind: Answered, Node: f.Node, CommandID: f.CommandID, Answer: AnswerRefused, Code: "LATE", Detail: "late"}
		}
		w.event(e)
	}
}

func (w *world) expire(node string) {
	if a := w.agents[node]; a != nil && a.undo != "" {
		a.restored[a.undo], a.present, a.undo = true, true, ""
	}
}

// restart is a new coordinator process on the same journal.
func (w *world) restart() {
	run := New()
	for _, e := range w.history {
		next, _, err := run.Apply(e)
		if err != nil {
			w.broken = append(w.broken, "replay: "+err.Error())
		}
		run = next
	}
	w.run, w.queue = run, nil
	if !run.Ended() {
		w.term++
		w.event(Event{Kind: Resumed, Term: w.term})
	}
}

// atAgent is what an agent does with an order and what it answers.
func (w *world) atAgent(f Effect) Event {
	a := w.agents[f.Node]
	e := Event{Kind: Answered, Node: f.Node, CommandID: f.CommandID}
	if a == nil {
		return e
	}
	switch f.Kind {
	case DoPrepare:
		e.Answer = AnswerPrepared
	case DoRemove:
		if a.executed[f.CommandID] == 0 && !a.cancelled[f.CommandID] {
			a.executed[f.CommandID]++
			a.present, a.undo = false, f.CommandID
		}
		e.Answer = a.standing(f.CommandID)
	case DoConfirm:
		if a.undo == f.CommandID {
			a.undo, a.confirmed[f.CommandID] = "", true
		}
		e.Answer = a.standing(f.CommandID)
	case DoRestore:
		switch {
		case f.Rollback || a.undo == f.CommandID:
			a.present, a.undo, a.restored[f.CommandID] = true, "", true
			delete(a.confirmed, f.CommandID)
		case a.executed[f.CommandID] == 0:
			a.cancelled[f.CommandID] = true
		}
		e.Answer = a.standing(f.CommandID)
	case DoInquire:
		e.Answer = a.standing(f.CommandID)
	}
	return e
}

func (a *agent) standing(id string) Answer {
	switch {
	case a.restored[id]:
		return AnswerRestored
	case a.confirmed[id]:
		return AnswerConfirmed
	case a.undo == id && id != "":
		return AnswerRemoved
	case a.cancelled[id]:
		return AnswerCancelled
	}
	return AnswerNotSeen
}
