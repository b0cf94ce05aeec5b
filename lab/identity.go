// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// identity tells a process from every other one that has its id before or
// after it, across reboots too.
type identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot, field 22 of proc_pid_stat(5)
	Boot  string `json:"boot"`  // first 8 digits of the boot id
}

func (id identity) String() string { return fmt.Sprintf("%d-%d-%s", id.PID, id.Start, id.Boot) }

func parseIdentity(s string) (identity, error) {
	var id identity
	if _, err := fmt.Sscanf(strings.ReplaceAll(s, "-", " "), "%d %d %s", &id.PID, &id.Start, &id.Boot); err != nil || id.String() != s {
		return identity{}, fmt.Errorf("reading %q: not the name of a lab's directory", s)
	}
	return id, nil
}

// identify reads the identity of a process from /proc.
func identify(pid int) (identity, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return identity{}, fmt.Errorf("reading the boot id: %w", err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return identity{}, fmt.Errorf("reading the start time of process %d: %w", pid, err)
	}
	start, err := startTime(string(stat))
	if err != nil {
		return identity{}, fmt.Errorf("reading the start time of process %d: %w", pid, err)
	}
	return identity{PID: pid, Start: start, Boot: string(boot[:min(8, len(boot))])}, nil
}

// startTime finds field 22. Field 2, the name, may hold blanks and brackets.
func startTime(stat string) (start uint64, err error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const after = 22 - 3 // field 3 is the first here
	if len(fields) <= after {
		return 0, fmt.Errorf("%d fields after the name, want more than %d", len(fields), after)
	}
	_, err = fmt.Sscan(fields[after], &start)
	return start, err
}

// open returns a pidfd of the process, or ok false where it is gone. The
// descriptor is of exactly this process, whatever becomes of its id.
func (id identity) open() (pidfd int, ok bool, err error) {
	if id.PID <= 1 {
		return 0, false, nil
	}
	pidfd, err = unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("opening process %d: %w", id.PID, err)
	}
	now, err := identify(id.PID)
	if err != nil || now != id {
		unix.Close(pidfd)
		return 0, false, nil // it ended, or the id is another process's now
	}
	return pidfd, true, nil
}

// end ends the process, first by s and after grace by SIGKILL, and waits until
// it is gone. Signal 0 waits without asking. It reports whether the process
// was told to end.
func (id identity) end(ctx context.Context, s unix.Signal, grace time.Duration) (told bool, err error) {
	pidfd, ok, err := id.open()
	if err != nil || !ok {
		return false, err
	}
	defer unix.Close(pidfd)
	for _, s := range []unix.Signal{s, unix.SIGKILL} {
		if err := unix.PidfdSendSignal(pidfd, s, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return told, fmt.Errorf("sending %s to process %d: %w", s, id.PID, err)
		}
		told = told || s != 0
		gone, err := awaitExit(ctx, pidfd, grace)
		if err != nil || gone {
			return told, err
		}
	}
	return told, fmt.Errorf("ending process %d: still there %s after SIGKILL", id.PID, grace)
}

// awaitExit waits for the end of the process for at most the time given. A
// pidfd becomes readable at the end (pidfd_open(2)).
func awaitExit(ctx context.Context, pidfd int, atMost time.Duration) (bool, error) {
	deadline := time.Now().Add(atMost)
	for {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		left := min(time.Until(deadline), 100*time.Millisecond) // to look at ctx
		if left <= 0 {
			return false, nil
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		switch {
		case n > 0:
			return true, nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return false, fmt.Errorf("waiting for a process to end: %w", err)
		}
	}
}
