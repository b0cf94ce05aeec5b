// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// dumpTries bounds how often an interrupted dump is asked for.
const dumpTries = 5

// uninterrupted calls once until it is not interrupted, dumpTries times at
// most, and says how many of those were repeats. pause waits before the given
// repeat.
func uninterrupted(ctx context.Context, pause func(context.Context, int), once func() error) (repeats int, err error) {
	for try := range dumpTries {
		if try > 0 {
			pause(ctx, try)
			repeats++
		}
		if err := ctx.Err(); err != nil {
			return repeats, err
		}
		if err = once(); !errors.Is(err, ErrInterrupted) {
			return repeats, err
		}
	}
	return repeats, fmt.Errorf("%w in each of %d tries", ErrInterrupted, dumpTries)
}

// backOff lets a burst of changes pass: 2, 4, 8, 16 ms.
func backOff(ctx context.Context, try int) {
	t := time.NewTimer(time.Millisecond << try)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
