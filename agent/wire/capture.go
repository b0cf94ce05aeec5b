// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"net/netip"
	"sync"
)

// captureLimit is how many frames a Capture keeps: a few hundred kilobytes.
const captureLimit = 4096

// CaptureConfig says what a Capture records.
type CaptureConfig struct {
	Watched []netip.Addr // IPv4, at most MaxWatched
	OnFrame func(Frame)  // may be nil; on Run's goroutine, after the frame is kept
	Sockets Sockets      // nil: Kernel
}

// Capture records ARP in both directions on one NIC, this host's own replies
// (Direction Outgoing) above all: the proof that a node answered, whether or
// not the network delivered it. Its socket is bound to all protocols and so
// taxes every packet of the host: open it for a probe round or a run, and let
// it go after. It also sees frames that eBPF consumes before the ARP layer.
// Frames of a VLAN on top of the NIC have VLAN set; they are another segment's.
type Capture struct {
	listener *Listener
	onFrame  func(Frame)

	mu        sync.Mutex
	kept      []Frame // a ring once full
	next      int     // where the oldest one is, once full
	forgotten uint64
}

// OpenCapture opens the socket; the kernel queues frames until Run reads them.
// Whoever does not call Run calls Close. It fails as Listen does.
func OpenCapture(nic NIC, cfg CaptureConfig) (*Capture, error) {
	c := &Capture{onFrame: cfg.OnFrame}
	l, err := listen(nic, bothWays, ListenConfig{Watched: cfg.Watched, OnFrame: c.keep, Sockets: cfg.Sockets})
	if err != nil {
		return nil, err
	}
	c.listener = l
	return c, nil
}

// Run records until ctx ends, as Listener.Run does.
func (c *Capture) Run(ctx context.Context) error { return c.listener.Run(ctx) }

// Close closes the socket. Frames stay readable.
func (c *Capture) Close() error { return c.listener.Close() }

// SetWatched replaces the watched addresses, as Listener.SetWatched does.
func (c *Capture) SetWatched(watched []netip.Addr) error { return c.listener.SetWatched(watched) }

// Stats returns the counts so far.
func (c *Capture) Stats() Stats { return c.listener.Stats() }

// keep adds a frame, over the oldest one when there is no room.
func (c *Capture) keep(f Frame) {
	c.mu.Lock()
	if len(c.kept) < captureLimit {
		c.kept = append(c.kept, f)
	} else {
		c.kept[c.next] = f
		c.next = (c.next + 1) % captureLimit
		c.forgotten++
	}
	c.mu.Unlock()
	if c.onFrame != nil {
		c.onFrame(f)
	}
}

// Frames returns a copy of the newest frames, oldest first, at most 4096, and
// how many older ones had to go: with any gone, what is not there proves
// nothing.
func (c *Capture) Frames() (newest []Frame, forgotten uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	newest = make([]Frame, 0, len(c.kept))
	newest = append(newest, c.kept[c.next:]...)
	newest = append(newest, c.kept[:c.next]...)
	return newest, c.forgotten
}
