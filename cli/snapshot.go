// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func (a *app) snapshotCommand() *cobra.Command {
	var conn connection
	var survey surveyOptions
	var file string
	cmd := &cobra.Command{
		Use:   "snapshot VIP [-f FILE]",
		Short: "save everything a judgement reads, as JSON; changes nothing",
		Long: `snapshot asks the wire and every kernel as owners does, and saves all the evidence in one JSON document (vipmove.v1.Snapshot),
to look at later or to attach to a report. It names nodes, addresses and MACs; it holds no keys. It changes nothing.`,
		Example: a.examples(
			"snapshot 192.0.2.50 -f before.json", "into a file",
			"snapshot 192.0.2.50 | jq '.nodes[].name'", "to stdout"),
		Args: oneArgument("VIP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := survey.message(args[0])
			if err != nil {
				return err
			}
			return a.online(cmd.Context(), &conn, nil, func(ctx context.Context, c *control) error {
				return a.saveSnapshot(ctx, c, request, file)
			})
		},
	}
	conn.addTo(cmd, defaultTimeout)
	survey.addTo(cmd)
	cmd.Flags().StringVarP(&file, "file", "f", "-", "file to write, replaced whole; -: stdout")
	return cmd
}

func (a *app) saveSnapshot(ctx context.Context, c *control, request *vipmovev1.SurveyRequest, file string) error {
	response, err := c.TakeSnapshot(ctx, &vipmovev1.TakeSnapshotRequest{Survey: request})
	if err != nil {
		return c.explain("taking a snapshot of "+request.GetVip(), err)
	}
	var b bytes.Buffer
	if err := writeJSON(&b, response.GetSnapshot()); err != nil {
		return err
	}
	if file == "-" {
		return writeAll(a.env.Stdout, b.Bytes())
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("saving the snapshot: %w", err)
	}
	a.note("saved %s: %s, %s", file, count(len(response.GetSnapshot().GetNodes()), "node"), count(len(response.GetSnapshot().GetRounds()), "round"))
	return nil
}
