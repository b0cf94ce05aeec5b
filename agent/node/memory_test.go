// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
)

// errDisk is what a failing memory store says.
var errDisk = errors.New("no space left on device")

// fault is how a write goes wrong: not done and error, or done and error.
type fault int

const (
	works fault = iota
	notDone
	doneAndError
	torn // half of it is there, and error: what a rename prevents
)

// memory is the Store in memory, as bytes, so that what it gives back went
// through the same encoding as on disk. onWrite may fail a write or panic in
// it, which stands for a kill.
type memory struct {
	mu      sync.Mutex
	files   map[string][]byte
	writes  int
	paused  error // nil: not paused; errPaused: paused; else nobody knows
	onWrite func(name string, after bool) fault
}

var errPaused = errors.New("paused")

func newMemory() *memory { return &memory{files: map[string][]byte{}} }

func (m *memory) write(name string, record any) error {
	b, err := json.Marshal(record)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	how := works
	if m.onWrite != nil {
		how = m.onWrite(name, false)
	}
	switch how {
	case notDone:
		return errDisk
	case torn:
		m.files[name] = b[:len(b)/2]
		return errDisk
	}
	m.files[name] = b
	if m.onWrite != nil {
		m.onWrite(name, true)
	}
	if how == doneAndError {
		return errDisk
	}
	return nil
}

func (m *memory) Load() (Records, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var r Records
	var damaged []Damage
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		var err error
		switch {
		case name == termFile:
			err = json.Unmarshal(m.files[name], &r.Term)
		case strings.HasPrefix(name, preparedPrefix):
			var p Prepared
			if err = json.Unmarshal(m.files[name], &p); err == nil {
				r.Prepared = append(r.Prepared, p)
			}
		case strings.HasPrefix(name, stepPrefix):
			var s Step
			if err = json.Unmarshal(m.files[name], &s); err == nil {
				r.Steps = append(r.Steps, s)
			}
		}
		if err != nil {
			damaged = append(damaged, Damage{name, err})
		}
	}
	if damaged != nil {
		return r, &DamagedError{damaged}
	}
	return r, nil
}

func (m *memory) SaveTerm(t Term) error         { return m.write(termFile, t) }
func (m *memory) SavePrepared(p Prepared) error { return m.write(preparedName(p.RunID), p) }
func (m *memory) SaveStep(s Step) error         { return m.write(stepName(s.CommandID), s) }
func (m *memory) DropPrepared(id string) error  { return m.drop(preparedName(id)) }
func (m *memory) DropStep(id string) error      { return m.drop(stepName(id)) }

func (m *memory) drop(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, name)
	return nil
}

func (m *memory) ResetRequested() (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.files[resetFile]
	return ok, nil
}

func (m *memory) ResetDone() error { return m.drop(resetFile) }

func (m *memory) Paused() (bool, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch m.paused {
	case nil:
		return false, "paused", nil
	case errPaused:
		return true, "paused", nil
	}
	return false, "paused", m.paused
}
