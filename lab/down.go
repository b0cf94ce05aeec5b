// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// downGrace is how long a running lab may take to close itself.
const downGrace = 10 * time.Second

// Removed says what Down removed.
type Removed struct {
	Processes   []int    // ids of those that were still running
	Directories []string // with logs, sockets and state
}

// Empty reports whether there was nothing to remove.
func (r Removed) Empty() bool { return len(r.Processes)+len(r.Directories) == 0 }

// Lines says it for people, one line each.
func (r Removed) Lines() []string {
	if r.Empty() {
		return []string{"nothing to remove"}
	}
	var lines []string
	for _, pid := range r.Processes {
		lines = append(lines, fmt.Sprintf("ended process %d and everything inside its lab", pid))
	}
	for _, dir := range r.Directories {
		lines = append(lines, "removed "+dir)
	}
	return lines
}

// Down ends every lab that this user's programs entered (see Enter), running
// or crashed, and removes what they left. A process is ended only where its
// id, start time and boot are those of the lab's own. root is where to look,
// "" is Root(); it being absent is success. Down goes on after an error.
//
// There is nothing else to clean: namespaces, links and addresses go with the
// lab's processes.
func Down(ctx context.Context, root string) (Removed, error) {
	root = cmp.Or(root, Root())
	var removed Removed
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return removed, nil
	}
	if err == nil {
		err = secureRoot(root)
	}
	if err != nil {
		return removed, fmt.Errorf("looking for labs in %s: %w", root, err)
	}
	var errs []error
	for _, e := range entries {
		if err := removed.remove(ctx, filepath.Join(root, e.Name())); err != nil {
			errs = append(errs, err)
		}
	}
	_ = os.Remove(root) // only when it is empty: an error above left something, or a lab started
	return removed, errors.Join(errs...)
}

// remove ends one lab and removes its directory. What is no lab's is left.
func (r *Removed) remove(ctx context.Context, dir string) error {
	e, outer, err := readEntry(dir)
	if err != nil {
		return nil
	}
	for _, p := range []struct {
		id     identity
		signal unix.Signal
	}{
		{outer, unix.SIGTERM},
		{e.record.Inner, 0}, // the kernel is at it already
	} {
		told, err := p.id.end(ctx, p.signal, downGrace)
		if err != nil {
			return fmt.Errorf("ending the lab of %s: %w", dir, err)
		}
		if told {
			r.Processes = append(r.Processes, p.id.PID)
		}
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil // it closed in good order
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing what a lab left: %w", err)
	}
	r.Directories = append(r.Directories, dir)
	return nil
}
