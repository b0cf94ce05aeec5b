// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"math"
	"net/netip"

	"github.com/vipmove/vipmove/agent/host"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// AddressToProto puts one exact tuple into its message. Metric and protocol of
// the tuple have no field there: an undo keeps them from the kernel's own
// listing, never from the wire.
func AddressToProto(t host.Tuple) *vipmovev1.Address {
	return &vipmovev1.Address{
		Link: t.Link, LinkIndex: int32(t.LinkIndex),
		Prefix: prefix(t.Prefix), Peer: prefix(t.Peer), Broadcast: text(t.Broadcast),
		Scope: uint32(t.Scope), Label: t.Label, Flags: t.Flags,
		ValidLifetime: t.ValidLifetime, PreferredLifetime: t.PreferredLifetime,
	}
}

// TupleFromProto reads a tuple that a command names. Link, link index and
// prefix must be there and every field must be one that a kernel could list;
// the error says which is not.
func TupleFromProto(a *vipmovev1.Address) (host.Tuple, error) {
	t, err := tuple(a)
	if err != nil {
		return host.Tuple{}, fmt.Errorf("reading the address of a command: %w", err)
	}
	return t, nil
}

func tuple(a *vipmovev1.Address) (host.Tuple, error) {
	t := host.Tuple{
		Link: a.GetLink(), LinkIndex: int(a.GetLinkIndex()),
		Scope: uint8(a.GetScope()), Label: a.GetLabel(), Flags: a.GetFlags(),
		ValidLifetime: a.GetValidLifetime(), PreferredLifetime: a.GetPreferredLifetime(),
	}
	switch {
	case a == nil:
		return t, errors.New("there is none")
	case t.Link == "":
		return t, errors.New("link is empty")
	case t.LinkIndex <= 0:
		return t, fmt.Errorf("link index %d is not positive", t.LinkIndex)
	case a.GetScope() > math.MaxUint8:
		return t, fmt.Errorf("scope %d is above 255", a.GetScope())
	}
	var err error
	if t.Prefix, err = netip.ParsePrefix(a.GetPrefix()); err != nil {
		return t, err
	}
	if a.GetPeer() != "" {
		if t.Peer, err = netip.ParsePrefix(a.GetPeer()); err != nil {
			return t, err
		}
	}
	if a.GetBroadcast() != "" {
		if t.Broadcast, err = netip.ParseAddr(a.GetBroadcast()); err != nil {
			return t, err
		}
	}
	return t, nil
}
