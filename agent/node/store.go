// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"strings"
)

// Store keeps records across crashes. A save that returns nil is on disk; one
// that returns an error may be or may not be. The contract test runs on the
// disk and on the fake.
type Store interface {
	// Load reads everything. Records holds all that could be read even when
	// the error, a *DamagedError, names files that could not.
	Load() (Records, error)
	SaveTerm(Term) error
	SavePrepared(Prepared) error
	SaveStep(Step) error
	// DropPrepared and DropStep forget a record; dropping what is not there is no error.
	DropPrepared(runID string) error
	DropStep(commandID string) error
	// ResetRequested reports whether `vipmove-agent reset-term` was run since
	// ResetDone; the agent that obeys it forgets its term.
	ResetRequested() (bool, error)
	ResetDone() error
	// Paused reports whether the pause file is there, and its path. On an
	// error nobody knows.
	Paused() (paused bool, path string, err error)
}

// Damage is one file that could not be read, and why.
type Damage struct {
	File   string
	Reason error
}

// DamagedError says which records are lost. The agent stays up, keeps the
// undos it could read, and changes nothing else.
type DamagedError struct{ Files []Damage }

func (e *DamagedError) Error() string {
	var list []string
	for _, d := range e.Files {
		list = append(list, fmt.Sprintf("%s: %v", d.File, d.Reason))
	}
	return "reading the agent's records: " + strings.Join(list, "; ")
}

// Unwrap gives the reasons to errors.Is.
func (e *DamagedError) Unwrap() []error {
	var list []error
	for _, d := range e.Files {
		list = append(list, d.Reason)
	}
	return list
}
