// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// quickTimeout of commands that only ask the coordinator.
const quickTimeout = 30 * time.Second

func (a *app) nodesCommand() *cobra.Command {
	var conn connection
	var out output
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "list agents and witnesses: connected, able to act, pending undo, requests",
		Long: `nodes lists every agent and witness the coordinator knows: whether it is connected, whether its agent may change anything,
its version, a removal that is not confirmed yet, and what the witnesses count of requests to the VIP. It changes nothing.

` + jsonHelp,
		Example: a.examples(
			"nodes", "as a table",
			"nodes -o json | jq -r '.nodes[] | select(.connected | not) | .name'", "who is away"),
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.online(cmd.Context(), &conn, &out, func(ctx context.Context, c *control) error {
				r, err := c.ListNodes(ctx, &vipmovev1.ListNodesRequest{})
				if err != nil {
					return c.explain("listing nodes", err)
				}
				return a.emit(&out, r, func(p *printer) { p.nodes(r) })
			})
		},
	}
	conn.addTo(cmd, quickTimeout)
	out.addTo(cmd)
	return cmd
}

func (a *app) statusCommand() *cobra.Command {
	var conn connection
	var out output
	cmd := &cobra.Command{
		Use:   "status",
		Short: "list runs: state, steps confirmed, requests",
		Long: `status lists every run in the coordinator's journal with its state. It changes nothing.

` + jsonHelp,
		Example: a.examples(
			"status", "as a table",
			"status -o json | jq -r '.runs[] | select(.state == \"running\") | .runId'", "what is going on"),
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.online(cmd.Context(), &conn, &out, func(ctx context.Context, c *control) error {
				r, err := c.ListRuns(ctx, &vipmovev1.ListRunsRequest{})
				if err != nil {
					return c.explain("listing runs", err)
				}
				return a.emit(&out, r, func(p *printer) { p.runs(r.GetRuns()) })
			})
		},
	}
	conn.addTo(cmd, quickTimeout)
	out.addTo(cmd)
	return cmd
}
