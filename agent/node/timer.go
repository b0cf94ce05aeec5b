// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"
)

// recheck is how often the boot clock is read while something is pending.
// Timers stand still while the machine sleeps, and CLOCK_BOOTTIME does not.
const recheck = time.Second

// Run does what is due when it is due, until ctx ends. Recover comes before,
// Shutdown after.
func (s *Steps) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		case <-timer.C:
			s.Tick(ctx)
		}
		timer.Stop()
		if at, ok := s.Next(); ok {
			timer.Reset(min(max(at-s.cfg.Kernel.BootTime(), 0), recheck))
		}
	}
}

// restoreBeforeExit puts everything back, trying again until ctx ends. It
// reports whether it is.
func (s *Steps) restoreBeforeExit(ctx context.Context) bool {
	for {
		if s.Shutdown(ctx) {
			return true
		}
		wait(ctx, retryAfter/2, nil)
		if ctx.Err() != nil {
			return false
		}
	}
}
