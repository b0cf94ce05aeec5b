// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"slices"

	"github.com/vipmove/vipmove/agent/host"
)

// subscribe passes the kernel's hints on. A subscription that ends has lost
// hints: everything is looked at again then.
func (w *watch) subscribe(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := w.cfg.Kernel.Changes(ctx, w.hint); err != nil && ctx.Err() == nil {
			w.cfg.Log.Warn("lost the kernel's change notifications, starting over", "error", err)
			w.cfg.Changed("change notifications of the kernel were lost")
		}
		wait(ctx, subscribeAgain, nil)
	}
	return ctx.Err()
}

// hint runs on the subscription's goroutine.
func (w *watch) hint(h host.Hint) {
	switch h.Kind {
	case host.Subscribed, host.LinkChanged:
		w.lookAgain()
	case host.AddressChanged:
		w.lookAgain() // an address makes a link one to listen on
		fallthrough
	case host.RouteChanged:
		if slices.Contains(w.watched(), h.Address) {
			w.cfg.Changed(sentence(h))
		}
	}
}

func (w *watch) lookAgain() {
	select {
	case w.again <- struct{}{}:
	default:
	}
}

func sentence(h host.Hint) string {
	verb := "appeared or changed"
	if h.Gone {
		verb = "is gone"
	}
	if h.LinkIndex == 0 {
		return fmt.Sprintf("%s %s %s", h.Kind, h.Address, verb)
	}
	return fmt.Sprintf("%s %s %s on link index %d", h.Kind, h.Address, verb, h.LinkIndex)
}
