// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vipmove/vipmove/agent/wire"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// maxCapture bounds how long one order may tax every packet of the host.
const maxCapture = 10 * time.Minute

// Capture records this host's own replies for a VIP on one NIC for as long as
// the order says. captured is false where the socket could not be opened or
// the NIC failed before the time was over; replies seen by then are true all
// the same.
func (l *Looker) Capture(ctx context.Context, order *vipmovev1.Capture) *vipmovev1.CaptureAnswer {
	out := &vipmovev1.Outgoing{Node: l.cfg.Observer, Interface: order.GetInterface(), Vip: order.GetVip()}
	if err := l.capture(ctx, order, out); err != nil {
		out.Captured, out.Error = false, err.Error()
	}
	return &vipmovev1.CaptureAnswer{Outgoing: out}
}

func (l *Looker) capture(ctx context.Context, order *vipmovev1.Capture, out *vipmovev1.Outgoing) error {
	vip, err := netip.ParseAddr(order.GetVip())
	if err != nil {
		return fmt.Errorf("reading the address to capture: %w", err)
	}
	vip = vip.Unmap()
	duration := order.GetDuration().AsDuration()
	if duration <= 0 || duration > maxCapture {
		return fmt.Errorf("capturing for %v: not between 0 and %v", duration, maxCapture)
	}
	nic, _, err := l.nic(ctx, order.GetInterface())
	if err != nil {
		return err
	}
	c, err := wire.OpenCapture(nic, wire.CaptureConfig{Watched: []netip.Addr{vip}, Sockets: l.cfg.Sockets(nic)})
	if err != nil {
		return err
	}
	began := l.cfg.Now()
	whole, end := context.WithTimeout(ctx, duration)
	defer end()
	err = c.Run(whole)
	if err == nil && ctx.Err() != nil {
		err = errors.New("the capture was called off before its time was over")
	}
	frames, forgotten := c.Frames()
	out.Captured, out.Truncated = true, forgotten > 0 || c.Stats().Dropped > 0
	var own []wire.Frame
	for _, f := range frames {
		if f.Direction == wire.Outgoing && f.Op == wire.OpReply && f.SenderIP == vip && f.VLAN == 0 {
			own = append(own, f)
			out.Replies = append(out.Replies, reply(f, f.At.Sub(began)))
		}
	}
	if l.cfg.OnCapture != nil {
		l.cfg.OnCapture(nic, vip, own)
	}
	return err
}
