// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/agent/report"
	"github.com/vipmove/vipmove/agent/wire"
)

const (
	// maxNICs bounds the sockets of the standing watch.
	maxNICs = 64
	// maxVIPs bounds the watched VIPs, and with them labels and hints.
	maxVIPs = 256
	// inventoryEvery is how often NICs are listed without any hint: a NIC that
	// could not be listened on is tried again then.
	inventoryEvery = 30 * time.Second
	// inventoryPause is the least time between two, however many hints come.
	inventoryPause = 500 * time.Millisecond
	// subscribeAgain is how long a lost subscription is left alone.
	subscribeAgain = time.Second
)

// watchConfig says what a standing watch sees and whom it tells.
type watchConfig struct {
	Kernel     host.Kernel
	Sockets    func(wire.NIC) wire.Sockets
	Interfaces []string // NICs to listen on; none: every Ethernet NIC with an IPv4 address
	View       *view
	Changed    func(what string) // a hint for the coordinator; must not block
	Log        *slog.Logger
}

// watch is the standing watch: one wire.Listener per NIC for the watched VIPs,
// and the kernel's own change notifications. All of it is hints.
type watch struct {
	cfg   watchConfig
	again chan struct{} // capacity 1: list the NICs again

	mu        sync.Mutex
	vips      []netip.Addr
	listeners map[wire.NIC]*sensor
	failed    map[string]string // NICs that cannot be listened on, and why
}

// sensor is one NIC that is listened on.
type sensor struct {
	listener *wire.Listener
	cancel   context.CancelFunc
}

func newWatch(cfg watchConfig) *watch {
	return &watch{
		cfg: cfg, again: make(chan struct{}, 1),
		listeners: map[wire.NIC]*sensor{}, failed: map[string]string{},
	}
}

// setVIPs replaces the watched VIPs by those of list that are IPv4 addresses,
// the first maxVIPs of them. It says which it left out.
func (w *watch) setVIPs(list []string) error {
	var vips []netip.Addr
	var errs []error
	for _, s := range list {
		a, err := netip.ParseAddr(s)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("watching %q: %w", s, err))
		case !a.Unmap().Is4():
			errs = append(errs, fmt.Errorf("watching %s: only IPv4 can be watched", a))
		case slices.Contains(vips, a.Unmap()):
		case len(vips) == maxVIPs:
			errs = append(errs, fmt.Errorf("watching %s: at most %d VIPs can be watched", a, maxVIPs))
		default:
			vips = append(vips, a.Unmap())
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.vips = vips
	for nic, s := range w.listeners {
		if err := s.listener.SetWatched(vips); err != nil {
			errs = append(errs, fmt.Errorf("watching on %s: %w", nic.Name, err))
		}
	}
	w.cfg.View.watch(vips)
	return errors.Join(errs...)
}

// watched returns the watched VIPs.
func (w *watch) watched() []netip.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.vips)
}

// sensors tells for each NIC whether it is listened on.
func (w *watch) sensors() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	up := map[string]bool{}
	for name := range w.failed {
		up[name] = false
	}
	for nic := range w.listeners {
		up[nic.Name] = true
	}
	return up
}

// Run watches until ctx ends. A NIC or a subscription that fails is tried
// again: this never ends by itself.
func (w *watch) Run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { return w.subscribe(ctx) })
	for ctx.Err() == nil {
		w.inventory(ctx, &group)
		wait(ctx, inventoryPause, nil)
		wait(ctx, inventoryEvery, w.again)
	}
	return group.Wait()
}

// wait returns after d, or when ctx ends, or with a signal.
func wait(ctx context.Context, d time.Duration, signal <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-signal:
	case <-timer.C:
	}
}

