// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"net/netip"

	"golang.org/x/time/rate"
)

// A NIC's probe budget over all addresses: switches with ARP inspection shut a
// port at 15 requests a second.
const (
	budgetRate  = 5  // requests a second
	budgetBurst = 10 // requests at once
)

// ProberConfig says where a Prober's sockets come from.
type ProberConfig struct {
	Sockets Sockets // nil: Kernel
}

// Prober asks on one NIC and owns its probe budget, so there is one Prober per
// NIC in a process. It keeps no socket open between rounds. All methods are
// safe for concurrent use.
type Prober struct {
	nic    NIC
	from   Sockets
	budget *rate.Limiter
	turn   chan struct{} // holds a token while a round is on: one at a time
}

// NewProber starts nothing and opens nothing.
func NewProber(nic NIC, cfg ProberConfig) *Prober {
	return &Prober{
		nic: nic, from: cfg.Sockets,
		budget: rate.NewLimiter(budgetRate, budgetBurst),
		turn:   make(chan struct{}, 1),
	}
}

// RoundOption changes a round from its default.
type RoundOption func(*round)

// OnReply has fn called with every kept reply as it is heard, and the index of
// the request it is filed under. fn runs on the round's receiving goroutine,
// one call at a time; while it works the kernel queues.
func OnReply(fn func(request int, reply Reply)) RoundOption {
	return func(r *round) { r.onReply = fn }
}

// Hear lets requests about these addresses through to Result.Heard too: what
// other observers are known to broadcast, as a hearing test.
func Hear(addresses ...netip.Addr) RoundOption {
	return func(r *round) { r.hear = append(r.hear, addresses...) }
}

// WithoutCapture binds the round's socket to ARP instead of all protocols: no
// tax on the host's other traffic, and no Outgoing, no OwnRequests, no VLAN
// tags, and on a node with an eBPF announcer no requests either.
func WithoutCapture() RoundOption {
	return func(r *round) { r.as = quietRound }
}

// Round sends the requests and collects, for each, everything that comes
// inside its window: the first answer ends nothing. Requests whose answers can
// be told apart share their time; those that collide (same address, same
// sender, a MAC in common) go one after the other. A request over the NIC's
// budget waits for it, bounded by ctx, and says how long. Rounds of one Prober
// follow one another.
//
// A request that must not be sent is a *RequestError and nothing is sent at
// all. The results, one per request in the same order, are there also beside
// an error, and each says for itself what was sent and heard: the error is a
// *NICError when the NIC cannot be opened or fails in the middle, or that of
// ctx.
func (p *Prober) Round(ctx context.Context, requests []Request, opts ...RoundOption) ([]Result, error) {
	r := &round{nic: p.nic, budget: p.budget, as: bothWays}
	for _, o := range opts {
		o(r)
	}
	spans, err := r.check(requests)
	if err != nil {
		return nil, err
	}
	r.collector = newCollector(p.nic.MAC, requests)
	if err := p.fly(ctx, r, spans, requests); err != nil {
		for i := range r.collector.results {
			if res := &r.collector.results[i]; !res.Sent && res.SendError == "" {
				res.SendError = err.Error()
			}
		}
		return r.collector.results, err
	}
	return r.collector.results, nil
}

// fly opens the socket for one round and closes it after.
func (p *Prober) fly(ctx context.Context, r *round, spans []span, requests []Request) error {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for another probe round on %s: %w", p.nic.Name, ctx.Err())
	}
	sock, err := openFiltered(p.from, p.nic, r.as, spans)
	if err != nil {
		return err
	}
	defer sock.close()
	r.start(sock, spans)
	for _, wave := range waves(requests) {
		if err := r.fly(ctx, wave); err != nil {
			return err
		}
	}
	return nil
}

// check refuses a round of which any request must not be sent, and returns the
// addresses to listen for.
func (r *round) check(requests []Request) ([]span, error) {
	if len(requests) > maxRequests {
		return nil, fmt.Errorf("asking %d times in one round on %s: at most %d", len(requests), r.nic.Name, maxRequests)
	}
	vips := map[netip.Addr]bool{}
	for _, q := range requests {
		vips[q.VIP] = true
	}
	listen := r.hear
	for vip := range vips {
		listen = append(listen, vip)
	}
	for _, q := range requests {
		if err := q.check(r.nic.MAC, vips); err != nil {
			return nil, err
		}
	}
	return spansOf(listen)
}
