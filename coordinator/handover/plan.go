// SPDX-License-Identifier: Apache-2.0

// Package handover plans a run and sequences it. It is pure: no clock, no goroutine, no I/O.
// Make turns a snapshot into a reviewed plan with a hash (docs/design.md section 5), Run.Apply is the
// one door through which a run changes state (section 6), and the Judge functions decide from fresh
// snapshots whether a step may start and whether it is verified.
package handover

import (
	"net/netip"
	"time"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

// Options are what the operator chooses for a plan. All of it is covered by the plan hash.
type Options struct {
	VIP         netip.Addr      `json:"vip"`
	Interface   string          `json:"interface,omitempty"`
	Canary      string          `json:"canary,omitempty"`
	Owner       string          `json:"owner,omitempty"` // survivor named by the operator, where nobody answers the announcer question
	Without     []string        `json:"without,omitempty"`
	Overrides   []diagnose.Code `json:"overrides,omitempty"`
	MaxParallel int             `json:"maxParallel"`
	TTL         time.Duration   `json:"ttl"` // of an unconfirmed removal, on the agent's CLOCK_BOOTTIME
	Dwell       time.Duration   `json:"dwell"`
	CanarySoak  time.Duration   `json:"canarySoak"`
	MaxFailed   uint64          `json:"maxFailed"` // failed requests that one step may cost
	NoWitness   bool            `json:"noWitness,omitempty"`
	Announce    bool            `json:"announce,omitempty"` // after the verdict the survivor announces its MAC
}

// Defaults of docs/design.md section 6.
const (
	DefaultTTL        = 30 * time.Second
	DefaultDwell      = 2 * time.Second
	DefaultCanarySoak = 5 * time.Second
)

// WithDefaults fills what the operator left open.
func (o Options) WithDefaults() Options {
	if o.MaxParallel <= 0 {
		o.MaxParallel = 1
	}
	if o.TTL <= 0 {
		o.TTL = DefaultTTL
	}
	if o.Dwell <= 0 {
		o.Dwell = DefaultDwell
	}
	if o.CanarySoak <= 0 {
		o.CanarySoak = DefaultCanarySoak
	}
	return o
}

// Role of a node in the order of a run.
type Role string

// Roles, in their order.
const (
	RoleCanary   Role = "canary"
	RoleIdle     Role = "idle"
	RoleCarrier  Role = "carrier" // clients' frames for the VIP land there now
	RoleSurvivor Role = "survivor"
)

// Entry is what a run removes from one node: one exact tuple.
type Entry struct {
	Node         string               `json:"node"`
	BootID       string               `json:"bootId"`
	Address      diagnose.Address     `json:"address"`
	State        diagnose.HolderState `json:"state"` // stale or latent
	ControlPlane bool                 `json:"controlPlane,omitempty"`
}

// PlannedStep is one entry in its place, with the reason for the place.
type PlannedStep struct {
	Entry
	Role   Role   `json:"role"`
	Reason string `json:"reason"`
}

// Precondition is one thing that must hold before a run, and whether it does.
type Precondition struct {
	Code   diagnose.Code `json:"code,omitempty"`
	Name   string        `json:"name"`
	Met    bool          `json:"met"`
	Detail string        `json:"detail"`
}

// Plan is a reviewed order of steps. Hash covers HashedLines and nothing else.
type Plan struct {
	Options        Options         `json:"options"`
	Report         diagnose.Report `json:"-"`
	Segment        netip.Prefix    `json:"segment"`
	Canary         string          `json:"canary"`
	CanaryReason   string          `json:"canaryReason"`
	Survivor       string          `json:"survivor"`
	SurvivorReason string          `json:"survivorReason"`
	Steps          []PlannedStep   `json:"steps"`
	LeftAlone      map[string]int  `json:"leftAlone"` // other addresses on the same links, per node
	Preconditions  []Precondition  `json:"preconditions"`
	HashedLines    []string        `json:"hashedLines"`
	Hash           string          `json:"hash"`
	VerdictBefore  string          `json:"verdictBefore"`
}

// Runnable reports whether every precondition is met and there is something to do.
func (p Plan) Runnable() bool {
	for _, c := range p.Preconditions {
		if !c.Met {
			return false
		}
	}
	return len(p.Steps) > 0
}

// Make judges the snapshot and plans for it. It never fails: what stands in the way is a precondition not met.
func Make(s diagnose.Snapshot, o Options) Plan {
	o = o.WithDefaults()
	s.VIP, s.Interface, s.Without = o.VIP, o.Interface, o.Without
	p := Plan{Options: o, Report: diagnose.Judge(s), LeftAlone: map[string]int{}}
	p.Segment, p.VerdictBefore = p.Report.Segment.Prefix, string(p.Report.Verdict)
	entries := p.entries(s)
	p.chooseSurvivor(s)
	carriers := Carriers(s, p.Report)
	p.chooseCanary(s, entries, carriers)
	p.order(entries, carriers)
	p.check(s)
	p.HashedLines = p.hashedLines()
	p.Hash = hashLines(p.HashedLines)
	return p
}

// entries lists every stale or latent host address for the VIP on an allowed link, and counts what stays.
func (p *Plan) entries(s diagnose.Snapshot) []Entry {
	var out []Entry
	for _, h := range p.Report.Holders {
		planned := h.Route == nil && h.Address.Prefix.IsSingleIP() && h.Address.Prefix.Addr() == p.Options.VIP &&
			(h.State == diagnose.HolderStale || h.State == diagnose.HolderLatent)
		n := nodeOf(s, h.Node)
		if !planned || n == nil || n.Kernel == nil || contains(p.Options.Without, h.Node) {
			continue
		}
		out = append(out, Entry{Node: h.Node, BootID: n.Kernel.BootID, Address: h.Address, State: h.State, ControlPlane: n.ControlPlane})
		for _, a := range n.Kernel.Addresses {
			if a.LinkIndex == h.Address.LinkIndex && a != h.Address {
				p.LeftAlone[h.Node]++
			}
		}
	}
	return out
}

func nodeOf(s diagnose.Snapshot, name string) *diagnose.Node {
	for i := range s.Nodes {
		if s.Nodes[i].Name == name {
			return &s.Nodes[i]
		}
	}
	return nil
}

func contains[T comparable](list []T, v T) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}
