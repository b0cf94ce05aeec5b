// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// heldPort is a TCP port on which this host's kernel keeps silent: a listening
// socket whose filter drops every segment. The kernel runs a socket's filter
// before it looks at the socket's state (tcp_v4_rcv, net/ipv4/tcp_ipv4.c), so
// a SYN-ACK for it, which it knows nothing of, is dropped and not answered by
// RST. Nothing can connect to it either.
type heldPort struct {
	fd   int
	port uint16
}

// dropAll is the filter that keeps nothing of any packet.
var dropAll = []bpf.Instruction{bpf.RetConstant{Val: 0}}

// holdPort takes a free port of the kernel's choice on one of this host's own
// addresses, in the calling thread's network namespace.
func holdPort(source netip.Addr) (*heldPort, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a socket: %w", os.NewSyscallError("socket", err))
	}
	port, err := silentListener(fd, source)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("holding a port of %s: %w", source, err)
	}
	return &heldPort{fd, port}, nil
}

// silentListener attaches the filter first: there is no moment at which the
// port would answer.
func silentListener(fd int, source netip.Addr) (uint16, error) {
	program, err := bpf.Assemble(dropAll)
	if err != nil {
		return 0, err
	}
	filter := []unix.SockFilter{{Code: program[0].Op, Jt: program[0].Jt, Jf: program[0].Jf, K: program[0].K}}
	fprog := &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, fprog); err != nil {
		return 0, os.NewSyscallError("attaching a filter", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: source.As4()}); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(fd, 1); err != nil {
		return 0, os.NewSyscallError("listen", err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	return uint16(bound.(*unix.SockaddrInet4).Port), nil
}

// release gives the port back.
func (h *heldPort) release() { unix.Close(h.fd) }
