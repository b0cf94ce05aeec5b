// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// control runs fn with the descriptor, which stays valid meanwhile.
func (s *kernelSocket) control(fn func(fd int) error) error {
	var err error
	if cerr := s.raw.Control(func(fd uintptr) { err = fn(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

func (s *kernelSocket) receive(buf []byte) (int, Metadata, error) {
	s.in.buf = buf
	if err := s.raw.Read(s.waiting); err != nil {
		return 0, Metadata{}, err
	}
	return s.received()
}

func (s *kernelSocket) poll(buf []byte) (int, Metadata, error) {
	s.in.buf = buf
	if err := s.raw.Control(s.polling); err != nil {
		return 0, Metadata{}, err
	}
	if s.in.err == unix.EAGAIN {
		return 0, Metadata{}, errQueueEmpty
	}
	return s.received()
}

func (s *kernelSocket) received() (int, Metadata, error) {
	if s.in.err == unix.ENETDOWN { // once, when the NIC goes down or away
		if err := s.state(); errors.Is(err, ErrGone) {
			return 0, Metadata{}, err
		}
		return 0, Metadata{}, ErrDown
	}
	if s.in.err != nil {
		return 0, Metadata{}, s.in.err
	}
	m := s.in.metadata()
	m.Interface = s.nic.Name
	return s.in.n, m, nil
}

func (s *kernelSocket) setReadDeadline(t time.Time) error { return s.conn.SetReadDeadline(t) }

func (s *kernelSocket) send(frame []byte, dst MAC) error {
	// The frame's own type, not the socket's: a socket bound to all protocols
	// would hand ETH_P_ALL to tc and to older kernels' drivers.
	to := unix.SockaddrLinklayer{Protocol: networkOrder(ethARP), Ifindex: s.nic.Index, Halen: 6}
	copy(to.Addr[:], dst[:])
	err := s.control(func(fd int) error { return unix.Sendto(fd, frame, unix.MSG_DONTWAIT, &to) })
	switch {
	case errors.Is(err, unix.ENETDOWN):
		return ErrDown
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return ErrGone
	}
	return err
}

func networkOrder(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}

func (s *kernelSocket) setFilter(filter []bpf.RawInstruction) error {
	err := s.conn.SetBPF(filter)
	if err == nil {
		return nil
	}
	err = errnoOf(err)
	if errors.Is(err, unix.ENOMEM) {
		err = errors.Join(errFilterMemory, err)
	}
	return &NICError{Doing: "replacing the ARP filter on", NIC: s.nic.Name, Err: err}
}

func (s *kernelSocket) dropped() (uint32, error) {
	st, err := s.conn.Stats()
	if err != nil {
		return 0, err
	}
	return st.Drops, nil
}

func (s *kernelSocket) state() error {
	return s.control(func(fd int) error {
		sa, err := unix.Getsockname(fd)
		if err != nil {
			return err
		}
		// The kernel sets -1 when the NIC is unregistered; a new one of the
		// same name is another NIC.
		if ll, ok := sa.(*unix.SockaddrLinklayer); !ok || ll.Ifindex != s.nic.Index {
			return ErrGone
		}
		return linkState(fd, s.nic.Name)
	})
}

func (s *kernelSocket) close() error {
	err := s.conn.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// linkState reads the flags of netdevice(7). Without IFF_RUNNING the kernel
// takes frames and throws them away.
func linkState(fd int, name string) error {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return fmt.Errorf("naming %q: %w", name, err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req); err != nil {
		if errors.Is(err, unix.ENODEV) {
			return ErrGone
		}
		return fmt.Errorf("reading link flags: %w", err)
	}
	switch flags := req.Uint16(); {
	case flags&unix.IFF_UP == 0:
		return ErrDown
	case flags&unix.IFF_RUNNING == 0:
		return ErrNoCarrier
	}
	return nil
}
