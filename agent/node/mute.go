// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/agent/host"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// muteMargin is how much earlier than the kernel this agent takes a mute to
// have ended: what was heard in between must not pass as heard under it.
const muteMargin = 50 * time.Millisecond

// muting is the mute in force. It is in no record: the kernel ends it by
// itself, and with this process.
type muting struct {
	vip   netip.Addr
	until time.Duration // CLOCK_BOOTTIME, muteMargin before the kernel's own end
	lift  func() error
}

// mute begins a mute, or ends the one in force. It needs no run: it takes
// nothing off this node, and lasts MaxMute at most. All else that is asked
// before a change is asked here too, but for the budget.
func (s *Steps) mute(o *vipmovev1.Mute) (*vipmovev1.MuteAnswer, *vipmovev1.Refusal, error) {
	vip, err := netip.ParseAddr(o.GetVip())
	if err != nil {
		return nil, nil, fmt.Errorf("reading the address to mute: %w", err)
	}
	f, d := o.GetFence(), min(o.GetDuration().AsDuration(), host.MaxMute)
	if r := s.obey(f); r != nil {
		return nil, r, nil
	}
	if r := checkDeadline(s.cfg.Kernel.BootTime(), f); r != nil {
		return nil, r, nil
	}
	if d <= 0 {
		held, err := s.unmute(vip)
		return &vipmovev1.MuteAnswer{Held: held}, nil, err
	}
	if r := s.mayMute(vip); r != nil {
		return nil, r, nil
	}
	if s.muted != nil { // one at a time: the first one's window was declared, this one's begins anew
		if _, err := s.unmute(s.muted.vip); err != nil {
			return nil, nil, err
		}
	}
	begun := s.cfg.Kernel.BootTime()
	lift, err := s.cfg.Kernel.Mute(vip, d)
	switch {
	case errors.Is(err, host.ErrMuteUnsupported):
		return nil, refuse(vipmovev1.Refusal_MUTE_UNSUPPORTED, "look without --mute: the announcer question and the count of replies need no nftables", "%v", err), nil
	case err != nil:
		return nil, nil, err
	}
	s.muted = &muting{vip: vip, until: begun + d - muteMargin, lift: lift}
	s.cfg.Log.Info("muted the kernel's ARP replies", "vip", vip.String(), "for", d, "term", f.GetTerm())
	return &vipmovev1.MuteAnswer{Muted: true, UntilBoottime: durationpb.New(s.muted.until)}, nil, nil
}

// mayMute is the guard of a mute: rights, pause, records, no open step, and an
// address that the administrator gave free.
func (s *Steps) mayMute(vip netip.Addr) *vipmovev1.Refusal {
	f := s.facts()
	f.Changes = -1 // nothing is taken off
	if r := checkNode(s.cfg.Policy, f); r != nil {
		return r
	}
	return checkVIP(s.cfg.Policy, vip)
}

// checkVIP: only an IPv4 address within the allowed prefixes is muted or announced.
func checkVIP(p Policy, vip netip.Addr) *vipmovev1.Refusal {
	return checkForm(p, host.State{}, Prepared{Entry: host.Tuple{Prefix: netip.PrefixFrom(vip, vip.BitLen())}})
}

// unmute ends the mute in force, and tells whether it was for vip and had held
// until now. A lift that did not work is over at the kernel's own end.
func (s *Steps) unmute(vip netip.Addr) (held bool, err error) {
	m := s.muted
	if m == nil {
		return false, nil
	}
	held = m.vip == vip && s.cfg.Kernel.BootTime() < m.until
	s.muted = nil
	if err := m.lift(); err != nil {
		s.cfg.Log.Warn("cannot lift a mute, the kernel ends it by itself", "vip", m.vip.String(), "error", err)
		return held, fmt.Errorf("lifting the mute of %s: %w", m.vip, err)
	}
	s.cfg.Log.Info("lifted a mute", "vip", m.vip.String(), "held", held)
	return held, nil
}

// unmuteDue ends a mute whose time is over.
func (s *Steps) unmuteDue() {
	if s.muted != nil && s.cfg.Kernel.BootTime() >= s.muted.until {
		_, _ = s.unmute(s.muted.vip)
	}
}
