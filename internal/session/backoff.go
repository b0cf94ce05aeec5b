// SPDX-License-Identifier: Apache-2.0

package session

import "time"

// backoff is full jitter under a doubling, capped ceiling: 300 observers that
// lost one coordinator come back spread over the whole interval.
type backoff struct {
	min, max time.Duration
	rand     func() float64
	ceiling  time.Duration
}

// next returns how long to wait before the next attempt.
func (b *backoff) next() time.Duration {
	switch {
	case b.ceiling == 0:
		b.ceiling = min(b.min, b.max)
	case b.ceiling > b.max/2:
		b.ceiling = b.max
	default:
		b.ceiling *= 2
	}
	return time.Duration(b.rand() * float64(b.ceiling))
}

// reset starts over at min. A session that was welcomed and lost at once does
// not reset, so a coordinator that crashes on hello is not hammered.
func (b *backoff) reset() { b.ceiling = 0 }
