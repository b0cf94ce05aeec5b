// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/vipmove/vipmove/lab/prober"
)

// Responders asks from the client who answers for the VIP, with code that the
// product has no part in. See prober.Ask.
func (l *Lab) Responders(ctx context.Context, window time.Duration) (replies []prober.Reply, err error) {
	err = l.fromClient(func() (err error) {
		replies, err = prober.Ask(ctx, l.question(), window)
		return err
	})
	return replies, err
}

// FirstReply asks from the client as a tool does that stops at the first
// reply. See prober.First.
func (l *Lab) FirstReply(ctx context.Context, window time.Duration) (reply prober.Reply, ok bool, err error) {
	err = l.fromClient(func() (err error) {
		reply, ok, err = prober.First(ctx, l.question(), window)
		return err
	})
	return reply, ok, err
}

// question is asked from a NIC of the client's that nothing else uses: the
// client's kernel takes every reply that reaches its Uplink as news about the
// VIP, and would move the requests it has under way to another responder.
func (l *Lab) question() prober.Request {
	return prober.Request{Interface: ProbeNIC, Target: l.config.VIP, Sender: proberAddress}
}

// NodeOf names the node whose Uplink has the MAC, "" for none.
func (l *Lab) NodeOf(mac net.HardwareAddr) string {
	for _, n := range l.nodes {
		if n.MAC.String() == mac.String() {
			return n.Name
		}
	}
	return ""
}

// StaleAddresses lists what each node has on kube-ipvs0.
func (l *Lab) StaleAddresses() (map[string][]netip.Prefix, error) {
	left := make(map[string][]netip.Prefix, len(l.nodes))
	for _, n := range l.nodes {
		prefixes, err := n.Addresses(Dummy)
		if err != nil {
			return nil, err
		}
		left[n.Name] = prefixes
	}
	return left, nil
}

// DialContext connects from the client; it fits http.Transport and a gRPC
// dialer. The address is a literal one: the lab has no name service.
func (l *Lab) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = l.fromClient(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// HTTPClient makes requests from the client, each over a connection of its
// own. The timeout covers a whole request.
func (l *Lab) HTTPClient(timeout time.Duration) *http.Client {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		// The transport lets a dial go on after its request has timed out.
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return l.DialContext(ctx, network, address)
	}
	return &http.Client{
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
		Timeout:   timeout,
	}
}

func (l *Lab) fromClient(fn func() error) error {
	client, err := l.Host(Client)
	if err != nil {
		return err
	}
	return client.Do(fn)
}
