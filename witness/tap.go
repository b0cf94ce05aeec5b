// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/vipmove/vipmove/agent/wire"
)

const (
	// outgoing bounds the packets of one request that wait to be sent.
	outgoing = 64
	// superframe is the largest packet that the kernel hands over: it joins
	// segments on receive (GRO) before a packet socket sees them.
	superframe = 64<<10 + etherHeader
)

// tap carries the packets of one flow between a TCP stack of our own and a NIC:
// out to one MAC whatever the kernel's neighbour table says, and back in beside
// the kernel.
type tap struct {
	nic  wire.NIC
	to   wire.MAC
	conn *packet.Conn
	link *channel.Endpoint

	mu     sync.Mutex
	talk   conversation
	err    error         // why a packet could not be sent
	ended  chan struct{} // closed when talk is over
	closed bool          // nothing is sent any more
}

// openTap opens the packet socket, in the calling thread's network namespace.
func openTap(nic wire.NIC, to wire.MAC, f flow, mtu uint32) (*tap, error) {
	filter, err := f.filter()
	if err != nil {
		return nil, fmt.Errorf("assembling the filter of a request: %w", err)
	}
	ifi := &net.Interface{Index: nic.Index, Name: nic.Name, HardwareAddr: nic.MAC[:]}
	conn, err := packet.Listen(ifi, packet.Raw, unix.ETH_P_IP, &packet.Config{Filter: filter})
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket on %s: %w (needs CAP_NET_RAW)", nic.Name, reason(err))
	}
	link := channel.New(outgoing, mtu, "")
	// Between veth ends segments carry partial checksums; the wire's are
	// checked by NIC or kernel in vain then, so ours are not checked at all.
	link.LinkEPCapabilities = stack.CapabilityRXChecksumOffload
	return &tap{nic: nic, to: to, conn: conn, link: link, talk: conversation{flow: f}, ended: make(chan struct{})}, nil
}

// run carries packets until ctx ends and returns once both ways have stopped.
func (t *tap) run(ctx context.Context) {
	var way sync.WaitGroup
	defer way.Wait()
	way.Go(func() { t.out(ctx) })
	stop := context.AfterFunc(ctx, func() { _ = t.conn.SetReadDeadline(time.Unix(1, 0)) }) // wakes in
	defer stop()
	t.in()
}

// in hands what comes from the wire to the stack until the deadline.
func (t *tap) in() {
	frame := make([]byte, superframe)
	for {
		n, _, err := t.conn.ReadFrom(frame)
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			t.fail(err) // ENETDOWN: the NIC went down; there may be more to read
			if !errors.Is(err, unix.ENETDOWN) {
				return
			}
			continue
		}
		if n <= etherHeader {
			continue
		}
		ip := frame[etherHeader:n]
		t.note(ip, (*conversation).came)
		inbound := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(ip)})
		t.link.InjectInbound(header.IPv4ProtocolNumber, inbound)
		inbound.DecRef()
	}
}

// out sends what the stack says until ctx ends, and then what is left of it.
func (t *tap) out(ctx context.Context) {
	for {
		p := t.link.ReadContext(ctx)
		if p == nil {
			break
		}
		t.send(p)
	}
	for p := t.link.Read(); p != nil; p = t.link.Read() {
		t.send(p)
	}
}

func (t *tap) send(p *stack.PacketBuffer) {
	view := p.ToView()
	p.DecRef()
	defer view.Release()
	ip := view.AsSlice()
	frame := make([]byte, 0, etherHeader+len(ip))
	frame = append(frame, t.to[:]...)
	frame = append(frame, t.nic.MAC[:]...)
	frame = append(frame, byte(unix.ETH_P_IP>>8), byte(unix.ETH_P_IP&0xff))
	frame = append(frame, ip...)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	if _, err := t.conn.WriteTo(frame, &packet.Addr{HardwareAddr: t.to[:]}); err != nil {
		t.err = err
		return
	}
	t.noteLocked(ip, (*conversation).went)
}

func (t *tap) note(ip []byte, how func(*conversation, []byte)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.noteLocked(ip, how)
}

func (t *tap) noteLocked(ip []byte, how func(*conversation, []byte)) {
	was := t.talk.over()
	how(&t.talk, ip)
	if !was && t.talk.over() {
		close(t.ended)
	}
}

func (t *tap) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
}

func (t *tap) connected() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.talk.connected
}

// hush stops sending when both sides are through: what the stack still says
// then, above all a reset of a connection that waits in TIME-WAIT, is for
// nobody.
func (t *tap) hush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = t.talk.over()
}

// failure types an error of the stack by what passed on the wire.
func (t *tap) failure(err *RequestError) *RequestError {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return failed(Local, fmt.Errorf("sending through %s: %w", t.nic.Name, reason(t.err)))
	}
	return t.talk.failure(err)
}

// reason is err without what package net puts around it.
func reason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
