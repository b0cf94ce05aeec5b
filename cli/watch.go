// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func (a *app) watchCommand() *cobra.Command {
	var conn connection
	var out output
	cmd := &cobra.Command{
		Use:   "watch RUN",
		Short: "show a run as it goes, until it ends",
		Long: `watch shows a run as it goes: redrawn on a terminal, a line for each change elsewhere, both on stderr. Its end goes to stdout,
and the exit code says how it ended. Ctrl-C stops watching; the run goes on.

` + jsonHelp,
		Example: a.examples("watch R7", "until the run ends", "watch R7 -o json | jq .state", "the same for a script"),
		Args:    oneArgument("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.online(cmd.Context(), &conn, &out, func(ctx context.Context, c *control) error {
				return a.watchToEnd(ctx, c, &out, args[0])
			})
		},
	}
	conn.addTo(cmd, 0)
	out.addTo(cmd)
	return cmd
}

// online runs a command that needs the coordinator, within the timeout.
func (a *app) online(ctx context.Context, conn *connection, out *output, fn func(context.Context, *control) error) error {
	if out != nil {
		if err := out.check(); err != nil {
			return err
		}
	}
	c, err := a.dial(conn)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := conn.within(ctx)
	defer cancel()
	return fn(ctx, c)
}

// watchToEnd follows a run and prints its end; the exit code is the run's.
func (a *app) watchToEnd(ctx context.Context, c *control, out *output, runID string) error {
	r, err := a.watchUntil(ctx, c, runID, stopped)
	if err != nil {
		return err
	}
	if err := a.emit(out, r, func(p *printer) { p.run(r) }); err != nil {
		return err
	}
	return exitWith(runExit(r))
}

// stopped reports whether nothing more happens in this run by itself.
func stopped(r *vipmovev1.Run) bool {
	switch r.GetState() {
	case runDone, runRolledBack, runNeedsDecision, runPaused:
		return true
	}
	return false
}

// runExit is the exit code of a run that stopped.
func runExit(r *vipmovev1.Run) int {
	switch r.GetState() {
	case runDone:
		return exitDone
	case runRolledBack:
		if !r.GetChanged() {
			return exitPreconditions
		}
		return exitRolledBack
	case runNeedsDecision, runPaused:
		return exitNeedsPerson
	}
	return exitFailure
}

// watchUntil follows a run until end holds. A coordinator that goes away is waited for: the run goes on without us.
func (a *app) watchUntil(ctx context.Context, c *control, runID string, end func(*vipmovev1.Run) bool) (*vipmovev1.Run, error) {
	f := a.follow()
	defer f.end()
	pause, away := a.reconnect, time.Time{}
	for {
		r, err := a.watchOnce(ctx, c, f, runID, end)
		switch {
		case err == nil:
			return r, nil
		case ctx.Err() != nil || status.Code(err) == codes.DeadlineExceeded: // the server may notice our deadline first
			f.end()
			return nil, a.stoppedWatching(ctx, c.conn, runID, err)
		case !errors.Is(err, io.EOF) && !c.lost(err):
			return nil, c.explain("watching run "+runID, err)
		}
		if r != nil { // it was heard from since
			pause, away = a.reconnect, time.Time{}
		}
		if away.IsZero() {
			away = a.now()
			f.say("lost the coordinator at %s; the run goes on there or resumes when it is back; trying again", c.conn.coordinator)
		}
		if a.now().Sub(away) >= a.patience {
			return nil, c.explain("watching run "+runID, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// watchOnce follows one stream. It returns the last state seen, with an error unless end holds for it.
func (a *app) watchOnce(ctx context.Context, c *control, f *follower, runID string, end func(*vipmovev1.Run) bool) (*vipmovev1.Run, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.WatchRun(ctx, &vipmovev1.WatchRunRequest{RunId: runID})
	if err != nil {
		return nil, err
	}
	runs, ended := make(chan *vipmovev1.Run), make(chan error, 1)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case runs <- m.GetRun():
			case <-ctx.Done():
				ended <- ctx.Err()
				return
			}
		}
	}()
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	var last *vipmovev1.Run
	for {
		select {
		case r := <-runs:
			last = r
			f.show(r)
			if end(r) {
				return r, nil
			}
		case <-tick.C:
			f.redraw()
		case err := <-ended:
			return last, err
		}
	}
}

// stoppedWatching says what an interrupt or the timeout means for the run: nothing.
func (a *app) stoppedWatching(ctx context.Context, conn *connection, runID string, err error) error {
	advice := fmt.Sprintf("run %s goes on; watch it again with `%s watch %s`, stop it and put its open step back with `%s abort %s`",
		runID, a.call, runID, a.call, runID)
	if deadline(ctx, err) {
		return &exitError{code: exitTimedOut, err: fmt.Errorf("stopped watching after %s (--timeout): %s", conn.timeout, advice)}
	}
	if s := status.Code(err); s != codes.Canceled && s != codes.Unknown {
		return &exitError{code: exitFailure, err: fmt.Errorf("stopped watching: %w; %s", err, advice)}
	}
	return &exitError{code: exitFailure, err: fmt.Errorf("stopped watching: %s", advice)}
}
