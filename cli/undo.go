// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func (a *app) abortCommand() *cobra.Command {
	return a.undoCommand("abort",
		"stop a run: its open step is put back, confirmed steps stay",
		`abort stops a run. The step that is open is put back; steps that were confirmed stay as they are. abort waits until the run
has stopped; Ctrl-C stops waiting, not the abort.`,
		func(ctx context.Context, c *control, runID string) (*vipmovev1.Run, error) {
			r, err := c.AbortRun(ctx, &vipmovev1.AbortRunRequest{RunId: runID})
			return r.GetRun(), err
		},
		func(r *vipmovev1.Run) bool { return r.GetState() != runPaused && stopped(r) })
}

func (a *app) rollbackCommand() *cobra.Command {
	return a.undoCommand("rollback",
		"put back everything a run removed, confirmed steps too",
		`rollback puts back what a run removed, confirmed steps too, from the journal.
rollback waits until all is back; Ctrl-C stops waiting, not the rollback.`,
		func(ctx context.Context, c *control, runID string) (*vipmovev1.Run, error) {
			r, err := c.RollbackRun(ctx, &vipmovev1.RollbackRunRequest{RunId: runID})
			return r.GetRun(), err
		},
		func(r *vipmovev1.Run) bool { return r.GetState() == runRolledBack || r.GetState() == runNeedsDecision })
}

// undoCommand makes abort and rollback: order it, then watch until end holds.
func (a *app) undoCommand(name, short, long string, order func(context.Context, *control, string) (*vipmovev1.Run, error),
	end func(*vipmovev1.Run) bool) *cobra.Command {
	var conn connection
	var out output
	cmd := &cobra.Command{
		Use:   name + " RUN",
		Short: short,
		Long: long + `

Exit code 0 when it is as asked, 5 when a person is needed.

` + jsonHelp,
		Example: a.examples(name+" R7", "and wait for its end"),
		Args:    oneArgument("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.online(cmd.Context(), &conn, &out, func(ctx context.Context, c *control) error {
				r, err := order(ctx, c, args[0])
				if err != nil {
					return c.explain("ordering "+name+" of run "+args[0], err)
				}
				if !end(r) {
					if r, err = a.watchUntil(ctx, c, args[0], end); err != nil {
						return err
					}
				}
				if err := a.emit(&out, r, func(p *printer) { p.run(r) }); err != nil {
					return err
				}
				if r.GetState() == runNeedsDecision {
					return exitWith(exitNeedsPerson)
				}
				return nil
			})
		},
	}
	conn.addTo(cmd, defaultTimeout)
	out.addTo(cmd)
	return cmd
}
