// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// planOptions are the flags that plan and run share: what the operator decides and the plan's hash covers.
type planOptions struct {
	nic, canary, owner     string
	without, overrides     []string
	maxParallel, maxFailed uint32
	ttl, dwell, soak       time.Duration
	noWitness, announce    bool
}

func (o *planOptions) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.nic, "interface", "", "NIC that carries the VIP's segment, where it cannot be told")
	f.StringVar(&o.canary, "canary", "", "node to clean first")
	f.StringVar(&o.owner, "owner", "", "node whose announcer answers, where the wire cannot prove it; recorded")
	f.StringArrayVar(&o.without, "without", nil, "leave out a node that cannot be reached, repeatable; recorded")
	f.StringArrayVar(&o.overrides, "override", nil, "overrule the refusal with this code, repeatable; recorded")
	f.Uint32Var(&o.maxParallel, "max-parallel", 0, "idle nodes in change at the same time (coordinator's default: 1)")
	f.DurationVar(&o.ttl, "ttl", 0, "an agent puts the address back if no confirm comes within this time (coordinator's default: 30s)")
	f.DurationVar(&o.dwell, "dwell", 0, "look at the wire and at requests for this long before each confirm")
	f.DurationVar(&o.soak, "canary-soak", 0, "wait this long after the canary")
	f.Uint32Var(&o.maxFailed, "max-failed", 0, "failed requests that one step may cost")
	f.BoolVar(&o.announce, "announce", false, "after the verdict the survivor announces its MAC; connections through other nodes may be reset; recorded")
	f.BoolVar(&o.noWitness, "no-witness", false, "run although no witness measures requests; recorded")
}

// message checks VIP and flags and makes the message; what no flag set is the coordinator's to choose.
func (o *planOptions) message(cmd *cobra.Command, vipText string) (*vipmovev1.PlanOptions, error) {
	vip, err := parseVIP(vipText)
	if err != nil {
		return nil, err
	}
	m := &vipmovev1.PlanOptions{
		Vip: vip.String(), Interface: o.nic, Canary: o.canary, Owner: o.owner, Without: o.without, Overrides: o.overrides,
		MaxParallel: o.maxParallel, MaxFailed: o.maxFailed, NoWitness: o.noWitness, Announce: o.announce,
	}
	f := cmd.Flags()
	for _, d := range []struct {
		name  string
		value time.Duration
		field **durationpb.Duration
	}{{"ttl", o.ttl, &m.Ttl}, {"dwell", o.dwell, &m.Dwell}, {"canary-soak", o.soak, &m.CanarySoak}} {
		if !f.Changed(d.name) {
			continue
		}
		if d.value < 0 || (d.name == "ttl" && d.value == 0) {
			return nil, usagef("--%s %s: want a time above zero, for instance 30s", d.name, d.value)
		}
		*d.field = durationpb.New(d.value)
	}
	if f.Changed("max-parallel") && o.maxParallel == 0 {
		return nil, usagef("--max-parallel 0: want 1 or more")
	}
	for _, name := range []string{"interface", "canary", "owner"} {
		if f.Changed(name) && f.Lookup(name).Value.String() == "" {
			return nil, usagef("--%s is empty", name)
		}
	}
	return m, checkLists(o)
}

func checkLists(o *planOptions) error {
	for _, node := range o.without {
		if node == "" {
			return usagef("--without is empty; name one node")
		}
	}
	for _, code := range o.overrides {
		upper := func(r rune) bool { return r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' }
		if code == "" || strings.IndexFunc(code, func(r rune) bool { return !upper(r) }) >= 0 {
			return usagef("--override %q: want the code of a refusal, for instance UNKNOWN_MANAGER", code)
		}
	}
	if o.canary != "" && o.canary == o.owner {
		return usagef("--canary %s: the canary cannot be the owner, which goes last", o.canary)
	}
	return nil
}
