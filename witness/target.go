// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"
)

const (
	// DefaultTimeout of one request, from the first SYN to the end of the answer. A lost SYN is sent again
	// after 1 s (RFC 6298 section 2.1): that is a slow request, which the longest gap shows, and no lost one.
	DefaultTimeout = 3 * time.Second
	// maxBody is how much of an answer is read and searched for the marker.
	maxBody = 64 << 10

	userAgent = "vipmove-witness"
)

// Target is what a request asks for and what a good answer is.
type Target struct {
	// Address is the VIP and its port.
	Address netip.AddrPort
	// TCP asks for a connection only; the fields below are then not used.
	TCP bool
	// Host is the Host header. Default: the address.
	Host string
	// Path of the request. Default: /.
	Path string
	// Status that a good answer has. Default: 200.
	Status int
	// Marker has to be in the first 64 KiB of the body. Empty: any body.
	Marker string
	// Timeout of one request, connection and answer together. Default: DefaultTimeout.
	Timeout time.Duration
}

// Validate says what is missing.
func (t Target) Validate() error {
	switch {
	case !t.Address.IsValid() || t.Address.Port() == 0:
		return fmt.Errorf("target %q is no address with a port", t.Address)
	case !t.Address.Addr().Is4():
		return fmt.Errorf("target %s is no IPv4 address", t.Address)
	case t.Timeout < 0:
		return fmt.Errorf("timeout %s of target %s is negative", t.Timeout, t.Address)
	}
	return nil
}

// String is the target as a URL, or as tcp://address.
func (t Target) String() string {
	if t.TCP {
		return "tcp://" + t.Address.String()
	}
	return "http://" + t.Address.String() + cmp.Or(t.Path, "/")
}

// timeout is Timeout or its default.
func (t Target) timeout() time.Duration { return cmp.Or(t.Timeout, DefaultTimeout) }

// exchange sends one request over a connection of its own and reads the whole
// answer. The connection's deadline bounds it; the caller closes it.
func (t Target) exchange(conn net.Conn) *RequestError {
	if t.TCP {
		return nil
	}
	request, err := http.NewRequest(http.MethodGet, "http://"+t.Address.String()+cmp.Or(t.Path, "/"), nil)
	if err != nil {
		return failed(Local, fmt.Errorf("making the request: %w", err))
	}
	request.Host = cmp.Or(t.Host, t.Address.Addr().String())
	request.Header.Set("User-Agent", userAgent)
	request.Close = true // the server then closes first
	if err := request.Write(conn); err != nil {
		return answering(err)
	}
	answer := &ending{Reader: conn}
	response, err := http.ReadResponse(bufio.NewReader(answer), request)
	if err != nil && answer.ended {
		return failed(Cut, err) // net/http complains of the last line's form
	}
	if err != nil {
		return answering(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return answering(err)
	}
	return t.judge(response.StatusCode, body)
}

// ending knows whether its reader has come to an end.
type ending struct {
	io.Reader
	ended bool
}

func (e *ending) Read(b []byte) (int, error) {
	n, err := e.Reader.Read(b)
	e.ended = e.ended || errors.Is(err, io.EOF)
	return n, err
}

// judge compares a whole answer with a good one.
func (t Target) judge(status int, body []byte) *RequestError {
	if want := cmp.Or(t.Status, http.StatusOK); status != want {
		return failed(Status, fmt.Errorf("answered with status %d, want %d", status, want))
	}
	if !bytes.Contains(body, []byte(t.Marker)) {
		return failed(Body, errors.New("the marker is not in the body"))
	}
	return nil
}
