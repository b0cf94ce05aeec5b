// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"net/netip"
	"time"
)

// An announcement is made three times, 1.1 s apart: a Linux neighbour entry
// takes nothing new from such a frame within a second of its last update
// (arp_process in net/ipv4/arp.c, net.ipv4.neigh.*.locktime), and a frame may
// be lost.
const (
	announcements     = 3
	announcementPause = 1100 * time.Millisecond
)

// Announce tells the segment that vip is at the NIC's own MAC: gratuitous ARP,
// as a request (RFC 5227 section 3) and as a reply (RFC 5944 section 4.6),
// since some receivers honour only one of them. It returns how many frames
// left, also beside an error: a *NICError, that of the address, or of ctx.
func Announce(ctx context.Context, nic NIC, from Sockets, vip netip.Addr) (sent int, err error) {
	if !hostAddress(vip) {
		return 0, fmt.Errorf("announcing %v on %s: not the IPv4 address of one host", vip, nic.Name)
	}
	spans, err := spansOf([]netip.Addr{vip})
	if err != nil {
		return 0, err
	}
	sock, err := openFiltered(from, nic, quietRound, spans)
	if err != nil {
		return 0, err
	}
	defer sock.close()
	for i := range announcements {
		if err := between(ctx, i); err != nil {
			return sent, fmt.Errorf("announcing %v on %s: %w", vip, nic.Name, err)
		}
		if err := sock.state(); err != nil {
			return sent, &NICError{Doing: "announcing on", NIC: nic.Name, Err: err}
		}
		for _, f := range announcement(nic.MAC, vip) {
			frame, err := Encode(f)
			if err == nil {
				err = sock.send(frame, BroadcastMAC)
			}
			if err != nil {
				return sent, &NICError{Doing: "announcing on", NIC: nic.Name, Err: err}
			}
			sent++
		}
	}
	return sent, nil
}

// announcement is both usual forms of a gratuitous ARP.
func announcement(own MAC, vip netip.Addr) []Frame {
	f := Frame{EthSrc: own, EthDst: BroadcastMAC, SenderMAC: own, SenderIP: vip, TargetIP: vip}
	request, reply := f, f
	request.Op = OpRequest
	reply.Op, reply.TargetMAC = OpReply, own
	return []Frame{request, reply}
}

// between waits before every announcement but the first.
func between(ctx context.Context, i int) error {
	if i == 0 {
		return ctx.Err()
	}
	t := time.NewTimer(announcementPause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
