// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// defaultTimeout of commands that ask the wire: rounds of 1.2 s each, from several observers.
const defaultTimeout = 2 * time.Minute

func (a *app) planCommand() *cobra.Command {
	var conn connection
	var out output
	var options planOptions
	cmd := &cobra.Command{
		Use:   "plan VIP",
		Short: "show what would be done, in which order and why; changes nothing",
		Long: `plan asks the wire and every kernel, and prints: the verdict and its findings, the ordered steps, why this canary and this
survivor, what is left alone, every precondition, the plan's hash, and the command line that carries it out. It changes nothing.

Exit code 3 when a precondition is not met.

` + jsonHelp,
		Example: a.examples(
			"plan 192.0.2.50", "one node at a time, canary first, survivor last",
			"plan 192.0.2.50 --canary n2 --dwell 10s", "another canary, a longer look after each step",
			"plan 192.0.2.50 --override UNKNOWN_MANAGER", "overrule one refusal, recorded in the run"),
		Args: oneArgument("VIP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := options.message(cmd, args[0])
			if err != nil {
				return err
			}
			return a.online(cmd.Context(), &conn, &out, func(ctx context.Context, c *control) error {
				return a.printPlan(ctx, c, &out, o, a.runLine(cmd, args[0]))
			})
		},
	}
	conn.addTo(cmd, defaultTimeout)
	out.addTo(cmd)
	options.addTo(cmd)
	return cmd
}

func (a *app) printPlan(ctx context.Context, c *control, out *output, o *vipmovev1.PlanOptions, runLine func(hash string) string) error {
	response, err := c.MakePlan(ctx, &vipmovev1.MakePlanRequest{Options: o})
	if err != nil {
		return c.explain("planning for "+o.GetVip(), err)
	}
	plan := response.GetPlan()
	if err := a.emit(out, plan, func(p *printer) { p.plan(plan, runLine(plan.GetHash())) }); err != nil {
		return err
	}
	if !plan.GetRunnable() {
		return exitWith(exitPreconditions)
	}
	return nil
}

// runLine gives the command line that carries out a plan with that hash: the same flags, so that the plan made anew is
// the same.
func (a *app) runLine(cmd *cobra.Command, vip string) func(hash string) string {
	flags := flagsGiven(cmd, "output", "timeout")
	return func(hash string) string { return a.call + " run " + vip + " --plan " + shellQuote(hash) + flags }
}

// flagsGiven writes the flags that were set, but for some, as they are typed: each with a blank before it.
func flagsGiven(cmd *cobra.Command, but ...string) string {
	flags := ""
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch slice, ok := f.Value.(pflag.SliceValue); {
		case slices.Contains(but, f.Name):
		case ok:
			for _, v := range slice.GetSlice() {
				flags += " --" + f.Name + " " + shellQuote(v)
			}
		case f.Value.Type() == "bool":
			flags += " --" + f.Name + "=" + f.Value.String()
		default:
			flags += " --" + f.Name + " " + shellQuote(f.Value.String())
		}
	})
	return flags
}
