// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// socket is one rtnetlink socket for a few requests by one goroutine. It asks
// for strict checking, with which the kernel filters dumps itself (Linux
// 4.20): vishvananda/netlink never sends the link's index, and a small link's
// dump then costs what every other link's addresses cost. It is made in the
// network namespace of the calling thread and closed after use, so no answer
// to an earlier request is ever read as one to a later.
type socket struct {
	fd  int
	pid uint32
	seq uint32
	buf *[bufferSize]byte
}

// bufferSize is what one read takes. The kernel fills at most 32 KiB of it
// with one message batch (netlink_dump, net/netlink/af_netlink.c).
const bufferSize = 64 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// answerTimeout bounds the wait for one read of an answer. The kernel answers
// within the send call, so this is never waited for in a healthy system.
var answerTimeout = unix.Timeval{Sec: 5}

func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening an rtnetlink socket: %w", err)
	}
	s := &socket{fd: fd}
	if err := s.prepare(); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("preparing an rtnetlink socket: %w", err)
	}
	s.buf = buffers.Get().(*[bufferSize]byte)
	return s, nil
}

func (s *socket) prepare() error {
	if err := unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	self, err := unix.Getsockname(s.fd)
	if err != nil {
		return err
	}
	if nl, ok := self.(*unix.SockaddrNetlink); ok {
		s.pid = nl.Pid
	}
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &answerTimeout); err != nil {
		return err
	}
	// Older kernels send more than was asked for; every reader filters again.
	err = unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return nil
	}
	return err
}

func (s *socket) close() {
	buffers.Put(s.buf)
	s.buf = nil
	unix.Close(s.fd)
}

// dump asks for a whole table and calls each for the body of every entry of
// type answer. With ErrInterrupted what each saw is not to be used.
func (s *socket) dump(ctx context.Context, request, answer uint16, body []byte, each func([]byte) error) error {
	return s.exchange(ctx, request, unix.NLM_F_DUMP, answer, body, each)
}

// change sends one request and returns the kernel's answer to it.
func (s *socket) change(request, flags uint16, body []byte) error {
	return s.exchange(context.Background(), request, unix.NLM_F_ACK|flags, 0, body, nil)
}

func (s *socket) exchange(ctx context.Context, request, flags, answer uint16, body []byte, each func([]byte) error) error {
	s.seq++
	msg := header(request, flags|unix.NLM_F_REQUEST, s.seq, len(body))
	if err := unix.Sendto(s.fd, append(msg, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	r := reader{seq: s.seq, pid: s.pid, answer: answer, each: each}
	for !r.done {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := s.receive()
		if err != nil {
			return err
		}
		if err := r.read(b); err != nil {
			return err
		}
	}
	return r.verdict()
}

// receive reads one batch of messages that the kernel, and nobody else, sent.
func (s *socket) receive() ([]byte, error) {
	for {
		n, from, err := unix.Recvfrom(s.fd, s.buf[:], unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		case n > len(s.buf):
			return nil, fmt.Errorf("netlink answer of %d bytes is longer than the buffer", n)
		}
		if nl, ok := from.(*unix.SockaddrNetlink); ok && nl.Pid == 0 {
			return s.buf[:n], nil
		}
	}
}

// ioctlName asks for the name of a link index: the cheapest question there is.
func (s *socket) ioctlName(index int) (string, error) {
	req, err := unix.NewIfreq("")
	if err != nil {
		return "", err
	}
	req.SetUint32(uint32(index))
	switch err := unix.IoctlIfreq(s.fd, unix.SIOCGIFNAME, req); {
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return "", ErrNoLink
	case err != nil:
		return "", err
	}
	return req.Name(), nil
}
