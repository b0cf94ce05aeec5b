// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
)

// Exit codes of every subcommand, as `vipmove --help` lists them.
const (
	exitDone          = 0
	exitFailure       = 1
	exitUsage         = 2
	exitPreconditions = 3 // not met, and nothing was changed
	exitRolledBack    = 4 // stopped; the open step is as before, confirmed ones stay
	exitNeedsPerson   = 5
	exitTimedOut      = 6
	exitNotAllowed    = 7
)

const exitCodesHelp = `Exit codes:
  0  done
  1  error
  2  usage: an argument or a flag is wrong, nothing was sent
  3  preconditions not met, and nothing was changed
  4  stopped and rolled back: the open step is as before, confirmed steps stay
  5  stopped, and a person is needed
  6  timed out
  7  not allowed: certificate or role`

// exitError is an error that names the exit code it ends the process with. A nil err means that everything to say was
// printed already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usagef is a mistake in arguments or flags, found before anything was sent.
func usagef(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// exitWith ends the process with code and prints nothing more; nil for exitDone.
func exitWith(code int) error {
	if code == exitDone {
		return nil
	}
	return &exitError{code: code}
}

// exitCode of what a command returned. Anything without a code of its own is exitFailure.
func exitCode(err error) int {
	var exit *exitError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &exit):
		return exit.code
	}
	return exitFailure
}
