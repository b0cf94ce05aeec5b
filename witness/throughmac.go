// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/vipmove/vipmove/agent/wire"
)

const (
	// MaxThroughMAC bounds the requests of one ThroughMAC; they run at once.
	MaxThroughMAC = 32

	// parting is how long a connection may take to close after its answer.
	parting = 500 * time.Millisecond
	// mtu of the TCP stack: the answers are small.
	mtu = 1500
)

// Via is the way of a request that does not ask the neighbour table.
type Via struct {
	// NIC that the frames leave by, and whose MAC they carry.
	NIC wire.NIC
	// Source is an IPv4 address of this host that answers can reach on NIC.
	Source netip.Addr
	// MAC of the machine that is to serve.
	MAC wire.MAC
}

// Outcome is what came of several requests.
type Outcome struct {
	Sent, Succeeded uint32
	// ByType counts failures. A type without failures has no entry.
	ByType    map[Failure]uint32
	LastError string
}

// ThroughMAC sends count requests for t, at most MaxThroughMAC, whose frames go
// to via.MAC whatever this kernel's neighbour entry says, and changes nothing
// on this host: whether one given node serves the VIP ("any node can serve",
// docs/design.md section 5). TCP is spoken by a stack of our own over packet
// sockets, which need CAP_NET_RAW and nothing else, in the calling thread's
// network namespace. The requests run at once, and it returns when all have
// ended: after the target's timeout and half a second at most. The error says
// that none could be sent; a request that failed is in the Outcome.
func ThroughMAC(ctx context.Context, via Via, t Target, count int) (Outcome, error) {
	if err := checkThroughMAC(via, t, count); err != nil {
		return Outcome{}, err
	}
	requests := make([]*throughMAC, 0, count)
	defer func() {
		for _, r := range requests {
			r.close()
		}
	}()
	for range count { // on this thread, for its namespace
		r, err := openThroughMAC(via, t)
		if err != nil {
			return Outcome{}, fmt.Errorf("requesting %s through %s: %w", t, via.MAC, err)
		}
		requests = append(requests, r)
	}
	failures := make([]*RequestError, count)
	var all sync.WaitGroup
	for i, r := range requests {
		all.Go(func() { failures[i] = r.run(ctx, t) })
	}
	all.Wait()
	return outcome(failures), nil
}

func checkThroughMAC(via Via, t Target, count int) error {
	err := t.Validate()
	switch {
	case err != nil:
	case count < 1 || count > MaxThroughMAC:
		err = fmt.Errorf("%d requests are not between 1 and %d", count, MaxThroughMAC)
	case !via.Source.Is4():
		err = fmt.Errorf("source %q is no IPv4 address", via.Source)
	case via.MAC.IsZero() || via.MAC.IsGroup():
		err = fmt.Errorf("%s is not the MAC of one machine", via.MAC)
	}
	if err != nil {
		return fmt.Errorf("requesting through a MAC: %w", err)
	}
	return nil
}

func outcome(failures []*RequestError) Outcome {
	o := Outcome{ByType: make(map[Failure]uint32)}
	for _, err := range failures {
		if err == nil {
			o.Sent++
			o.Succeeded++
			continue
		}
		if err.Failure != Local {
			o.Sent++
		}
		o.ByType[err.Failure]++
		o.LastError = err.Error()
	}
	return o
}

// throughMAC is one request with its own port, socket and stack.
type throughMAC struct {
	port  *heldPort
	tap   *tap
	stack *netstack
}

func openThroughMAC(via Via, t Target) (_ *throughMAC, err error) {
	r := &throughMAC{}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.port, err = holdPort(via.Source); err != nil {
		return nil, err
	}
	f := flow{source: netip.AddrPortFrom(via.Source, r.port.port), target: t.Address}
	if r.tap, err = openTap(via.NIC, via.MAC, f, mtu); err != nil {
		return nil, err
	}
	if r.stack, err = newNetstack(f, r.tap.link); err != nil {
		return nil, err
	}
	return r, nil
}

// close gives everything back, the port last: until then the kernel keeps
// silent about what still comes.
func (r *throughMAC) close() {
	if r.stack != nil {
		r.stack.Destroy()
	}
	if r.tap != nil {
		r.tap.conn.Close()
		r.tap.link.Close()
	}
	if r.port != nil {
		r.port.release()
	}
}

// run sends the request and sees its connection to the end.
func (r *throughMAC) run(ctx context.Context, t Target) *RequestError {
	carry, stop := context.WithCancel(context.WithoutCancel(ctx))
	var carrier sync.WaitGroup
	carrier.Go(func() { r.tap.run(carry) })
	defer carrier.Wait()
	defer stop()

	deadline := time.Now().Add(t.timeout())
	whole, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	failure := r.request(whole, t, deadline)
	r.part()
	if failure != nil && context.Cause(ctx) != nil {
		return failed(Local, fmt.Errorf("called off: %w", context.Cause(ctx)))
	}
	return failure
}

func (r *throughMAC) request(ctx context.Context, t Target, deadline time.Time) *RequestError {
	conn, err := r.stack.dial(ctx)
	if err != nil {
		return r.tap.failure(connecting(err))
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return failed(Local, fmt.Errorf("setting the deadline: %w", err))
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if failure := t.exchange(conn); failure != nil {
		return r.tap.failure(failure)
	}
	return nil
}

// part waits until the connection that was just closed is closed on both
// sides. If it will not, the stack resets it, so that the node does not go on
// sending to a port that is nobody's then.
func (r *throughMAC) part() {
	patience := time.NewTimer(parting)
	defer patience.Stop()
	if r.tap.connected() {
		select {
		case <-r.tap.ended:
		case <-patience.C:
		}
	}
	r.tap.hush()
	for _, e := range r.stack.RegisteredEndpoints() {
		e.Abort()
	}
}
