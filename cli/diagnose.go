// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/handover"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func (a *app) diagnoseCommand() *cobra.Command {
	var out output
	var options planOptions
	var file string
	var withPlan bool
	cmd := &cobra.Command{
		Use:   "diagnose --snapshot FILE",
		Short: "judge a saved snapshot, with no cluster and no coordinator; changes nothing",
		Long: `diagnose judges what "vipmove snapshot" saved, or what a person wrote (docs/snapshot.md), and prints what owners would have
said of it. With --plan it also prints what plan would have planned, with plan's flags. It asks nobody and changes nothing.

A file that is truncated, of a newer schema or at odds with itself is an error that says where, and nothing is judged. Exit
code 0 when the file was judged, whatever it says and whether or not its plan may run.

With --plan, -o json gives the plan, which has the judgement in it. ` + jsonHelp,
		Example: a.examples(
			"diagnose --snapshot before.json", "who answered, and why",
			"diagnose --snapshot before.json --plan --no-witness", "and what would be done",
			"diagnose --snapshot - -o json | jq -r .verdict", "from stdin, the verdict alone"),
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkDiagnose(cmd, &out, file, withPlan); err != nil {
				return err
			}
			s, err := a.readSnapshot(file)
			if err != nil {
				return err
			}
			if options.nic != "" {
				s.Interface = options.nic
			}
			s.Without = options.without
			if withPlan {
				return a.planOffline(cmd, &out, s, &options)
			}
			j := snapshot.ReportToProto(diagnose.Judge(s), s.TakenAt)
			return a.emit(&out, j, func(p *printer) { p.judgement(j) })
		},
	}
	cmd.Flags().StringVar(&file, "snapshot", "", "the file, as vipmove snapshot saves it; -: stdin")
	cmd.Flags().BoolVar(&withPlan, "plan", false, "also make the plan")
	out.addTo(cmd)
	options.addTo(cmd)
	return cmd
}

// checkDiagnose: what a plan alone is asked for has no meaning without one.
func checkDiagnose(cmd *cobra.Command, out *output, file string, withPlan bool) error {
	if err := out.check(); err != nil {
		return err
	}
	if file == "" {
		return usagef("--snapshot FILE is missing")
	}
	judged := map[string]bool{"snapshot": true, "plan": true, "output": true, "interface": true, "without": true}
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !withPlan && !judged[f.Name] && err == nil {
			err = usagef("--%s is about a plan: give --plan too", f.Name)
		}
	})
	return err
}

func (a *app) readSnapshot(file string) (diagnose.Snapshot, error) {
	from, name := a.env.Stdin, "stdin"
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return diagnose.Snapshot{}, fmt.Errorf("opening the snapshot: %w", err)
		}
		defer f.Close() // only read
		from, name = f, file
	}
	if from == nil {
		from = io.MultiReader() // nothing
	}
	s, err := snapshot.Read(from)
	if err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// planOffline makes the plan that a coordinator would make of the same evidence, by the same hash. A
// snapshot is of the past, so what comes next is to plan against the world as it is.
func (a *app) planOffline(cmd *cobra.Command, out *output, s diagnose.Snapshot, options *planOptions) error {
	chosen, err := options.message(cmd, s.VIP.String())
	if err != nil {
		return err
	}
	made := handover.Make(s, handoverOptions(chosen, s))
	plan := snapshot.PlanToProto(made, s.TakenAt)
	next := a.call + " plan " + chosen.GetVip()
	if s.Interface != "" && options.nic == "" {
		next += " --interface " + shellQuote(s.Interface)
	}
	next += flagsGiven(cmd, "snapshot", "plan", "output")
	return a.emit(out, plan, func(p *printer) {
		p.judgement(plan.GetJudgement())
		p.planAlone(plan, next)
	})
}

func handoverOptions(o *vipmovev1.PlanOptions, s diagnose.Snapshot) handover.Options {
	out := handover.Options{
		VIP: s.VIP, Interface: s.Interface, Canary: o.GetCanary(), Owner: o.GetOwner(), Without: o.GetWithout(),
		MaxParallel: int(o.GetMaxParallel()), TTL: o.GetTtl().AsDuration(), Dwell: o.GetDwell().AsDuration(),
		CanarySoak: o.GetCanarySoak().AsDuration(), MaxFailed: uint64(o.GetMaxFailed()), NoWitness: o.GetNoWitness(), Announce: o.GetAnnounce(),
	}
	for _, c := range o.GetOverrides() {
		out.Overrides = append(out.Overrides, diagnose.Code(c))
	}
	return out
}
