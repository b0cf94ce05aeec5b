// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// Mute plays the kernel's.
func (f *Fake) Mute(ip netip.Addr, d time.Duration) (lift func() error, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock() + f.ahead
	switch {
	case !ip.Is4() || d <= 0 || d > MaxMute:
		err = fmt.Errorf("%s is no time up to %s, or the address is not IPv4", d, MaxMute)
	case f.faults.denied:
		err = denied(syscall.EPERM)
	case f.faults.mute != nil:
		err = f.faults.mute
	case f.muted.IsValid(): // the table outlives its element
		err = syscall.EEXIST
	}
	if err != nil {
		return nil, fmt.Errorf("muting the kernel's ARP replies for %s: %w", ip, err)
	}
	f.muted, f.mutedUntil = ip, now+d
	f.mutes = append(f.mutes, ip)
	return f.ClearMute, nil
}

// ClearMute plays the kernel's.
func (f *Fake) ClearMute() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.muted = netip.Addr{}
	return nil
}

// Muted reports whether the kernel keeps its replies for ip back now.
func (f *Fake) Muted(ip netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return ip.IsValid() && f.muted == ip && f.clock()+f.ahead < f.mutedUntil
}

// Mutes are the addresses for which a mute was begun, in order.
func (f *Fake) Mutes() []netip.Addr {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.mutes)
}

// FailMute has every Mute from now on fail with err; nil mends it.
func (f *Fake) FailMute(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults.mute = err
}
