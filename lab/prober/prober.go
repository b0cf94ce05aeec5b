// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package prober asks a segment who answers ARP for an address. It is the
// lab's second opinion on the product: it shares no code with the agent, the
// coordinator or the witness, and it is deliberately simple.
//
// Every function opens its socket on the calling thread, so that it asks from
// the network namespace the thread is in.
package prober

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/packet"
)

// Request is one ARP request.
type Request struct {
	// Interface is the name of the NIC to ask from. The request carries its
	// MAC, in the Ethernet header and in the ARP body.
	Interface string
	// Target is the IPv4 address asked for.
	Target netip.Addr
	// Sender is the sender protocol address; zero: the NIC's first IPv4
	// address.
	Sender netip.Addr
	// Destination is the Ethernet destination; nil: broadcast.
	Destination net.HardwareAddr
}

// Reply is what one machine answered to a Request.
type Reply struct {
	MAC      net.HardwareAddr // ARP sender hardware address
	Source   net.HardwareAddr // Ethernet source of the first such reply
	SenderIP netip.Addr       // ARP sender protocol address: the address asked for
	Count    int              // replies with this MAC inside the window
	After    time.Duration    // from the request to the first of them
}

// Responders sends one broadcast request for vip from the NIC's own MAC and
// address, collects every reply inside the window, and returns the distinct
// MACs in the order of their first reply. Nobody answering is no error.
func Responders(ctx context.Context, ifname string, vip netip.Addr, window time.Duration) ([]Reply, error) {
	return Ask(ctx, Request{Interface: ifname, Target: vip}, window)
}

// FirstReply does what most tools do (arping -c1): it sends the same request
// as Responders and stops at the first reply, which is returned with ok true.
func FirstReply(ctx context.Context, ifname string, vip netip.Addr, window time.Duration) (first Reply, ok bool, err error) {
	return First(ctx, Request{Interface: ifname, Target: vip}, window)
}

// First sends the request once and stops at the first reply, as FirstReply
// does.
func First(ctx context.Context, r Request, window time.Duration) (first Reply, ok bool, err error) {
	err = exchange(ctx, r, window, func(r Reply) bool {
		first, ok = r, true
		return false
	})
	return first, ok, err
}

// Ask sends the request once and collects every reply inside the window, as
// Responders does.
func Ask(ctx context.Context, r Request, window time.Duration) ([]Reply, error) {
	var replies []Reply
	err := exchange(ctx, r, window, func(one Reply) bool {
		replies = add(replies, one)
		return true
	})
	return replies, err
}

// add counts one more reply.
func add(replies []Reply, one Reply) []Reply {
	for i := range replies {
		if replies[i].MAC.String() == one.MAC.String() {
			replies[i].Count++
			return replies
		}
	}
	return append(replies, one)
}

// exchange sends the request and calls each for every reply until the window
// or ctx ends, or each returns false.
func exchange(ctx context.Context, r Request, window time.Duration, each func(Reply) bool) error {
	nic, sender, err := r.origin()
	if err != nil {
		return fmt.Errorf("asking for %s on %s: %w", r.Target, r.Interface, err)
	}
	frame, err := r.encode(nic.HardwareAddr, sender)
	if err != nil {
		return fmt.Errorf("asking for %s on %s: %w", r.Target, r.Interface, err)
	}
	conn, err := packet.Listen(nic, packet.Raw, int(ethernet.EtherTypeARP), nil)
	if err != nil {
		return fmt.Errorf("opening a packet socket on %s: %w", r.Interface, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(0, 1)) })
	defer stop()

	start := time.Now()
	if err := conn.SetReadDeadline(start.Add(window)); err != nil {
		return fmt.Errorf("setting the window of %s: %w", r.Interface, err)
	}
	if ctx.Err() != nil { // it may have ended before the deadline above
		return ctx.Err()
	}
	if _, err := conn.WriteTo(frame, &packet.Addr{HardwareAddr: r.destination()}); err != nil {
		return fmt.Errorf("sending a request for %s on %s: %w", r.Target, r.Interface, err)
	}
	buffer := make([]byte, 1514)
	for {
		n, _, err := conn.ReadFrom(buffer)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("reading replies on %s: %w", r.Interface, err)
		}
		reply, ok := parse(buffer[:n], r.Target, nic.HardwareAddr, sender)
		if !ok {
			continue
		}
		reply.After = time.Since(start)
		if !each(reply) {
			return nil
		}
	}
}

// origin finds the NIC and the sender address.
func (r Request) origin() (*net.Interface, netip.Addr, error) {
	nic, err := net.InterfaceByName(r.Interface)
	if err != nil {
		return nil, netip.Addr{}, err
	}
	if len(nic.HardwareAddr) != 6 {
		return nil, netip.Addr{}, errors.New("it has no Ethernet address")
	}
	if r.Sender.IsValid() {
		return nic, r.Sender, nil
	}
	addrs, err := nic.Addrs()
	if err != nil {
		return nil, netip.Addr{}, err
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			return nic, p.Addr(), nil
		}
	}
	return nil, netip.Addr{}, errors.New("it has no IPv4 address to ask from")
}

func (r Request) destination() net.HardwareAddr {
	if r.Destination == nil {
		return ethernet.Broadcast
	}
	return r.Destination
}
