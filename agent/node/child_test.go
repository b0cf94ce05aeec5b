// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/vipmove/vipmove/internal/daemon"
)

// What a test tells the agent process that it starts.
const (
	childMarker = "VIPMOVE_TEST_AGENT"       // its coordinator's address
	childState  = "VIPMOVE_TEST_AGENT_STATE" // its state directory
	childDies   = "VIPMOVE_TEST_AGENT_DIES"  // the phase before whose record is written it kills itself
)

// child is an agent process: the real kernel, the real disk. It returns the
// exit code.
func child() int {
	ctx, stop := daemon.SignalContext(context.Background())
	defer stop()
	disk, err := OpenDisk(os.Getenv(childState))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer disk.Close()
	agent, err := New(Config{
		Name: testNode, Version: "v0", Listen: "127.0.0.1:0", Coordinators: []string{os.Getenv(childMarker)},
		Policy: Policy{Act: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, MaxChanges: 10},
		Store:  deadly{disk, Phase(os.Getenv(childDies))}, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err == nil {
		err = agent.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// deadly is a disk under a process that gets SIGKILL right before one record
// would be written: for the phase removed, after the delete and before the answer.
type deadly struct {
	*Disk
	before Phase
}

func (d deadly) SaveStep(s Step) error {
	if d.before != "" && s.Phase == d.before {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {} // never reached again
	}
	return d.Disk.SaveStep(s)
}
