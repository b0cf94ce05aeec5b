// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Kernel opens AF_PACKET sockets (packet(7)) in the network namespace of the
// calling thread. They need CAP_NET_RAW.
type Kernel struct{}

// receiveBuffer is the socket's queue in bytes: some thousand frames. Without
// CAP_NET_ADMIN the kernel cuts it to net.core.rmem_max.
const receiveBuffer = 4 << 20

func (Kernel) open(nic NIC, as binding, filter []bpf.RawInstruction) (socket, error) {
	fail := func(err error, hint string) (socket, error) {
		return nil, &NICError{Doing: "opening a packet socket on", NIC: nic.Name, Err: err, Hint: hint}
	}
	conn, err := packet.Listen(&net.Interface{Index: nic.Index, Name: nic.Name},
		packet.Raw, int(as.protocol), &packet.Config{Filter: filter})
	switch {
	case errors.Is(err, unix.EPERM):
		return fail(errnoOf(err), "needs CAP_NET_RAW")
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fail(ErrGone, "")
	case errors.Is(err, unix.ENOMEM):
		return fail(errors.Join(errFilterMemory, errnoOf(err)), "net.core.optmem_max is too small")
	case err != nil:
		return fail(errnoOf(err), "")
	}
	s, err := newKernelSocket(conn, nic)
	if err == nil {
		err = s.prepare(as.stamped)
	}
	if err != nil {
		_ = conn.Close()
		return fail(err, "")
	}
	return s, nil
}

// errnoOf strips the wrapping of package net from an error, which would say
// again what is being done.
func errnoOf(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

type kernelSocket struct {
	nic  NIC
	conn *packet.Conn
	raw  syscall.RawConn

	// The receive in progress; used by its one caller only.
	in      reception
	waiting func(fd uintptr) bool // made once: a closure for every frame is an allocation
	polling func(fd uintptr)
}

func newKernelSocket(conn *packet.Conn, nic NIC) (*kernelSocket, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &kernelSocket{nic: nic, conn: conn, raw: raw}
	s.waiting = func(fd uintptr) bool { s.in.read(int(fd)); return s.in.err != unix.EAGAIN }
	s.polling = func(fd uintptr) { s.in.read(int(fd)) }
	return s, nil
}

// prepare checks that the NIC is what the caller takes it for and turns on
// what the kernel tells beside a frame.
func (s *kernelSocket) prepare(stamped bool) error {
	return s.control(func(fd int) error {
		sa, err := unix.Getsockname(fd)
		if err != nil {
			return err
		}
		ll, ok := sa.(*unix.SockaddrLinklayer)
		if !ok || ll.Hatype != unix.ARPHRD_ETHER || ll.Halen != 6 {
			return ErrNotEthernet
		}
		if mac := MAC(ll.Addr[:6]); mac != s.nic.MAC {
			return fmt.Errorf("%w: %s, not %s", ErrMACChanged, mac, s.nic.MAC)
		}
		if err := linkState(fd, s.nic.Name); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
			return fmt.Errorf("asking for VLAN tags (PACKET_AUXDATA): %w", err)
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, boolInt(stamped)); err != nil {
			return fmt.Errorf("asking for time stamps (SO_TIMESTAMPNS): %w", err)
		}
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
			// A short queue loses frames in a flood only, and says so.
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
		}
		return nil
	})
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
