// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Names in the state directory. Records of runs and steps carry a digest of
// their id in the name, since ids come from the wire.
const (
	termFile       = "term.json"
	preparedPrefix = "prepared-"
	stepPrefix     = "step-"
	lockFile       = "lock"
	pauseFile      = "paused"
	resetFile      = "reset-term"
)

// ErrStateInUse: another agent works with this state directory.
var ErrStateInUse = errors.New("another vipmove-agent uses it")

// Disk is the Store in a directory: small JSON files, each replaced whole
// (write, fsync, rename, fsync the directory). A crash at any moment leaves
// the old file or the new one.
type Disk struct {
	dir  string
	lock *os.File
}

// OpenDisk takes the directory, which it makes (0700) if need be. It is
// ErrStateInUse while another process has it.
func OpenDisk(dir string) (*Disk, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making state directory %s: %w", dir, err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking state directory %s: %w", dir, err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrStateInUse
		}
		return nil, fmt.Errorf("locking state directory %s: %w", dir, err)
	}
	return &Disk{dir: dir, lock: lock}, nil
}

// Close gives the directory up.
func (d *Disk) Close() error { return d.lock.Close() }

// Load reads every record file and removes what a crash left half written.
func (d *Disk) Load() (Records, error) {
	var r Records
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return r, &DamagedError{[]Damage{{d.dir, err}}}
	}
	var damaged []Damage
	for _, e := range entries {
		if err := d.load(e.Name(), &r); err != nil {
			damaged = append(damaged, Damage{filepath.Join(d.dir, e.Name()), err})
		}
	}
	if damaged != nil {
		return r, &DamagedError{damaged}
	}
	return r, nil
}

// load adds one file to the records; files of other names are not ours.
func (d *Disk) load(name string, r *Records) error {
	switch {
	case strings.HasPrefix(name, tempPrefix):
		return removeFile(d.dir, name)
	case name == termFile:
		t, err := readRecord(d.dir, name, func(Term) string { return termFile })
		r.Term = t
		return err
	case strings.HasPrefix(name, preparedPrefix):
		p, err := readRecord(d.dir, name, func(p Prepared) string { return preparedName(p.RunID) })
		if err == nil {
			r.Prepared = append(r.Prepared, p)
		}
		return err
	case strings.HasPrefix(name, stepPrefix):
		s, err := readRecord(d.dir, name, func(s Step) string { return stepName(s.CommandID) })
		if _, known := states[s.Phase]; err == nil && !known {
			err = fmt.Errorf("has the phase %q, which this agent does not know", s.Phase)
		}
		if err == nil {
			r.Steps = append(r.Steps, s)
		}
		return err
	}
	return nil
}

// SaveTerm replaces the term.
func (d *Disk) SaveTerm(t Term) error { return writeRecord(d.dir, termFile, t) }

// SavePrepared adds or replaces the entry of its run.
func (d *Disk) SavePrepared(p Prepared) error { return writeRecord(d.dir, preparedName(p.RunID), p) }

// SaveStep adds or replaces the record of its command.
func (d *Disk) SaveStep(s Step) error { return writeRecord(d.dir, stepName(s.CommandID), s) }

// DropPrepared forgets the entry of a run.
func (d *Disk) DropPrepared(runID string) error { return removeFile(d.dir, preparedName(runID)) }

// DropStep forgets the record of a command.
func (d *Disk) DropStep(commandID string) error { return removeFile(d.dir, stepName(commandID)) }

func preparedName(runID string) string { return preparedPrefix + digest(runID) + ".json" }

func stepName(commandID string) string { return stepPrefix + digest(commandID) + ".json" }

// digest is short enough for a name and long enough not to collide.
func digest(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// Paused looks for the pause file; anything but a clear no is an error.
func (d *Disk) Paused() (bool, string, error) {
	path := filepath.Join(d.dir, pauseFile)
	there, err := exists(path)
	return there, path, err
}

// ResetRequested looks for the file that RequestReset leaves.
func (d *Disk) ResetRequested() (bool, error) { return exists(filepath.Join(d.dir, resetFile)) }

// ResetDone removes that file.
func (d *Disk) ResetDone() error { return removeFile(d.dir, resetFile) }

// RequestReset asks the agent of a state directory, running or not, to forget
// the journal and term it obeys. It takes effect when the next command of
// another journal arrives.
func RequestReset(dir string) error {
	path := filepath.Join(dir, resetFile)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return fmt.Errorf("asking for a reset of the term: %w", err)
	}
	return syncDir(dir)
}
