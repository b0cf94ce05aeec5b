// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func (a *app) ownersCommand() *cobra.Command {
	var conn connection
	var out output
	var survey surveyOptions
	cmd := &cobra.Command{
		Use:   "owners VIP",
		Short: "show who answers for an address, seen by whom, why, and what to do; changes nothing",
		Long: `owners asks the wire for the VIP from several machines, collects every answer instead of the first, and says which node each
comes from, which software sent it, and why. It changes nothing.

With --mute it drops the kernel's own ARP replies for the VIP on one responder after the other (nftables, at most 2 s each, lifted
as soon as one round is over) and shows who goes on: software that announces and does not answer the announcer question is found
so. Meanwhile that node does not answer by its kernel; connections go on. It is refused beside a run.

On a terminal answers are shown on stderr as they are heard.

` + jsonHelp,
		Example: a.examples(
			"owners 192.0.2.50", "who answers",
			"owners 192.0.2.50 --mute", "and who remains when kernels are silent",
			"owners 192.0.2.50 --rounds 5", "ask again and again, for answers that get lost",
			"owners 192.0.2.50 -o json | jq -r .verdict", "the verdict alone"),
		Args: oneArgument("VIP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := survey.message(args[0])
			if err != nil {
				return err
			}
			return a.online(cmd.Context(), &conn, &out, func(ctx context.Context, c *control) error {
				j, err := a.survey(ctx, c, request)
				if err != nil {
					return err
				}
				return a.emit(&out, j, func(p *printer) { p.judgement(j) })
			})
		},
	}
	conn.addTo(cmd, defaultTimeout)
	out.addTo(cmd)
	survey.addTo(cmd)
	cmd.Flags().BoolVar(&survey.mute, "mute", false, "mute one responder's kernel after the other for up to 2s, and show who remains; needs agents that may act")
	return cmd
}

// survey asks who answers, shows what is heard meanwhile, and returns the judgement.
func (a *app) survey(ctx context.Context, c *control, request *vipmovev1.SurveyRequest) (*vipmovev1.Judgement, error) {
	doing := "asking who answers for " + request.GetVip()
	stream, err := c.Survey(ctx, request)
	if err != nil {
		return nil, c.explain(doing, err)
	}
	person := isTerminal(a.env.Stderr)
	var judgement *vipmovev1.Judgement
	for {
		event, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && judgement != nil:
			return judgement, nil
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%s: the coordinator ended the answer without a judgement", doing)
		case err != nil:
			return nil, c.explain(doing, err)
		}
		switch e := event.GetEvent().(type) {
		case *vipmovev1.SurveyEvent_Heard:
			if person {
				a.note("%s", heardLine(e.Heard))
			}
		case *vipmovev1.SurveyEvent_Progress:
			a.note("%s", e.Progress)
		case *vipmovev1.SurveyEvent_Judgement:
			judgement = e.Judgement
		}
	}
}

// heardLine is one reply as it is heard: "heard n3 02:…:13 by n1 eth0 after 1.2ms (announcer question)".
func heardLine(h *vipmovev1.HeardEvent) string {
	line := "heard "
	if h.GetNode() != "" {
		line += h.GetNode() + " "
	}
	line += fmt.Sprintf("%s by %s %s after %s", h.GetReply().GetSenderMac(), h.GetObserver(), h.GetInterface(), spanOf(h.GetReply().GetAfter()))
	switch h.GetKind() {
	case vipmovev1.ProbeKind_PROBE_KIND_ANNOUNCER_QUESTION:
		line += " (announcer question)"
	case vipmovev1.ProbeKind_PROBE_KIND_ZERO_SENDER:
		line += " (sender 0.0.0.0)"
	case vipmovev1.ProbeKind_PROBE_KIND_UNICAST:
		line += " (asked alone)"
	}
	return line
}

// surveyOptions are the flags of owners and snapshot.
type surveyOptions struct {
	nic    string
	rounds uint32
	window time.Duration
	mute   bool // owners alone
}

// Bounds of a survey; more would be a burden on the LAN (docs/design.md section 4).
const (
	maxRounds = 10
	maxWindow = 30 * time.Second
)

func (o *surveyOptions) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.nic, "interface", "", "NIC that carries the VIP's segment, where it cannot be told")
	f.Uint32Var(&o.rounds, "rounds", 0, "how often to ask; 0: once, and more when observers disagree")
	f.DurationVar(&o.window, "window", 0, "how long to collect answers in each round (coordinator's default: 1.2s)")
}

func (o *surveyOptions) message(vipText string) (*vipmovev1.SurveyRequest, error) {
	vip, err := parseVIP(vipText)
	if err != nil {
		return nil, err
	}
	if o.rounds > maxRounds {
		return nil, usagef("--rounds %d: want %d or fewer", o.rounds, maxRounds)
	}
	if o.window < 0 || o.window > maxWindow {
		return nil, usagef("--window %s: want a time up to %s", o.window, maxWindow)
	}
	m := &vipmovev1.SurveyRequest{Vip: vip.String(), Interface: o.nic, Rounds: o.rounds, Mute: o.mute}
	if o.window > 0 {
		m.Window = durationpb.New(o.window)
	}
	return m, nil
}
