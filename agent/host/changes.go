// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// changeBuffer is the socket's room for notifications, in bytes: some two
// thousand of them.
const changeBuffer = 1 << 20

// past is a deadline that wakes a blocked read.
var past = time.Unix(1, 0)

// Changes listens to links, addresses and routes; see Kernel.
func (l *Linux) Changes(ctx context.Context, fn func(Hint)) error {
	f, err := subscribe(unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return fmt.Errorf("subscribing to kernel changes: %w", err)
	}
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { f.SetReadDeadline(past) })
	defer stop()
	fn(Hint{Kind: Subscribed})
	buf := make([]byte, bufferSize)
	for {
		n, err := readKernel(f, buf)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("listening for kernel changes: %w", ctx.Err())
		case errors.Is(err, unix.ENOBUFS):
			return fmt.Errorf("listening for kernel changes: %w", ErrOverflow)
		case err != nil:
			return fmt.Errorf("listening for kernel changes: %w", err)
		}
		if err := hints(buf[:n], fn); err != nil {
			return fmt.Errorf("reading a kernel change: %w", err)
		}
	}
}

// subscribe opens an rtnetlink socket that hears the groups.
func subscribe(groups ...int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "rtnetlink")
	// The kernel halves it where net.core.rmem_max is smaller; a smaller one
	// only overflows sooner.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, changeBuffer)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		f.Close()
		return nil, err
	}
	for _, g := range groups {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

// readKernel waits for one batch of messages that the kernel sent. A batch of
// anyone else comes out empty.
func readKernel(f *os.File, buf []byte) (n int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var from unix.Sockaddr
	var failed error
	err = conn.Read(func(fd uintptr) bool {
		for failed = error(unix.EINTR); errors.Is(failed, unix.EINTR); {
			n, from, failed = unix.Recvfrom(int(fd), buf, unix.MSG_TRUNC)
		}
		return !errors.Is(failed, unix.EAGAIN)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, err
	}
	if n > len(buf) {
		return 0, unix.ENOBUFS // cut, so something was lost
	}
	if nl, ok := from.(*unix.SockaddrNetlink); !ok || nl.Pid != 0 {
		return 0, nil
	}
	return n, nil
}

// hints turns a batch of notifications into hints.
func hints(b []byte, fn func(Hint)) error {
	for len(b) >= unix.NLMSG_HDRLEN {
		n := int(binary.NativeEndian.Uint32(b))
		if n < unix.NLMSG_HDRLEN || n > len(b) {
			return errShort
		}
		h, ok, err := hint(binary.NativeEndian.Uint16(b[4:]), b[unix.NLMSG_HDRLEN:n])
		if err != nil {
			return err
		}
		if ok {
			fn(h)
		}
		b = b[min(align(n), len(b)):]
	}
	return nil
}

func hint(typ uint16, body []byte) (h Hint, ok bool, err error) {
	switch typ {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(body) < unix.SizeofIfInfomsg {
			return h, false, errShort
		}
		return Hint{Kind: LinkChanged, LinkIndex: int(int32(binary.NativeEndian.Uint32(body[4:]))), Gone: typ == unix.RTM_DELLINK}, true, nil
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		var a Address
		var label string
		err := a.parse(body, &label)
		return Hint{Kind: AddressChanged, LinkIndex: a.LinkIndex, Address: a.Prefix.Addr(), Gone: typ == unix.RTM_DELADDR}, a.Prefix.IsValid(), err
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		r, err := parseRoute(body)
		return Hint{Kind: RouteChanged, LinkIndex: r.LinkIndex, Address: r.Prefix.Addr(), Gone: typ == unix.RTM_DELROUTE}, err == nil, err
	}
	return h, false, nil
}
