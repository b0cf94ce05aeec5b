// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func (a *app) runCommand() *cobra.Command {
	var conn connection
	var out output
	var options planOptions
	var hash string
	cmd := &cobra.Command{
		Use:   "run VIP --plan HASH",
		Short: "carry out a reviewed plan, and watch it to its end",
		Long: `run carries out the plan that ` + "`" + a.name + ` plan VIP` + "`" + ` printed. Give the same flags and the plan's hash: the coordinator makes the plan
anew, and starts only if it is still the same. Then run watches; Ctrl-C stops watching, the run goes on.

The exit code says how the run ended: 0 done; 3 it stopped before anything was changed; 4 it stopped and put back what was
not confirmed; 5 it stopped and a person is needed.

` + jsonHelp,
		Example: a.examples(
			"plan 192.0.2.50", "look, and take the hash",
			"run 192.0.2.50 --plan 3f1c…", "do it and watch"),
		Args: oneArgument("VIP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := options.message(cmd, args[0])
			if err != nil {
				return err
			}
			if hash == "" {
				return usagef("--plan HASH is missing; run `%s plan %s` first, read it, and give its hash", a.call, args[0])
			}
			if strings.ContainsAny(hash, " \t\n") {
				return usagef("--plan %q: a plan's hash has no blanks; `%s plan %s` prints it", hash, a.call, args[0])
			}
			return a.online(cmd.Context(), &conn, &out, func(ctx context.Context, c *control) error {
				return a.startAndWatch(ctx, c, &out, &vipmovev1.StartRunRequest{Options: o, PlanHash: hash})
			})
		},
	}
	conn.addTo(cmd, 0)
	out.addTo(cmd)
	options.addTo(cmd)
	cmd.Flags().StringVar(&hash, "plan", "", "hash of the plan to carry out")
	return cmd
}

func (a *app) startAndWatch(ctx context.Context, c *control, out *output, request *vipmovev1.StartRunRequest) error {
	vip := request.GetOptions().GetVip()
	started, err := c.StartRun(ctx, request)
	if err != nil {
		return a.notStarted(ctx, c, vip, err)
	}
	a.note("run %s started for %s", started.GetRunId(), vip)
	return a.watchToEnd(ctx, c, out, started.GetRunId())
}

// notStarted adds what the operator must know where the answer was lost: the run may have started.
func (a *app) notStarted(ctx context.Context, c *control, vip string, err error) error {
	told := c.explain("starting a run for "+vip, err)
	switch {
	case status.Code(err) == codes.FailedPrecondition && !strings.Contains(status.Convert(err).Message(), "nothing was changed"):
		return &exitError{code: exitPreconditions, err: fmt.Errorf("%w\nnothing was changed; look again with `%s plan %s`", told, a.call, vip)}
	case ctx.Err() != nil, c.lost(err) && !strings.Contains(status.Convert(err).Message(), "Error while dialing"):
		return &exitError{code: exitCode(told), err: fmt.Errorf("%w; it may have started: see `%s status`", told, a.call)}
	}
	return told
}
