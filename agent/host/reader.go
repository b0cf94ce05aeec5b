// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// reader takes the answer to one request apart.
type reader struct {
	seq, pid uint32
	answer   uint16 // message type wanted
	each     func([]byte) error

	done        bool
	interrupted bool
	failed      error // first error of each: the rest is read and dropped
}

// read takes one batch. Its error ends the exchange.
func (r *reader) read(b []byte) error {
	for len(b) >= unix.NLMSG_HDRLEN && !r.done {
		n := int(binary.NativeEndian.Uint32(b))
		if n < unix.NLMSG_HDRLEN || n > len(b) {
			return errShort
		}
		typ, flags := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])
		seq, pid := binary.NativeEndian.Uint32(b[8:]), binary.NativeEndian.Uint32(b[12:])
		if seq == r.seq && pid == r.pid {
			if err := r.message(typ, flags, b[unix.NLMSG_HDRLEN:n]); err != nil {
				return err
			}
		}
		b = b[min(align(n), len(b)):]
	}
	return nil
}

func (r *reader) message(typ, flags uint16, body []byte) error {
	// Set on any message of the dump, the last one included.
	if flags&unix.NLM_F_DUMP_INTR != 0 {
		r.interrupted = true
	}
	switch typ {
	case unix.NLMSG_DONE, unix.NLMSG_ERROR:
		r.done = true
		if typ == unix.NLMSG_DONE && len(body) < 4 {
			return nil
		}
		return errnoOf(body)
	case unix.NLMSG_OVERRUN:
		return errors.New("netlink answer was cut by the kernel")
	case r.answer:
		if r.failed == nil && r.each != nil {
			r.failed = r.each(body)
		}
	}
	return nil
}

func (r *reader) verdict() error {
	if r.interrupted {
		return ErrInterrupted
	}
	return r.failed
}

func errnoOf(body []byte) error {
	if len(body) < 4 {
		return errShort
	}
	if n := int32(binary.NativeEndian.Uint32(body)); n != 0 {
		return syscall.Errno(-n)
	}
	return nil
}
