// SPDX-License-Identifier: Apache-2.0

//go:build linux

package namespace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Available returns nil when this process can make network namespaces and
// configure them, else the reason why not. It tries, and leaves nothing.
func Available() error {
	n, err := New("probe")
	if err != nil {
		return err
	}
	return n.Close()
}

// Reexec describes how the current program is run again inside new namespaces.
type Reexec struct {
	// Marker is set to "1" in the environment of the new process, and says
	// there that it is the new one: see Done.
	Marker string
	// PID adds a pid namespace: the new process is its init, and the kernel
	// kills everything inside with it.
	PID bool
	// Env is added to the environment of the new process, as "KEY=value".
	Env []string
	// Started, when not nil, is called with the new process's id, as seen from
	// this one, once it runs.
	Started func(pid int)
}

// Done reports whether this process is the new one already.
func (r Reexec) Done() bool { return os.Getenv(r.Marker) == "1" }

// Run runs the current program again, with the same arguments and streams,
// inside new network and mount namespaces, and inside a new user namespace
// with the caller's ids mapped to 0 unless this process has CAP_SYS_ADMIN
// already. Signals are passed on. It returns the exit code, 128+n for a
// process ended by signal n, or an error when the process could not be
// started. The new process is killed when this one dies.
func (r Reexec) Run() (code int, err error) {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(append(os.Environ(), r.Env...), r.Marker+"=1")
	cmd.SysProcAttr = r.attributes()

	// The parent of a child, for Pdeathsig, is the thread that forked it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH)
	defer signal.Stop(signals)

	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting %s inside new namespaces: %w", os.Args[0], err)
	}
	if r.Started != nil {
		r.Started(cmd.Process.Pid)
	}
	ended := make(chan struct{})
	defer close(ended)
	go forward(signals, cmd.Process, ended)
	return exitCode(cmd.Wait())
}

func (r Reexec) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS,
		Pdeathsig:  unix.SIGKILL,
	}
	if r.PID {
		attr.Cloneflags |= unix.CLONE_NEWPID
	}
	if Available() != nil {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// forward passes signals on to p until ended is closed. What the terminal
// sends to its whole foreground process group has reached p by itself.
func forward(signals <-chan os.Signal, p *os.Process, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case s := <-signals:
			if fromTerminal(s) {
				continue
			}
			_ = p.Signal(s) // it may have ended just now
		}
	}
}

// fromTerminal reports whether s is a signal that a terminal sends, while this
// process is in the foreground of one.
func fromTerminal(s os.Signal) bool {
	switch s {
	case unix.SIGINT, unix.SIGQUIT, unix.SIGWINCH:
	default:
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	foreground, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

// exitCode turns what Wait said into a shell's exit code.
func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case !errors.As(err, &exit):
		return 0, fmt.Errorf("waiting for %s: %w", os.Args[0], err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}
