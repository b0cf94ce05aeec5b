// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"sync"
	"time"
)

// longAgo is a read deadline that wakes whoever waits.
var longAgo = time.Unix(1, 0)

// ListenConfig says what a Listener listens for. OnFrame runs on Run's
// goroutine, one frame at a time; while it works the kernel queues, and beyond
// its queue drops and counts. The Listener itself keeps no frame.
type ListenConfig struct {
	Watched []netip.Addr // IPv4, at most MaxWatched; none: nothing is heard
	OnFrame func(Frame)  // may be nil
	Sockets Sockets      // nil: Kernel
}

// Listener is the standing watch on one NIC: bound to ARP, so that it costs
// other traffic nothing and sees none of this host's own replies. Frames of
// a VLAN child of the NIC are left to a Listener on that child.
type Listener struct {
	intake
	sock    socket
	onFrame func(Frame)

	mu      sync.Mutex // guards what follows, and the order of filter changes
	closed  bool
	dropped uint64
}

// Listen opens the socket, with its filter in force, and starts nothing: the
// kernel queues frames until Run reads them. Whoever does not call Run calls
// Close. It fails with a *NICError, or when an address cannot be watched.
func Listen(nic NIC, cfg ListenConfig) (*Listener, error) {
	return listen(nic, standingWatch, cfg)
}

func listen(nic NIC, as binding, cfg ListenConfig) (*Listener, error) {
	spans, err := spansOf(cfg.Watched)
	if err != nil {
		return nil, err
	}
	sock, err := openFiltered(cfg.Sockets, nic, as, spans)
	if err != nil {
		return nil, err
	}
	l := &Listener{sock: sock, onFrame: cfg.OnFrame}
	l.nic = nic
	l.watched.Store(&spans)
	return l, nil
}

// Run hands frames to OnFrame until ctx ends and what is queued by then is
// read, then closes the socket and returns nil. It returns a *NICError when the NIC goes down (ErrDown) or away
// (ErrGone): from then on this sensor is blind, until a new Listener is open.
func (l *Listener) Run(ctx context.Context) error {
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { _ = l.sock.setReadDeadline(longAgo) })
	defer stop()
	buf := make([]byte, snapLength)
	for {
		n, m, err := l.sock.receive(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
			err = drain(l.sock, buf, l.take)
		} else if err == nil {
			l.take(buf[:n], m)
			continue
		}
		if err != nil {
			return &NICError{Doing: "listening for ARP on", NIC: l.nic.Name, Err: err}
		}
		return nil
	}
}

func (l *Listener) take(b []byte, m Metadata) {
	if f, ok := l.accept(b, m); ok && l.onFrame != nil {
		l.onFrame(f)
	}
}

// SetWatched replaces the watched addresses. The kernel swaps its filter in one
// step: no frame about an address that was and stays watched is lost. On an
// error the old filter and the old addresses stay.
func (l *Listener) SetWatched(watched []netip.Addr) error {
	spans, err := spansOf(watched)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return &NICError{Doing: "replacing the ARP filter on", NIC: l.nic.Name, Err: os.ErrClosed}
	}
	old := l.watched.Swap(&spans)
	if err := withFilter(spans, l.sock.setFilter); err != nil {
		l.watched.Store(old)
		return err
	}
	return nil
}

// Stats returns the counts so far; it may be called at any time.
func (l *Listener) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.countDrops()
	}
	st := l.stats()
	st.Dropped = l.dropped
	return st
}

// countDrops is called with mu held; the kernel forgets what it has told.
func (l *Listener) countDrops() {
	if n, err := l.sock.dropped(); err == nil {
		l.dropped += uint64(n)
	}
}

// Close closes the socket; Run returns. Closing twice is fine.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	l.countDrops()
	return l.sock.close()
}
