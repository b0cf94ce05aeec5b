// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/packet"
)

// AnnouncerConfig configures RunAnnouncer.
type AnnouncerConfig struct {
	// Interface is the NIC to answer on.
	Interface string
	// VIP is the IPv4 address to answer for.
	VIP netip.Addr
	// Ready, when not nil, is called once requests are heard.
	Ready func()
}

// RunAnnouncer answers ARP requests for the VIP in user space until ctx ends,
// as MetalLB's speaker does in layer 2 mode: it holds no address, takes
// broadcast requests and those to its own MAC, does not look at the sender's
// address, and replies to the sender with the NIC's MAC.
func RunAnnouncer(ctx context.Context, c AnnouncerConfig) error {
	nic, err := net.InterfaceByName(c.Interface)
	if err != nil {
		return fmt.Errorf("announcing %s on %s: %w", c.VIP, c.Interface, err)
	}
	conn, err := packet.Listen(nic, packet.Raw, int(ethernet.EtherTypeARP), nil)
	if err != nil {
		return fmt.Errorf("announcing %s on %s: %w", c.VIP, c.Interface, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(0, 1)) })
	defer stop()
	if c.Ready != nil {
		c.Ready()
	}
	buffer := make([]byte, 1514)
	for {
		n, _, err := conn.ReadFrom(buffer)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("hearing requests on %s: %w", c.Interface, err)
		}
		reply, to, ok := answer(buffer[:n], c.VIP, nic.HardwareAddr)
		if !ok {
			continue
		}
		if _, err := conn.WriteTo(reply, &packet.Addr{HardwareAddr: to}); err != nil && ctx.Err() == nil {
			return fmt.Errorf("answering %s on %s: %w", to, c.Interface, err)
		}
	}
}

// answer returns the frame that answers the request in frame, and its
// destination; ok is false where frame asks for something else.
func answer(frame []byte, vip netip.Addr, mac net.HardwareAddr) (reply []byte, to net.HardwareAddr, ok bool) {
	var outer ethernet.Frame
	if err := outer.UnmarshalBinary(frame); err != nil || outer.EtherType != ethernet.EtherTypeARP {
		return nil, nil, false
	}
	if !bytes.Equal(outer.Destination, ethernet.Broadcast) && !bytes.Equal(outer.Destination, mac) {
		return nil, nil, false
	}
	var request arp.Packet
	if err := request.UnmarshalBinary(outer.Payload); err != nil {
		return nil, nil, false
	}
	if request.Operation != arp.OperationRequest || request.TargetIP != vip || len(request.SenderHardwareAddr) != len(mac) {
		return nil, nil, false
	}
	body, err := arp.NewPacket(arp.OperationReply, mac, vip, request.SenderHardwareAddr, request.SenderIP)
	if err != nil {
		return nil, nil, false
	}
	payload, err := body.MarshalBinary()
	if err != nil {
		return nil, nil, false
	}
	back := ethernet.Frame{
		Destination: request.SenderHardwareAddr,
		Source:      mac,
		EtherType:   ethernet.EtherTypeARP,
		Payload:     payload,
	}
	if reply, err = back.MarshalBinary(); err != nil {
		return nil, nil, false
	}
	return reply, request.SenderHardwareAddr, true
}
