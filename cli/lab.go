// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vipmove/vipmove/lab"
)

func (a *app) labCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "a cluster's network on this machine, to try vipmove in",
		Long: `lab builds nodes as network namespaces on this machine, with the stale addresses of the story, and runs the coordinator, the agents and
a witness in them. It needs root, or the right to make user namespaces, and never touches the host's own network.`,
		Args: a.noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.labUpCommand(), a.labDownCommand())
	return cmd
}

func (a *app) labUpCommand() *cobra.Command {
	var options stageOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "build the lab and keep it until Ctrl-C",
		Long: `up builds the lab, waits until everything is connected, prints on stdout the lines that another terminal needs, and stays until
Ctrl-C. Then everything is cleaned up.`,
		Example: a.examples(
			"lab up", "seven nodes that all answer for 192.0.2.50",
			"lab up --nodes 3 --no-announcer", "three nodes, and only kernels answer"),
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.check(); err != nil {
				return err
			}
			return a.inLab(cmd.Context(), options, func(ctx context.Context, s *stage) error {
				s.exports(a.env.Stdout)
				a.note("")
				for _, line := range []string{"nodes", "owners " + s.VIP().String(), "plan " + s.VIP().String(), "status"} {
					a.note("  %s %s", a.call, line)
				}
				a.note("\nlogs are in %s/logs; Ctrl-C here ends the lab", s.Dir())
				return untilInterrupted(ctx)
			})
		},
	}
	options.addTo(cmd)
	return cmd
}

func (a *app) labDownCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "clean up after a lab that crashed, or end one that runs",
		Long: `down ends every lab of this user, running or crashed, and removes what it left. A lab that ends by itself, or by Ctrl-C, needs no
cleaning; what was changed lived in its namespaces and is gone with them.`,
		Example: a.examples("lab down", "says what it removed"),
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			removed, err := lab.Down(cmd.Context(), "")
			if text := strings.Join(removed.Lines(), "\n"); err == nil || !removed.Empty() {
				err = errors.Join(err, writeAll(a.env.Stdout, []byte(text+"\n")))
			}
			return err
		},
	}
}

// inLab runs fn with a lab around it. The process that the user started only waits: lab.Enter runs the program once more
// inside new namespaces, and there it goes on.
func (a *app) inLab(ctx context.Context, options stageOptions, fn func(context.Context, *stage) error) error {
	if !lab.Inside() {
		if _, err := lab.FindPrograms(); err != nil { // before anything is made
			return err
		}
	}
	code, done, err := lab.Enter()
	var unavailable *lab.UnavailableError
	switch {
	case errors.As(err, &unavailable):
		return &exitError{code: exitPreconditions, err: err}
	case err != nil:
		return fmt.Errorf("entering the lab: %w", err)
	case done:
		return exitWith(code)
	}
	s, err := a.newStage(options)
	if err != nil {
		return err
	}
	a.note("building a lab of %s, %s on each", count(options.nodes, "node"), count(options.clusterIPs, "ClusterIP"))
	if err := s.Up(ctx); err != nil { // it has closed itself then
		return why(ctx, err)
	}
	return errors.Join(a.onStage(ctx, s, fn), s.Close())
}

// onStage runs fn in a lab that is up, with everything of ours started and connected.
func (a *app) onStage(ctx context.Context, s *stage, fn func(context.Context, *stage) error) error {
	ctx, stop := s.guarded(ctx)
	defer stop()
	if err := a.startProduct(ctx, s); err != nil {
		return why(ctx, err)
	}
	return fn(ctx, s)
}
