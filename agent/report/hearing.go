// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/vipmove/vipmove/agent/wire"
)

// hearingLead is how long an observer listens before it asks: the others get
// their orders a little later or earlier, and a broadcast that was sent before
// somebody listened would make a sensor look deaf that is not.
const hearingLead = 200 * time.Millisecond

// maxHeard bounds the senders that are kept.
const maxHeard = 256

// hearing listens for other observers' broadcasts while a round runs.
type hearing struct {
	own   wire.MAC
	stop  context.CancelFunc
	done  chan struct{}
	heard []wire.MAC // written by the listener's goroutine until done is closed
}

// listenFor opens the ear, and returns when it has been open for hearingLead.
// One that cannot be opened hears nothing: that the NIC cannot be listened on
// is for the round to say.
func listenFor(ctx context.Context, nic wire.NIC, from wire.Sockets, addresses []netip.Addr) *hearing {
	h := &hearing{own: nic.MAC, done: make(chan struct{}), stop: func() {}}
	l, err := wire.Listen(nic, wire.ListenConfig{Watched: addresses, OnFrame: h.frame, Sockets: from})
	if err != nil {
		close(h.done)
		return h
	}
	listening, stop := context.WithCancel(ctx)
	h.stop = stop
	go func() {
		defer close(h.done)
		_ = l.Run(listening) // the round meets the same NIC and says what is wrong with it
	}()
	lead := time.NewTimer(hearingLead)
	defer lead.Stop()
	select {
	case <-lead.C:
	case <-ctx.Done():
	}
	return h
}

func (h *hearing) frame(f wire.Frame) {
	if f.Op == wire.OpRequest && f.EthDst == wire.BroadcastMAC && f.SenderMAC != h.own &&
		len(h.heard) < maxHeard && !slices.Contains(h.heard, f.SenderMAC) {
		h.heard = append(h.heard, f.SenderMAC)
	}
}

// end closes the ear and returns whom it heard.
func (h *hearing) end() []wire.MAC {
	h.stop()
	<-h.done
	return h.heard
}
