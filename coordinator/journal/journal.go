// SPDX-License-Identifier: Apache-2.0

// Package journal keeps what was intended and what came of it: the events of every run, the term that
// fences commands, and the nodes that were ever seen. What Append returned nil for survives a restart (I9).
package journal

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/vipmove/vipmove/coordinator/handover"
)

// Journal is the durable record; Bolt holds it on disk, Memory in tests. One contract test runs on both.
type Journal interface {
	// ID names this journal for ever; agents refuse another one (docs/design.md section 6, fencing).
	ID() string
	// Term is the term that this process leads with; 0 before RaiseTerm.
	Term() uint64
	// RaiseTerm raises the stored term by one (compare-and-swap) and leads with it from then on.
	RaiseTerm() (uint64, error)
	// Append stores a run's event number seq (from 0). Storing the same number again with the same event is
	// a repeat after an error and succeeds; with another event it is refused. ErrSuperseded when another
	// process has raised the term meanwhile (I7).
	Append(run string, seq uint64, e handover.Event) error
	// Runs lists the ids of all runs, oldest first.
	Runs() ([]string, error)
	// Load returns a run's events in order.
	Load(run string) ([]handover.Event, error)
	// RememberNode stores a node that connected once; Nodes lists them with their role.
	RememberNode(name, role string) error
	Nodes() (map[string]string, error)
	Close() error
}

// Errors that callers tell apart.
var (
	// ErrSuperseded: a higher term is in the journal; this process must not act any more.
	ErrSuperseded = errors.New("another coordinator has taken over this journal")
	// ErrInUse: another process holds the journal file.
	ErrInUse = errors.New("another process has this journal open")
	// ErrNewerRecord: the journal was written by a newer version.
	ErrNewerRecord = errors.New("record of a newer version")
	// ErrConflict: another event is stored under that number.
	ErrConflict = errors.New("another event is stored under that number")
)

// recordVersion is the version of the stored form of an event.
const recordVersion = 1

type record struct {
	Version int             `json:"v"`
	Event   json.RawMessage `json:"event"`
}

func encode(e handover.Event) ([]byte, error) {
	raw, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encoding %s event: %w", e.Kind, err)
	}
	return json.Marshal(record{Version: recordVersion, Event: raw})
}

func decode(b []byte) (handover.Event, error) {
	var rec record
	if err := json.Unmarshal(b, &rec); err != nil {
		return handover.Event{}, fmt.Errorf("decoding journal record: %w", err)
	}
	if rec.Version > recordVersion {
		return handover.Event{}, fmt.Errorf("decoding journal record of version %d, this program knows %d: %w", rec.Version, recordVersion, ErrNewerRecord)
	}
	var e handover.Event
	if err := json.Unmarshal(rec.Event, &e); err != nil {
		return handover.Event{}, fmt.Errorf("decoding journal event: %w", err)
	}
	return e, nil
}

// Replay folds a run's events into the run as it stood after the last one.
func Replay(events []handover.Event) (handover.Run, error) {
	run := handover.New()
	for i, e := range events {
		next, _, err := run.Apply(e)
		if err != nil {
			return run, fmt.Errorf("replaying event %d: %w", i, err)
		}
		run = next
	}
	return run, nil
}
