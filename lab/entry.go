// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Root is the directory, of this user alone, below which every lab that Enter
// makes has its own: TMPDIR/vipmove-lab-UID.
func Root() string {
	uid := fmt.Sprint(os.Geteuid())
	if Inside() {
		uid = os.Getenv(outerUIDEnv)
	}
	return filepath.Join(os.TempDir(), "vipmove-lab-"+uid)
}

// entry is a lab's directory below Root. Its name is the identity of the outer
// process, so that making it is one step, and a crash at any moment leaves
// nothing that cannot be told apart:
//
//	PID-STARTTIME-BOOT/          see identity
//	PID-STARTTIME-BOOT/lab.json  see record
type entry struct {
	dir    string
	record record
}

// record is what lab.json holds.
type record struct {
	Command []string `json:"command"`         // of the outer process
	Inner   identity `json:"inner,omitempty"` // the inner process, as seen from outside
}

const recordName = "lab.json"

// newEntry makes the entry of this process, and root where it is missing.
func newEntry(root string) (*entry, error) {
	if err := secureRoot(root); err != nil {
		return nil, fmt.Errorf("making a directory for the lab: %w", err)
	}
	self, err := identify(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("making a directory for the lab: %w", err)
	}
	e := &entry{dir: filepath.Join(root, self.String()), record: record{Command: os.Args}}
	if err := os.Mkdir(e.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("making a directory for the lab: %w", err)
	}
	if err := e.save(); err != nil {
		return nil, err
	}
	return e, nil
}

// secureRoot makes root, and refuses one that somebody else could write to:
// TMPDIR is everybody's.
func secureRoot(root string) error {
	if err := os.Mkdir(root, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(root)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !ok || stat.Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("%s is not a directory of this user alone (mode 0700); remove it, or set TMPDIR", root)
	}
	return nil
}

// started notes the inner process. Without it Down relies on the kernel alone
// to have ended that one.
func (e *entry) started(pid int) {
	inner, err := identify(pid)
	if err != nil {
		return
	}
	e.record.Inner = inner
	_ = e.save()
}

// save replaces the record in one step.
func (e *entry) save() error {
	data, err := json.Marshal(e.record)
	if err != nil {
		return fmt.Errorf("recording the lab: %w", err)
	}
	temporary := filepath.Join(e.dir, "."+recordName)
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return fmt.Errorf("recording the lab: %w", err)
	}
	if err := os.Rename(temporary, filepath.Join(e.dir, recordName)); err != nil {
		return fmt.Errorf("recording the lab: %w", err)
	}
	return nil
}

// close removes the record, and the directory unless the lab has left
// something there on purpose (Config.KeepDir, or logs of a crash).
func (e *entry) close() {
	_ = os.Remove(filepath.Join(e.dir, recordName))
	_ = os.Remove(e.dir)
	_ = os.Remove(filepath.Dir(e.dir)) // only where no other lab is there
}

// readEntry reads the entry at dir; an unreadable record is an empty one: a
// crash may have come before it.
func readEntry(dir string) (*entry, identity, error) {
	owner, err := parseIdentity(filepath.Base(dir))
	if err != nil {
		return nil, identity{}, err
	}
	e := &entry{dir: dir}
	data, err := os.ReadFile(filepath.Join(dir, recordName))
	if err == nil {
		err = json.Unmarshal(data, &e.record)
	}
	if err != nil {
		e.record = record{}
	}
	return e, owner, nil
}

func (r record) String() string { return strings.Join(r.Command, " ") }
