// SPDX-License-Identifier: Apache-2.0

// Package fleettest is for tests of what speaks gRPC in a testing/synctest bubble.
//
// It takes the place of grpc/test/bufconn there, whose every connection makes timers that are due at once. Two
// of those at a time crash the race detector in a bubble (go.dev/issue/78156).
package fleettest

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// Listener is a net.Listener in memory. Its connections hold what was written until it is read, without
// bound, and know no deadlines.
type Listener struct {
	calls chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// Listen returns a listener that is open until Close.
func Listen() *Listener {
	return &Listener{calls: make(chan net.Conn), done: make(chan struct{})}
}

// Accept implements net.Listener. After Close its error is net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.calls:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Connections stay.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return address{} }

// DialContext returns once somebody accepted. After Close its error is net.ErrClosed.
func (l *Listener) DialContext(ctx context.Context) (net.Conn, error) {
	there, back := newHalf(), newHalf()
	select {
	case l.calls <- &conn{in: there, out: back}:
		return &conn{in: back, out: there}, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type address struct{}

func (address) Network() string { return "memory" }
func (address) String() string  { return "memory" }

// half is one direction of a connection.
type half struct {
	mu     sync.Mutex
	filled *sync.Cond
	data   bytes.Buffer
	closed bool
}

func newHalf() *half {
	h := &half{}
	h.filled = sync.NewCond(&h.mu)
	return h
}

func (h *half) read(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.data.Len() == 0 && !h.closed {
		h.filled.Wait()
	}
	if h.data.Len() == 0 {
		return 0, io.EOF
	}
	return h.data.Read(b)
}

func (h *half) write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return 0, io.ErrClosedPipe
	}
	defer h.filled.Broadcast()
	return h.data.Write(b)
}

func (h *half) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.filled.Broadcast()
}

// conn is one end.
type conn struct{ in, out *half }

func (c *conn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }

// Close ends both directions; what was written before can still be read.
func (c *conn) Close() error {
	c.in.close()
	c.out.close()
	return nil
}

func (c *conn) LocalAddr() net.Addr              { return address{} }
func (c *conn) RemoteAddr() net.Addr             { return address{} }
func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
