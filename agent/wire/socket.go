// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"time"

	"golang.org/x/net/bpf"
)

// binding is what a packet socket is bound to and told to report.
type binding struct {
	protocol uint16 // ETH_P_ARP or ETH_P_ALL
	// stamped asks for the kernel's time stamps. While any socket of the host
	// does, the kernel stamps every packet (net/core/dev.c,
	// net_enable_timestamp), so the standing watch does not.
	stamped bool
}

var (
	standingWatch = binding{protocol: ethARP}                // costs other traffic nothing
	quietRound    = binding{protocol: ethARP, stamped: true} // own outgoing frames unseen
	bothWays      = binding{protocol: ethAll, stamped: true} // own outgoing frames too
)

// Values of linux/if_ether.h.
const (
	ethARP = 0x0806
	ethAll = 0x0003
)

// Sockets is where packet sockets come from: Kernel, or a Port of a Segment in
// tests. The tests of this package run the same bodies on both.
type Sockets interface {
	// open binds a socket to the NIC with the filter in force from the first
	// frame on. It fails with a *NICError.
	open(nic NIC, as binding, filter []bpf.RawInstruction) (socket, error)
}

// socket is one packet socket bound to one NIC. receive and poll have one
// caller at a time; the other methods may be called meanwhile, and close too.
type socket interface {
	// receive waits for a frame, copies it to buf and returns its length. It
	// returns os.ErrDeadlineExceeded once the read deadline has passed, also
	// when that is set while it waits.
	receive(buf []byte) (int, Metadata, error)
	// poll is receive without waiting and without regard to the deadline:
	// errQueueEmpty when nothing is there.
	poll(buf []byte) (int, Metadata, error)
	// setReadDeadline wakes a waiting receive when t is in the past.
	setReadDeadline(t time.Time) error
	// send hands one frame to the NIC without waiting. nil does not mean that
	// it arrived anywhere.
	send(frame []byte, dst MAC) error
	// setFilter replaces the filter in one step.
	setFilter(filter []bpf.RawInstruction) error
	// dropped returns how many matching frames found the receive queue full
	// since the last call (PACKET_STATISTICS).
	dropped() (uint32, error)
	// state returns nil when the NIC can be heard and asked, else ErrDown,
	// ErrNoCarrier, ErrGone or the kernel's error.
	state() error
	close() error
}

// errQueueEmpty is returned by poll when no frame waits.
var errQueueEmpty = errors.New("no frame waits")

// errFilterMemory is wrapped by setFilter and open when the kernel has no room
// for so long a filter.
var errFilterMemory = errors.New("no memory for a filter of this length")

// coarseSpans is how long a filter has to be for the smallest limit seen
// (20,480 bytes for the old filter and the new one together).
const coarseSpans = 64

// withFilter calls set with the exact filter for the spans, and again with a
// shorter, coarser one where the kernel has no room. Every reader checks the
// addresses again, so the difference is in wake-ups only.
func withFilter(spans []span, set func([]bpf.RawInstruction) error) error {
	exact, err := program(spans)
	if err != nil {
		return err
	}
	err = set(exact)
	if !errors.Is(err, errFilterMemory) || len(spans) <= coarseSpans {
		return err
	}
	coarse, err := program(coarsen(spans, coarseSpans))
	if err != nil {
		return err
	}
	return set(coarse)
}

// openFiltered opens a socket for the spans.
func openFiltered(from Sockets, nic NIC, as binding, spans []span) (socket, error) {
	if from == nil {
		from = Kernel{}
	}
	var s socket
	err := withFilter(spans, func(filter []bpf.RawInstruction) (err error) {
		s, err = from.open(nic, as, filter)
		return err
	})
	return s, err
}

// drainLimit bounds drain when frames keep coming faster than they are read.
const drainLimit = 1 << 16

// drain reads what waits in the queue, after the deadline has passed.
func drain(s socket, buf []byte, take func([]byte, Metadata)) error {
	for range drainLimit {
		n, m, err := s.poll(buf)
		if errors.Is(err, errQueueEmpty) {
			return nil
		}
		if err != nil {
			return err
		}
		take(buf[:n], m)
	}
	return nil
}
