// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/vipmove/vipmove/coordinator/handover"
)

// Disk is what several Memory journals share, as two processes would share a file; for tests.
type Disk struct {
	mu     sync.Mutex
	term   uint64
	events map[string][][]byte
	nodes  map[string]string
	// Fault, when set, is asked before each write: done tells whether the write happens although err is returned.
	Fault func(run string, e handover.Event) (done bool, err error)
}

// Memory is a Journal in memory that can fail in both ways: not done and error, done and error.
type Memory struct {
	disk *Disk
	term uint64
}

// NewMemory opens a journal on the disk; nil makes a new one.
func NewMemory(d *Disk) *Memory {
	if d == nil {
		d = &Disk{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.events == nil {
		d.events, d.nodes = map[string][][]byte{}, map[string]string{}
	}
	return &Memory{disk: d}
}

// ID implements Journal.
func (m *Memory) ID() string { return "memory" }

// Term implements Journal.
func (m *Memory) Term() uint64 {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	return m.term
}

// RaiseTerm implements Journal.
func (m *Memory) RaiseTerm() (uint64, error) {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	m.disk.term++
	m.term = m.disk.term
	return m.term, nil
}

// Append implements Journal.
func (m *Memory) Append(run string, seq uint64, e handover.Event) error {
	raw, err := encode(e)
	if err != nil {
		return err
	}
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	var fault error
	if m.disk.Fault != nil {
		var done bool
		if done, fault = m.disk.Fault(run, e); fault != nil && !done {
			return fault
		}
	}
	if m.term != m.disk.term {
		return fmt.Errorf("term %d is in the journal, this process leads with %d: %w", m.disk.term, m.term, ErrSuperseded)
	}
	switch n := uint64(len(m.disk.events[run])); {
	case seq < n:
		if !bytes.Equal(m.disk.events[run][seq], raw) {
			return ErrConflict
		}
	case seq > n:
		return fmt.Errorf("event %d of run %s would leave a hole after %d", seq, run, n)
	default:
		m.disk.events[run] = append(m.disk.events[run], raw)
	}
	return fault
}

// Runs implements Journal.
func (m *Memory) Runs() ([]string, error) {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	return slices.Sorted(maps.Keys(m.disk.events)), nil
}

// Load implements Journal.
func (m *Memory) Load(run string) ([]handover.Event, error) {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	var out []handover.Event
	for _, raw := range m.disk.events[run] {
		e, err := decode(raw)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// RememberNode implements Journal.
func (m *Memory) RememberNode(name, role string) error {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	m.disk.nodes[name] = role
	return nil
}

// Nodes implements Journal.
func (m *Memory) Nodes() (map[string]string, error) {
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	return maps.Clone(m.disk.nodes), nil
}

// Close implements Journal.
func (m *Memory) Close() error { return nil }
