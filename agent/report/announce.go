// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/vipmove/vipmove/agent/wire"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// Announce sends the gratuitous ARPs of an order that the node's guard let
// pass. Of the orders here it alone changes something: the caches of others.
// The NIC must have the MAC that the survivor was heard to answer with.
func (l *Looker) Announce(ctx context.Context, order *vipmovev1.Announce) (*vipmovev1.AnnounceAnswer, error) {
	vip, err := netip.ParseAddr(order.GetVip())
	if err != nil {
		return nil, fmt.Errorf("reading the address to announce: %w", err)
	}
	mac, err := wire.ParseMAC(order.GetMac())
	if err != nil {
		return nil, err
	}
	nic, _, err := l.nic(ctx, order.GetInterface())
	if err != nil {
		return nil, err
	}
	if nic.MAC != mac {
		return nil, &wire.NICError{Doing: "announcing " + vip.String() + " on", NIC: nic.Name,
			Err: fmt.Errorf("it was heard to answer with %s, this NIC has %s", mac, nic.MAC)}
	}
	sent, err := wire.Announce(ctx, nic, l.cfg.Sockets(nic), vip)
	return &vipmovev1.AnnounceAnswer{Sent: uint32(sent)}, err
}
