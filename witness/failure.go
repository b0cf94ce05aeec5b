// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Failure is the type of a failed request: how far it came and what ended it.
// The values are those of Requests.failed_by_type on the wire.
type Failure string

// The types of failure.
const (
	// NoRoute: this host or a router says that the way does not exist, or that
	// nobody answers ARP (EHOSTUNREACH).
	NoRoute Failure = "no-route"
	// Refused: the SYN was answered by RST. A machine has the frame and serves nothing.
	Refused Failure = "refused"
	// ConnectTimeout: no answer to the SYN.
	ConnectTimeout Failure = "connect-timeout"
	// AnswerTimeout: connected, and then no whole answer in time.
	AnswerTimeout Failure = "answer-timeout"
	// Reset: connected, then RST.
	Reset Failure = "reset"
	// Cut: connected, and the connection was closed inside the answer.
	Cut Failure = "cut"
	// Status: an answer with another status, or none that is HTTP.
	Status Failure = "status"
	// Body: the right status, and the marker is not in the body.
	Body Failure = "body"
	// Local: the request did not leave, for a reason of this host (no port, no
	// descriptor, no right). It says nothing about the VIP, and it is no success.
	Local Failure = "local"
)

// Failures lists every type, in the order of a request's way.
var Failures = []Failure{Local, NoRoute, Refused, ConnectTimeout, AnswerTimeout, Reset, Cut, Status, Body}

// RequestError is a failed request.
type RequestError struct {
	Failure Failure
	Err     error
}

// Error is the type and the reason.
func (e *RequestError) Error() string { return fmt.Sprintf("%s: %v", e.Failure, e.Err) }

// Unwrap is the reason.
func (e *RequestError) Unwrap() error { return e.Err }

func failed(f Failure, err error) *RequestError { return &RequestError{Failure: f, Err: err} }

// connecting classifies an error of connect(2) (tcp(7), ip(7)).
func connecting(err error) *RequestError {
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return failed(Refused, err)
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH),
		errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.EHOSTDOWN):
		return failed(NoRoute, err)
	case errors.Is(err, unix.ECONNRESET):
		return failed(Reset, err)
	case timedOut(err):
		return failed(ConnectTimeout, err)
	default:
		return failed(Local, err)
	}
}

// answering classifies an error of reading or writing after the connect.
func answering(err error) *RequestError {
	switch {
	case timedOut(err):
		return failed(AnswerTimeout, err)
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNABORTED):
		return failed(Reset, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return failed(Cut, err)
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return failed(NoRoute, err)
	default:
		return failed(Status, err) // net/http read bytes that are no answer
	}
}

func timedOut(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, unix.ETIMEDOUT) || errors.As(err, &timeout) && timeout.Timeout()
}
