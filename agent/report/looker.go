// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/agent/wire"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// Config says who looks and through what.
type Config struct {
	Observer string      // this observer's name, as in its certificate
	Kernel   host.Kernel // read only
	// Sockets gives the packet sockets of a NIC. nil: the kernel's.
	Sockets func(wire.NIC) wire.Sockets
	// Now is the wall clock that KernelState.read_at is taken from. nil: time.Now.
	Now func() time.Time
	// OnRound, if set, is told what came of every probe round about a VIP, and
	// OnCapture of every capture that was opened. They run on the goroutine of
	// the order and must not block.
	OnRound   func(nic wire.NIC, vip netip.Addr, results []wire.Result)
	OnCapture func(nic wire.NIC, vip netip.Addr, own []wire.Frame)
}

// Looker carries out the orders that change nothing. It keeps one wire.Prober
// for each NIC, since that holds the NIC's probe budget: a process has one
// Looker. All methods are safe for concurrent use.
type Looker struct {
	cfg Config

	mu      sync.Mutex
	probers map[wire.NIC]*wire.Prober
}

// NewLooker starts nothing and opens nothing.
func NewLooker(cfg Config) *Looker {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Sockets == nil {
		cfg.Sockets = func(wire.NIC) wire.Sockets { return nil }
	}
	return &Looker{cfg: cfg, probers: map[wire.NIC]*wire.Prober{}}
}

// ReadKernel reads this node's kernel. The error is that of ctx, or an address
// that is none; what could not be read is in KernelState.incomplete.
func (l *Looker) ReadKernel(ctx context.Context, order *vipmovev1.ReadKernel) (*vipmovev1.KernelState, error) {
	vips, err := addresses(order.GetVips())
	if err != nil {
		return nil, fmt.Errorf("reading the kernel: %w", err)
	}
	s, err := l.cfg.Kernel.State(ctx, vips)
	if err != nil {
		return nil, fmt.Errorf("reading the kernel: %w", err)
	}
	k := KernelState(s)
	k.ReadAt = timestamppb.New(l.cfg.Now())
	return k, nil
}

// nic finds an Ethernet NIC in the kernel's inventory, with its own IPv4
// addresses. What is not found or not complete is an error: this sensor cannot
// look, which is never "nobody answers".
func (l *Looker) nic(ctx context.Context, name string) (wire.NIC, []netip.Prefix, error) {
	s, err := l.cfg.Kernel.State(ctx, nil)
	if err != nil {
		return wire.NIC{}, nil, fmt.Errorf("finding NIC %s: %w", name, err)
	}
	for _, link := range s.Links {
		if link.Name != name {
			continue
		}
		nic, err := NIC(link)
		if err != nil {
			return wire.NIC{}, nil, err
		}
		var own []netip.Prefix
		for _, a := range s.Addresses {
			if a.LinkIndex == link.Index && a.Prefix.Addr().Is4() {
				own = append(own, a.Prefix)
			}
		}
		return nic, own, nil
	}
	if s.Links == nil {
		return wire.NIC{}, nil, fmt.Errorf("finding NIC %s: the links could not be listed: %v", name, s.Incomplete)
	}
	return wire.NIC{}, nil, &wire.NICError{Doing: "finding", NIC: name, Err: wire.ErrGone}
}

// NIC is a link as a sensor. Only Ethernet with a 6-byte MAC can be one
// (CASES.md S5: an InfiniBand NIC is skipped with this error).
func NIC(l host.Link) (wire.NIC, error) {
	fail := func(err error) (wire.NIC, error) {
		return wire.NIC{}, &wire.NICError{Doing: "looking at", NIC: l.Name, Err: err}
	}
	if l.Type != "ether" {
		return fail(fmt.Errorf("%w (it is %s)", wire.ErrNotEthernet, l.Type))
	}
	mac, err := wire.ParseMAC(l.MAC)
	if err != nil {
		return fail(errors.Join(wire.ErrNotEthernet, err))
	}
	return wire.NIC{Name: l.Name, Index: l.Index, MAC: mac}, nil
}

// prober is the NIC's own, made when first asked for. A NIC that changed its
// index or MAC is another NIC.
func (l *Looker) prober(nic wire.NIC) *wire.Prober {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.probers[nic]
	if p == nil {
		for old := range l.probers {
			if old.Name == nic.Name {
				delete(l.probers, old)
			}
		}
		p = wire.NewProber(nic, wire.ProberConfig{Sockets: l.cfg.Sockets(nic)})
		l.probers[nic] = p
	}
	return p
}
