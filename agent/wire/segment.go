// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"sync"
	"time"

	"golang.org/x/net/bpf"
)

// Segment is an Ethernet segment in memory: a learning switch with Ports, for
// tests that have no rights and no time to wait. It behaves as packet(7) and
// net/ipv4/arp.c do in what this package relies on; the tests of this package
// run the same bodies on both. Safe for concurrent use, and inside a
// testing/synctest bubble.
type Segment struct {
	mu    sync.Mutex // guards everything below, ports included
	ports []*Port
}

// NewSegment returns a segment without ports.
func NewSegment() *Segment { return &Segment{} }

// Port is one NIC on a Segment, and the host behind it.
type Port struct {
	segment   *Segment
	nic       NIC
	answerers []Answerer
	sockets   []*memorySocket
	down      error // ErrDown, ErrNoCarrier, ErrGone; nil: up
	sendErr   error
}

// Join plugs a NIC in, up.
func (s *Segment) Join(nic NIC) *Port {
	p := &Port{segment: s, nic: nic}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ports = append(s.ports, p)
	return p
}

// NIC returns the NIC as it was joined.
func (p *Port) NIC() NIC { return p.nic }

// Answer adds software that answers on this host.
func (p *Port) Answer(a ...Answerer) {
	p.segment.mu.Lock()
	defer p.segment.mu.Unlock()
	p.answerers = append(p.answerers, a...)
}

// Fail puts the NIC into a state: ErrDown, ErrNoCarrier, ErrGone, nil for up.
func (p *Port) Fail(state error) {
	p.segment.mu.Lock()
	defer p.segment.mu.Unlock()
	p.down = state
	for _, s := range p.sockets {
		if state == ErrDown || state == ErrGone {
			s.failed = state
			s.wake()
		}
	}
}

// FailSend has every send fail with err (ENOBUFS, EPERM); nil ends that.
func (p *Port) FailSend(err error) {
	p.segment.mu.Lock()
	defer p.segment.mu.Unlock()
	p.sendErr = err
}

// Send puts a frame on the segment as software on the host does, so that the
// host's own sockets for all protocols see it as outgoing. An Ethernet source
// or a sender MAC that is zero is filled in with the port's.
func (p *Port) Send(f Frame) error {
	b, err := Encode(p.fill(f))
	if err != nil {
		return err
	}
	p.segment.mu.Lock()
	defer p.segment.mu.Unlock()
	p.transmit(b, nil)
	return nil
}

// SendBytes puts raw bytes on the segment.
func (p *Port) SendBytes(b []byte) {
	p.segment.mu.Lock()
	defer p.segment.mu.Unlock()
	p.transmit(b, nil)
}

func (p *Port) fill(f Frame) Frame {
	if f.EthSrc.IsZero() {
		f.EthSrc = p.nic.MAC
	}
	if f.SenderMAC.IsZero() {
		f.SenderMAC = p.nic.MAC
	}
	return f
}

// transmit is called with the segment locked. from is the socket that sent,
// which never gets its own frame back; nil for other software.
func (p *Port) transmit(b []byte, from *memorySocket) {
	if p.down != nil || len(b) < ethernetHeader {
		return
	}
	for _, s := range p.sockets {
		if s != from && s.as.protocol == ethAll {
			s.deliver(b, PacketOutgoing)
		}
	}
	dst := MAC(b[:6])
	known := false
	for _, other := range p.segment.ports {
		known = known || other.nic.MAC == dst
	}
	for _, other := range p.segment.ports {
		if other != p && other.down == nil && (dst.IsGroup() || other.nic.MAC == dst || !known) {
			other.receive(b, dst)
		}
	}
}

// receive is called with the segment locked.
func (p *Port) receive(b []byte, dst MAC) {
	var typ uint8
	switch {
	case dst == BroadcastMAC:
		typ = PacketBroadcast
	case dst.IsGroup():
		typ = PacketMulticast
	case dst != p.nic.MAC:
		typ = PacketOtherHost
	}
	for _, s := range p.sockets {
		s.deliver(b, typ)
	}
	f, err := Decode(b, Metadata{PacketType: typ})
	if err != nil || typ == PacketOtherHost || f.VLAN != 0 || f.Op != OpRequest {
		return
	}
	for _, answer := range p.answerers {
		for _, a := range answer(f) {
			// A goroutine even without delay: a host answers in its own time,
			// and the segment is locked.
			time.AfterFunc(a.Delay, func() { _ = p.Send(a.Frame) })
		}
	}
}

func (p *Port) open(nic NIC, as binding, filter []bpf.RawInstruction) (socket, error) {
	fail := func(err error) (socket, error) {
		return nil, &NICError{Doing: "opening a packet socket on", NIC: nic.Name, Err: err}
	}
	p.segment.mu.Lock()
	defer p.segment.mu.Unlock()
	switch {
	case nic.Index != p.nic.Index || p.down == ErrGone:
		return fail(ErrGone)
	case nic.MAC != p.nic.MAC:
		return fail(ErrMACChanged)
	case p.down != nil:
		return fail(p.down)
	}
	s := &memorySocket{port: p, as: as, ready: make(chan struct{}, 1)}
	if err := s.attach(filter); err != nil {
		return fail(err)
	}
	p.sockets = append(p.sockets, s)
	return s, nil
}
