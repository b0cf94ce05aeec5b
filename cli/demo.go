// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func (a *app) demoCommand() *cobra.Command {
	var options stageOptions
	var out output
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "play the story on this machine: seven answer, then one, no request lost",
		Long: `demo builds a small cluster's network on this machine and plays the story in it for real: real kernels answer ARP for the VIP,
real agents change them, a real coordinator orders it, and a client sends real requests all through.

It shows who answers before, the plan, the run live, who answers after, and a summary. Who answers is also asked by an independent
prober that shares no code with the product; where the two differ, or a request is lost, demo fails and says what is off.

With -o json stdout gets one object:
  nodes (int), vip, verdictBefore, respondersBefore (int), canary, owner (node name), order (node names), verdictAfter,
  respondersAfter (int), addressesLeft ({node: int}, on kube-ipvs0), requests {sent, failed, longestGapMs, lossBoundPercent},
  steps [{node, removedAt, verifiedAt, confirmedAt}], durationSeconds
Responder counts are the independent prober's. Fields are only ever added.`,
		Example: a.examples(
			"demo", "about a minute",
			"demo -o json | jq .requests", "the figures alone",
			"demo --serve-needs-address", "a run that must undo its first step: exit code 4",
			"demo --keep", "leave the lab running to look around in"),
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(out.check(), options.check()); err != nil {
				return err
			}
			return a.inLab(cmd.Context(), options, func(ctx context.Context, s *stage) error {
				return a.demo(ctx, s, &out, keep)
			})
		},
	}
	out.addTo(cmd)
	options.addTo(cmd)
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the lab running until Ctrl-C, and print how to talk to it from another terminal")
	return cmd
}

// demo plays the story, prints it, and ends with the code that fits.
func (a *app) demo(ctx context.Context, s *stage, out *output, keep bool) error {
	story := a.env.Stdout
	if out.json() {
		story = a.env.Stderr
	}
	p := &play{app: a, stage: s, story: story, started: a.now()}
	err := why(ctx, p.perform(ctx))
	p.report.DurationSeconds = a.now().Sub(p.started).Round(1e6).Seconds()
	if out.json() && p.report.VerdictBefore != "" {
		if failed := p.report.write(a.env.Stdout); failed != nil {
			return errors.Join(err, failed)
		}
	}
	if err != nil {
		return err
	}
	if keep {
		a.note("")
		s.exports(a.env.Stderr)
		a.note("the lab runs on; Ctrl-C here ends it")
		err = untilInterrupted(ctx)
	}
	return errors.Join(err, p.verdict())
}

// demoReport is what demo -o json prints.
type demoReport struct {
	Nodes            int            `json:"nodes"`
	VIP              string         `json:"vip"`
	VerdictBefore    string         `json:"verdictBefore"`
	RespondersBefore int            `json:"respondersBefore"`
	Canary           string         `json:"canary"`
	Owner            string         `json:"owner"`
	Order            []string       `json:"order"`
	VerdictAfter     string         `json:"verdictAfter"`
	RespondersAfter  int            `json:"respondersAfter"`
	AddressesLeft    map[string]int `json:"addressesLeft"`
	Requests         demoRequests   `json:"requests"`
	Steps            []demoStep     `json:"steps"`
	DurationSeconds  float64        `json:"durationSeconds"`
}

// demoRequests are the witness's, from before the first look to after the last.
type demoRequests struct {
	Sent             uint64  `json:"sent"`
	Failed           uint64  `json:"failed"`
	LongestGapMs     float64 `json:"longestGapMs"`
	LossBoundPercent float64 `json:"lossBoundPercent"`
}

// demoStep is a step that was begun; times are RFC 3339, null where it did not come so far.
type demoStep struct {
	Node        string  `json:"node"`
	RemovedAt   *string `json:"removedAt"`
	VerifiedAt  *string `json:"verifiedAt"`
	ConfirmedAt *string `json:"confirmedAt"`
}

func (r demoReport) write(w io.Writer) error {
	if r.Order == nil {
		r.Order, r.Steps = []string{}, []demoStep{}
	}
	if r.AddressesLeft == nil {
		r.AddressesLeft = map[string]int{}
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the demo's report: %w", err)
	}
	return writeAll(w, append(text, '\n'))
}
