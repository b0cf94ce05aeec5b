// SPDX-License-Identifier: Apache-2.0

package session

import (
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

func (c *Config) setDefaults() {
	if c.MinBackoff <= 0 {
		c.MinBackoff = defaultMinBackoff
	}
	if c.MaxBackoff <= 0 {
		c.MaxBackoff = max(defaultMaxBackoff, c.MinBackoff)
	}
	if c.Boottime == nil {
		c.Boottime = boottime
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.dial == nil {
		c.dial = (&net.Dialer{Timeout: connectTimeout}).DialContext
	}
}

// boottime reads CLOCK_BOOTTIME (time_namespaces(7): it counts suspend), which
// every Linux since 2.6.39 has; clock_gettime fails only for an unknown clock.
func boottime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}
