// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
)

// NIC names one Ethernet interface as the caller read it from the kernel. The
// kernel's own answer has to agree when a socket is opened.
type NIC struct {
	Name  string // for errors and Frame.Interface
	Index int    // what sockets are bound to
	MAC   MAC    // the only sender and source MAC a probe ever carries
}

// Why a NIC cannot be listened to or asked on. All of them mean "this sensor
// is blind", never "nobody answers".
var (
	ErrNotEthernet = errors.New("not an Ethernet NIC, ARP for IPv4 over Ethernet only")
	ErrDown        = errors.New("the NIC is down")
	ErrNoCarrier   = errors.New("the NIC is up and has no carrier")
	ErrGone        = errors.New("the NIC does not exist any more")
	ErrMACChanged  = errors.New("the NIC has another MAC than the inventory says")
	ErrNoAddress   = errors.New("the NIC has no IPv4 address of its own on this segment to ask with")
)

// NICError says what could not be done on which NIC. Err is one of the errors
// above, or the kernel's.
type NICError struct {
	Doing string // "opening a packet socket on"
	NIC   string
	Err   error
	Hint  string // what to do next; may be empty
}

func (e *NICError) Error() string {
	s := fmt.Sprintf("%s %s: %v", e.Doing, e.NIC, e.Err)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (e *NICError) Unwrap() error { return e.Err }
