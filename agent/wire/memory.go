// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/net/bpf"
)

// memoryQueue is how many frames a socket of a Segment queues.
const memoryQueue = 4096

// memorySocket is a socket on a Port. Its fields are guarded by the segment.
type memorySocket struct {
	port   *Port
	as     binding
	filter *bpf.VM
	ready  chan struct{} // capacity 1: something changed for a waiting receive

	queue    []queued
	lost     uint32
	deadline time.Time
	failed   error // told once, as ENETDOWN is
	closed   bool
}

type queued struct {
	b []byte
	m Metadata
}

// deliver is what the kernel does in packet_rcv: filter, cut, queue or count.
func (s *memorySocket) deliver(b []byte, typ uint8) {
	n, err := s.filter.Run(b)
	if err != nil || n == 0 {
		return
	}
	if len(s.queue) >= memoryQueue {
		s.lost++
		return
	}
	nic := s.port.nic
	s.queue = append(s.queue, queued{
		b: slices.Clone(b[:min(n, len(b))]),
		m: Metadata{At: time.Now(), Interface: nic.Name, Index: nic.Index, PacketType: typ},
	})
	s.wake()
}

func (s *memorySocket) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

func (s *memorySocket) attach(filter []bpf.RawInstruction) error {
	instructions, ok := bpf.Disassemble(filter)
	if !ok {
		return errors.New("disassembling the filter: unknown instruction")
	}
	vm, err := bpf.NewVM(instructions)
	if err != nil {
		return err
	}
	s.filter = vm
	return nil
}

// next is poll with the segment locked.
func (s *memorySocket) next(buf []byte) (int, Metadata, error) {
	switch {
	case s.closed:
		return 0, Metadata{}, net.ErrClosed
	case s.failed != nil:
		err := s.failed
		s.failed = nil
		return 0, Metadata{}, err
	case len(s.queue) == 0:
		return 0, Metadata{}, errQueueEmpty
	}
	q := s.queue[0]
	s.queue = s.queue[1:]
	return copy(buf, q.b), q.m, nil
}

func (s *memorySocket) poll(buf []byte) (int, Metadata, error) {
	s.port.segment.mu.Lock()
	defer s.port.segment.mu.Unlock()
	return s.next(buf)
}

func (s *memorySocket) receive(buf []byte) (int, Metadata, error) {
	for {
		s.port.segment.mu.Lock()
		late := !s.deadline.IsZero() && !s.deadline.After(time.Now())
		n, m, err := 0, Metadata{}, os.ErrDeadlineExceeded
		if !late || s.closed {
			n, m, err = s.next(buf)
		}
		s.port.segment.mu.Unlock()
		if err != errQueueEmpty {
			return n, m, err
		}
		<-s.ready
	}
}

// setReadDeadline supports what this package uses: none, or one in the past.
func (s *memorySocket) setReadDeadline(t time.Time) error {
	s.port.segment.mu.Lock()
	defer s.port.segment.mu.Unlock()
	s.deadline = t
	s.wake()
	return nil
}

func (s *memorySocket) send(frame []byte, _ MAC) error {
	s.port.segment.mu.Lock()
	defer s.port.segment.mu.Unlock()
	switch {
	case s.closed:
		return net.ErrClosed
	case s.port.sendErr != nil:
		return s.port.sendErr
	case s.port.down == ErrDown || s.port.down == ErrGone:
		return s.port.down
	}
	s.port.transmit(frame, s)
	return nil
}

func (s *memorySocket) setFilter(filter []bpf.RawInstruction) error {
	s.port.segment.mu.Lock()
	defer s.port.segment.mu.Unlock()
	return s.attach(filter)
}

func (s *memorySocket) dropped() (uint32, error) {
	s.port.segment.mu.Lock()
	defer s.port.segment.mu.Unlock()
	n := s.lost
	s.lost = 0
	return n, nil
}

func (s *memorySocket) state() error {
	s.port.segment.mu.Lock()
	defer s.port.segment.mu.Unlock()
	return s.port.down
}

func (s *memorySocket) close() error {
	s.port.segment.mu.Lock()
	defer s.port.segment.mu.Unlock()
	s.closed = true
	s.port.sockets = slices.DeleteFunc(s.port.sockets, func(o *memorySocket) bool { return o == s })
	s.wake()
	return nil
}
