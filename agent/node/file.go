// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// recordVersion is the major version of what the files mean. A file of a newer
// one is damage to this agent, never guessed at.
const recordVersion = 1

// tempPrefix marks files that are not complete yet.
const tempPrefix = ".new-"

// envelope is what every record file holds.
type envelope struct {
	Version int             `json:"version"`
	Record  json.RawMessage `json:"record"`
}

// readRecord reads one file. nameOf says under which name its record belongs.
func readRecord[T any](dir, name string, nameOf func(T) string) (T, error) {
	var record, none T
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return none, err
	}
	var e envelope
	if err := json.Unmarshal(b, &e); err != nil {
		return none, err
	}
	if e.Version != recordVersion {
		return none, fmt.Errorf("has version %d, this agent reads %d", e.Version, recordVersion)
	}
	if err := json.Unmarshal(e.Record, &record); err != nil {
		return none, err
	}
	if nameOf(record) != name {
		return none, errors.New("holds a record that belongs elsewhere")
	}
	return record, nil
}

// writeRecord replaces one file: whole or not at all, and on disk when it
// returns nil. After an error the old file or the new one is there.
func writeRecord(dir, name string, record any) error {
	path := filepath.Join(dir, name)
	if err := replace(dir, path, record); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

func replace(dir, path string, record any) error {
	inner, err := json.Marshal(record)
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(envelope{recordVersion, inner}, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, tempPrefix+"*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	return syncDir(dir)
}

// removeFile makes sure that a file is gone for good.
func removeFile(dir, name string) error {
	err := os.Remove(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes renames and removals in dir durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// exists is an error unless the answer is clear.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