// inventory opens and closes listeners so that they are those of the NICs that
// the kernel has now. An incomplete listing closes none.
func (w *watch) inventory(ctx context.Context, group *errgroup.Group) {
	state, err := w.cfg.Kernel.State(ctx, nil)
	if err != nil || state.Links == nil || state.Addresses == nil {
		return
	}
	wanted, failed := w.wanted(state)
	w.mu.Lock()
	defer w.mu.Unlock()
	for nic, s := range w.listeners {
		if !slices.Contains(wanted, nic) {
			s.cancel()
			delete(w.listeners, nic)
		}
	}
	for _, nic := range wanted {
		if w.listeners[nic] != nil {
			continue
		}
		if err := w.open(ctx, group, nic); err != nil {
			failed[nic.Name] = err.Error()
		}
	}
	w.tell(failed)
	var names []string
	for nic := range w.listeners {
		names = append(names, nic.Name)
	}
	w.cfg.View.listen(names)
}

// wanted are the NICs to listen on, and those that should be and cannot.
func (w *watch) wanted(s host.State) (nics []wire.NIC, failed map[string]string) {
	failed = map[string]string{}
	for _, name := range w.cfg.Interfaces {
		if !slices.ContainsFunc(s.Links, func(l host.Link) bool { return l.Name == name }) {
			failed[name] = "there is no such link"
		}
	}
	for _, l := range s.Links {
		if len(w.cfg.Interfaces) > 0 && !slices.Contains(w.cfg.Interfaces, l.Name) ||
			len(w.cfg.Interfaces) == 0 && !onSegment(l, s) {
			continue
		}
		nic, err := report.NIC(l)
		switch {
		case err != nil:
			failed[l.Name] = err.Error()
		case len(nics) == maxNICs:
			failed[l.Name] = fmt.Sprintf("only %d NICs are listened on; name them with --interface", maxNICs)
		default:
			nics = append(nics, nic)
		}
	}
	return nics, failed
}

// onSegment reports whether a link is one to listen on where none are named:
// Ethernet, not a dummy, not below a bridge or bond, with an IPv4 address. The
// host's ends of pods' links have none.
func onSegment(l host.Link, s host.State) bool {
	if l.Type != "ether" || !carries(l) || l.MasterIndex != 0 {
		return false
	}
	return slices.ContainsFunc(s.Addresses, func(a host.Address) bool {
		return a.LinkIndex == l.Index && a.Prefix.Addr().Is4()
	})
}

// open starts to listen on a NIC; called with mu held.
func (w *watch) open(ctx context.Context, group *errgroup.Group, nic wire.NIC) error {
	listener, err := wire.Listen(nic, wire.ListenConfig{Watched: w.vips, OnFrame: w.heard, Sockets: w.cfg.Sockets(nic)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &sensor{listener: listener, cancel: cancel}
	w.listeners[nic] = s
	group.Go(func() error {
		defer cancel()
		if err := listener.Run(ctx); err != nil {
			w.lost(nic, s, err)
		}
		return nil
	})
	w.cfg.Log.Info("listening for ARP", "interface", nic.Name, "mac", nic.MAC.String())
	return nil
}

// lost takes a NIC that failed off the list until the next inventory.
func (w *watch) lost(nic wire.NIC, s *sensor, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listeners[nic] == s {
		delete(w.listeners, nic)
	}
	if w.failed[nic.Name] == "" {
		w.cfg.Log.Warn("not listening for ARP", "interface", nic.Name, "reason", err.Error())
	}
	w.failed[nic.Name] = err.Error()
}

// tell replaces the list of NICs that cannot be listened on and logs what is
// new; called with mu held.
func (w *watch) tell(failed map[string]string) {
	for name, why := range failed {
		if w.failed[name] == "" {
			w.cfg.Log.Warn("not listening for ARP", "interface", name, "reason", why)
		}
	}
	w.failed = failed
}

// heard is called for every ARP frame about a watched VIP.
func (w *watch) heard(f wire.Frame) {
	if w.cfg.View.frame(f) {
		w.cfg.Log.Info("heard an announcement by another station", "vip", f.SenderIP.String(), "mac", f.SenderMAC.String(), "interface", f.Interface)
		w.cfg.Changed(fmt.Sprintf("%s announced %s on %s", f.SenderMAC, f.SenderIP, f.Interface))
	}
}
