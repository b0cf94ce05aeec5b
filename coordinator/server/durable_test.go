// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vipmove/vipmove/coordinator/fleet/fleettest"
	"github.com/vipmove/vipmove/coordinator/handover"
	"github.com/vipmove/vipmove/coordinator/journal"
)

// A write that fails, done or not, holds the run and nothing else; it goes on where it was.
func TestTheRunWaitsForTheJournal(t *testing.T) {
	kinds := []handover.EventKind{handover.Created, handover.Started, handover.Observed, handover.Baselined, handover.Answered, handover.VerifiedEv, handover.Dwelled, handover.FinalLooked}
	for name, done := range map[string]bool{"not written": false, "written and error": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 3, func(t *testing.T, w *world) {
				failures := map[handover.EventKind]int{}
				w.diskFails(func(e handover.Event) (bool, error) {
					if failures[e.Kind] == 4 {
						return false, nil
					}
					failures[e.Kind]++
					return done, fmt.Errorf("no space left on device for %s", e.Kind)
				})
				id := w.begin(options())
				r, all := w.watch(id)
				if r.GetState() != "done" || w.lan.holders() != "" || r.GetDoing() != "" {
					t.Errorf("%s %s %s, doing %q", r.GetState(), r.GetReasonCode(), r.GetReason(), r.GetDoing())
				}
				told := map[string]bool{}
				for _, x := range all {
					told[x.GetDoing()] = true
				}
				for _, kind := range kinds {
					if failures[kind] != 4 {
						t.Errorf("%s failed %d times", kind, failures[kind])
					}
					if !told[fmt.Sprintf("waiting for the journal: no space left on device for %s", kind)] && kind != handover.Created && kind != handover.Started {
						t.Errorf("nobody was told that %s waits", kind)
					}
				}
				w.recorded(t, id, r)
			})
		})
	}
}

// Nothing is sent that is not durable (I9): while the journal cannot be written the node is not touched.
func TestAJournalThatStaysBrokenTouchesNothing(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		w.diskFails(func(e handover.Event) (bool, error) {
			if e.Kind == handover.Baselined {
				return true, errors.New("input/output error")
			}
			return false, nil
		})
		id := w.begin(options())
		w.wait(5 * time.Minute)
		for _, a := range w.agents {
			if n := a.orders("remove"); n != 0 {
				t.Errorf("%s was told to remove", a.name)
			}
		}
		if r := w.now(id); r.GetState() != "running" || states(r) != "n1 pending, n2 pending, n3 pending" {
			t.Errorf("%s: %s", r.GetState(), states(r))
		}
		w.diskFails(nil)
		w.restart() // the record was written although it said error
		if r, _ := w.watch(id); r.GetState() != "done" {
			t.Errorf("%s %s %s", r.GetState(), r.GetReasonCode(), r.GetReason())
		}
	})
}

func TestAJournalThatCannotBeReadStopsTheStart(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.watch(w.begin(options()))
		for name, j := range map[string]*brokenJournal{
			"listing known nodes in the journal: torn page": {Memory: journal.NewMemory(w.disk), nodes: errors.New("torn page")},
			"listing runs in the journal: torn page":        {Memory: journal.NewMemory(w.disk), runs: errors.New("torn page")},
			"loading run":                                   {Memory: journal.NewMemory(w.disk), load: errors.New("torn page")},
			"replaying event 0":                             {Memory: journal.NewMemory(w.disk), events: []handover.Event{{Kind: handover.Started}}},
		} {
			if s, err := New(Config{Journal: j}); err == nil || !strings.Contains(err.Error(), name) || s != nil {
				t.Errorf("New = %v, %v; want it to say %q", s, err, name)
			}
		}
		j := &brokenJournal{Memory: journal.NewMemory(w.disk), term: errors.New("read-only file system")}
		s, err := New(Config{Journal: j, TLS: w.serverTLS(), Listeners: []net.Listener{fleettest.Listen()}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(w.ctx); !errors.Is(err, j.term) {
			t.Errorf("Run = %v", err)
		}
	})
}

// brokenJournal fails where it is told to.
type brokenJournal struct {
	*journal.Memory
	nodes, runs, load, term error
	events                  []handover.Event
}

func (j *brokenJournal) Nodes() (map[string]string, error) {
	if j.nodes != nil {
		return nil, j.nodes
	}
	return j.Memory.Nodes()
}

func (j *brokenJournal) Runs() ([]string, error) {
	if j.runs != nil {
		return nil, j.runs
	}
	return j.Memory.Runs()
}

func (j *brokenJournal) Load(id string) ([]handover.Event, error) {
	if j.load != nil || j.events != nil {
		return j.events, j.load
	}
	return j.Memory.Load(id)
}

func (j *brokenJournal) RaiseTerm() (uint64, error) {
	if j.term != nil {
		return 0, j.term
	}
	return j.Memory.RaiseTerm()
}
