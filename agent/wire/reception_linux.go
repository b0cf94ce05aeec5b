// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"
)

// reception is one recvmsg(2) into buffers that are used again and again.
type reception struct {
	buf []byte // the caller's
	oob [128]byte

	n, oobn int
	from    unix.Sockaddr
	err     error
}

// read takes one frame from the queue. It never waits: the runtime's poller
// does.
func (r *reception) read(fd int) {
	for {
		r.n, r.oobn, _, r.from, r.err = unix.Recvmsg(fd, r.buf, r.oob[:], unix.MSG_DONTWAIT)
		if r.err != unix.EINTR {
			return
		}
	}
}

// metadata reads what the kernel told beside the frame.
func (r *reception) metadata() Metadata {
	var m Metadata
	if ll, ok := r.from.(*unix.SockaddrLinklayer); ok {
		m.PacketType, m.Index = ll.Pkttype, ll.Ifindex
	}
	m.At = time.Now()
	for rest := r.oob[:r.oobn]; len(rest) >= unix.SizeofCmsghdr; {
		h, data, next, err := unix.ParseOneSocketControlMessage(rest)
		if err != nil {
			break
		}
		switch {
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SCM_TIMESTAMPNS:
			m.At = received(m.At, timespec(data))
		case h.Level == unix.SOL_PACKET && h.Type == unix.PACKET_AUXDATA:
			vlanTag(data, &m)
		}
		rest = next
	}
	return m
}

// received turns the kernel's wall-clock stamp into a time with a monotonic
// reading, so that windows are kept when the clock is set. A stamp that is not
// from the last seconds is not believed: the clock was set in between.
func received(now time.Time, stamp time.Time) time.Time {
	age := now.Round(0).Sub(stamp)
	if age < 0 || age > 10*time.Second {
		return now
	}
	return now.Add(-age)
}

// timespec reads struct timespec in either of its sizes; zero if neither.
func timespec(b []byte) time.Time {
	switch len(b) {
	case 16:
		return time.Unix(int64(binary.NativeEndian.Uint64(b)), int64(binary.NativeEndian.Uint64(b[8:])))
	case 8:
		return time.Unix(int64(int32(binary.NativeEndian.Uint32(b))), int64(int32(binary.NativeEndian.Uint32(b[4:]))))
	}
	return time.Time{}
}

// vlanTag reads struct tpacket_auxdata (linux/if_packet.h).
func vlanTag(b []byte, m *Metadata) {
	const status, tci, tpid, size = 0, 16, 18, 20
	if len(b) < size {
		return
	}
	flags := binary.NativeEndian.Uint32(b[status:])
	if flags&unix.TP_STATUS_VLAN_VALID == 0 {
		return
	}
	m.Tagged = true
	m.TCI = binary.NativeEndian.Uint16(b[tci:])
	if flags&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
		m.TPID = binary.NativeEndian.Uint16(b[tpid:])
	}
}
