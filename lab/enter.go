// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vipmove/vipmove/lab/namespace"
)

const (
	// insideEnv marks the process inside the namespaces.
	insideEnv = "VIPMOVE_LAB_INSIDE"
	// dirEnv tells it the directory that the outer process made for the lab.
	dirEnv = "VIPMOVE_LAB_DIR"
)

// Enter puts the program into the namespaces that a lab needs, by running it
// once more with the same arguments inside new network, mount and pid
// namespaces, and a user namespace unless this process may do without.
//
// In the outer process it returns when the inner one has ended: done is true
// and code is the exit code to end with. It passes signals on, and when it
// dies, SIGKILL included, the kernel kills everything inside. In the inner
// process Enter returns at once with done false: go on. The error is an
// *UnavailableError where the system does not let this user make namespaces;
// it can come from either process.
//
// Inside, /proc is private where the kernel allows that; elsewhere it is the
// outer one, whose process ids are not those that os.Getpid returns.
func Enter() (code int, done bool, err error) {
	reexec := namespace.Reexec{Marker: insideEnv, PID: true}
	if reexec.Done() {
		return 0, false, settle()
	}
	entry, err := newEntry(Root())
	if err != nil {
		return 0, false, err
	}
	defer entry.close()
	reexec.Env = []string{dirEnv + "=" + entry.dir, fmt.Sprintf("%s=%d", outerUIDEnv, os.Geteuid())}
	reexec.Started = entry.started
	code, err = reexec.Run()
	if err != nil {
		return 0, false, unavailable(err)
	}
	return code, true, nil
}

// settle prepares the inner process's namespaces.
func settle() error {
	if err := namespace.Available(); err != nil {
		return unavailable(err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo of the lab: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("setting lo of the lab up: %w", err)
	}
	mountProc()
	return nil
}

// mountProc gives the pid namespace its own /proc. The kernel refuses where
// parts of the outer one are hidden (mount_too_revealing in fs/namespace.c), as
// in many containers; then the outer one stays, where /proc/self is right too.
func mountProc() {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return // never mount where it could be seen outside
	}
	_ = unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// Inside reports whether this is the inner process.
func Inside() bool { return os.Getenv(insideEnv) == "1" }
