// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package namespace makes Linux network namespaces and wires them together
// with veth pairs and bridges, through netlink only. Every namespace it makes
// lives as long as an open descriptor of this process, so nothing is left
// behind when the process dies, however it dies.
package namespace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrClosed is returned by every method of a Namespace after Close.
var ErrClosed = errors.New("namespace is closed")

// Namespace is one network namespace made by this process. It is bound to no
// file: it is freed by Close, once the processes inside it are gone, and by
// the death of this process. All methods are safe for concurrent use.
type Namespace struct {
	name string

	mu     sync.Mutex
	file   *os.File // the namespace's descriptor, open while users or not closed
	users  int      // operations that use file now
	closed bool
}

// New makes a network namespace with its loopback up and the IPv4 sysctls that
// decide who answers ARP at the kernel's own defaults (a new namespace would
// otherwise inherit the host's, see devinet_init_net in net/ipv4/devinet.c).
// The name is used in errors only. Needs CAP_SYS_ADMIN and CAP_NET_ADMIN over
// the current user namespace, see Available.
func New(name string) (*Namespace, error) {
	n := &Namespace{name: name}
	err := onThread(func() error {
		return detached(func() error {
			file, err := os.Open("/proc/thread-self/ns/net")
			if err != nil {
				return err
			}
			n.file = file
			return prepare()
		})
	})
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("making network namespace %s: %w", name, err)
	}
	return n, nil
}

// Name returns the name given to New.
func (n *Namespace) Name() string { return n.name }

// Do runs fn on an OS thread that is inside the namespace and returns its
// error. Sockets and netlink handles that fn opens stay in the namespace after
// Do returns; goroutines that fn starts do not run inside it. /proc/net is
// that of the thread group's leader: fn reads /proc/thread-self/net instead.
// /proc/sys/net is resolved by the calling thread.
func (n *Namespace) Do(fn func() error) error {
	return n.use(func(file *os.File) error {
		return onThread(func() error { return inside(file, n.name, fn) })
	})
}

// use runs fn with the namespace's descriptor, which stays open meanwhile.
func (n *Namespace) use(fn func(*os.File) error) error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return fmt.Errorf("using network namespace %s: %w", n.name, ErrClosed)
	}
	n.users++
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.users--
		_ = n.release() // Close has returned; nobody is left to tell
	}()
	return fn(n.file)
}

// Start starts cmd inside the namespace. The caller waits for it.
func (n *Namespace) Start(cmd *exec.Cmd) error {
	return n.Do(cmd.Start)
}

// Close gives the namespace up. The kernel removes it, its links and their
// peers once no process and no socket is left inside. Operations under way go
// on to their end, new ones get ErrClosed. Closing twice is fine.
func (n *Namespace) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	return n.release()
}

// release closes the descriptor when nothing needs it any more; mu is held.
func (n *Namespace) release() error {
	if n.file == nil || !n.closed || n.users > 0 {
		return nil
	}
	err := n.file.Close()
	n.file = nil
	return err
}

// onThread runs fn on a goroutine that owns its OS thread. It is never the
// thread group's leader, whose namespace is what /proc/self and other
// processes see of this one. The thread goes back to the scheduler when fn
// says, by a nil release error, that it is where it was; otherwise it dies
// with the goroutine, so no thread is ever lent out in the wrong namespace.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// Keep the leader occupied while another thread does it.
			done <- onThread(fn)
			runtime.UnlockOSThread()
			return
		}
		returned := false
		defer func() {
			if !returned { // fn ended by runtime.Goexit, as t.Fatal does
				done <- errors.New("function ended its goroutine inside the namespace")
			}
		}()
		err := fn()
		returned = true
		var stranded *strandedError
		if !errors.As(err, &stranded) {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// strandedError says that a thread could not be brought back.
type strandedError struct{ err error }

func (e *strandedError) Error() string { return "leaving network namespace: " + e.err.Error() }
func (e *strandedError) Unwrap() error { return e.err }

// inside runs fn with the calling thread in the namespace of file.
func inside(file *os.File, name string, fn func() error) error {
	return excursion(func() error {
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering network namespace %s: %w", name, err)
		}
		return nil
	}, fn)
}

// detached runs fn with the calling thread in a namespace of its own.
func detached(fn func() error) error {
	return excursion(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("leaving the current one: %w", err)
		}
		return nil
	}, fn)
}

// excursion moves the calling thread by enter, runs fn and moves it back.
func excursion(enter, fn func() error) error {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("noting the current network namespace: %w", err)
	}
	defer home.Close()
	if err := enter(); err != nil {
		return err
	}
	err = fn()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, &strandedError{back})
	}
	return err
}

// LoopbackUp sets lo up in the calling thread's namespace, as a process that
// was re-executed into a new one needs it.
func LoopbackUp() error { return setUp("lo") }

// prepare brings the calling thread's new namespace to a known state.
func prepare() error {
	if err := setUp("lo"); err != nil {
		return err
	}
	return resetSysctls()
}
