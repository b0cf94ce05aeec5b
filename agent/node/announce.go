// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"net/netip"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// MayAnnounce is the guard of an announcement: that of a change, for the entry
// that was prepared for this very run, with no step open. That this node is
// the survivor and was heard to answer is the coordinator's to know. The error
// is an order that cannot be read.
func (s *Steps) MayAnnounce(ctx context.Context, o *vipmovev1.Announce) (*vipmovev1.Refusal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.signal()
	vip, err := netip.ParseAddr(o.GetVip())
	if err != nil {
		return nil, fmt.Errorf("reading the address to announce: %w", err)
	}
	s.settleDue(ctx)
	if s.muted != nil {
		_, _ = s.unmute(s.muted.vip)
	}
	r := s.mayAnnounce(vip, o.GetFence())
	if r != nil {
		s.cfg.OnRefusal(r.GetCode())
		s.cfg.Log.Warn("refused an announcement", "refusal", r.GetCode().String(), "reason", r.GetMessage(), "vip", vip.String())
		return r, nil
	}
	s.cfg.Log.Info("announcing", "vip", vip.String(), "link", o.GetInterface(), "mac", o.GetMac(), "run", o.GetFence().GetRunId())
	return nil, nil
}

func (s *Steps) mayAnnounce(vip netip.Addr, f *vipmovev1.Fence) *vipmovev1.Refusal {
	if r := s.obey(f); r != nil {
		return r
	}
	p, found := s.ledger.prepared[f.GetRunId()]
	if r := checkPrepared(p, found, f); r != nil {
		return r
	}
	if p.Entry.Prefix.Addr() != vip {
		return refuse(vipmovev1.Refusal_NOT_PREPARED, "announce the address that the run is about",
			"run %q was prepared for %s, the order names %s", p.RunID, p.Entry.Prefix, vip)
	}
	if r := checkDeadline(s.cfg.Kernel.BootTime(), f); r != nil {
		return r
	}
	facts := s.facts()
	facts.Changes = -1 // nothing is taken off
	if r := checkNode(s.cfg.Policy, facts); r != nil {
		return r
	}
	return checkVIP(s.cfg.Policy, vip)
}

// announce carries out an announcement, in turn with the orders about steps:
// it takes two seconds, and the records are not held meanwhile.
func (n *Node) announce(ctx context.Context, c *vipmovev1.Command) *vipmovev1.CommandResult {
	refusal, err := n.steps.MayAnnounce(ctx, c.GetAnnounce())
	r := result(c, err)
	if err != nil || refusal != nil {
		r.Refusal = refusal
		return r
	}
	answer, err := n.looker.Announce(ctx, c.GetAnnounce())
	if answer != nil {
		r.Answer = &vipmovev1.CommandResult_Announce{Announce: answer}
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}
