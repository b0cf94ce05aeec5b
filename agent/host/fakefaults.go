// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
)

// Step is a moment in a Remove or a Restore of a Fake.
type Step string

// Steps, in order.
const (
	Deleting Step = "deleting" // listed, the delete comes next
	Deleted  Step = "deleted"  // deleted, the listing comes next
	Adding   Step = "adding"   // listed, the add comes next
	Added    Step = "added"    // added, the listing comes next
)

// faults are what goes wrong next.
type faults struct {
	interrupts int              // address dumps to interrupt
	broken     map[string]error // part of State that cannot be read
	denied     bool
	del, add   []answer
	mute       error
	onStep     func(Step, Tuple)
}

// answer is what the kernel says to one request, and whether it did it.
type answer struct {
	err  error
	done bool
}

// InterruptDumps makes the next n tries to list addresses fail as a dump
// does whose table changes meanwhile. Five in a row are given up on.
func (f *Fake) InterruptDumps(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults.interrupts = n
}

// Break makes one part of State unreadable: links and addresses, routes,
// routing rules, neighbours, boot id, sysctls. A nil err mends it.
func (f *Fake) Break(part string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.faults.broken == nil {
		f.faults.broken = map[string]error{}
	}
	f.faults.broken[part] = err
	maps.DeleteFunc(f.faults.broken, func(_ string, err error) bool { return err == nil })
}

// Deny takes CAP_NET_ADMIN away, or gives it back.
func (f *Fake) Deny(denied bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults.denied = denied
}

// FailDelete makes the kernel answer the next delete with err: not done, or
// done all the same.
func (f *Fake) FailDelete(err error, done bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults.del = append(f.faults.del, answer{err, done})
}

// FailAdd is FailDelete for the next add.
func (f *Fake) FailAdd(err error, done bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults.add = append(f.faults.add, answer{err, done})
}

// OnStep calls fn at every step, with no lock held: fn may change the world,
// as another program would at that moment. nil ends it.
func (f *Fake) OnStep(fn func(Step, Tuple)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults.onStep = fn
}

// ReturnAfterDelete puts every deleted address back before it can be listed
// as gone, n times.
func (f *Fake) ReturnAfterDelete(n int) {
	f.OnStep(func(s Step, t Tuple) {
		if s == Deleted && n > 0 {
			n--
			f.Hold(t.Link, t.address())
		}
	})
}

// VanishBeforeDelete takes the next address away between listing and delete.
func (f *Fake) VanishBeforeDelete() {
	f.OnStep(func(s Step, t Tuple) {
		if s == Deleting {
			f.Drop(t.Link, t.Prefix)
			f.OnStep(nil)
		}
	})
}

// LoseHints ends every subscription as an overflow does.
func (f *Fake) LoseHints() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.listeners {
		close(l.lost)
		delete(f.listeners, l)
	}
}

func (f *Fake) step(s Step, t Tuple) {
	f.mu.Lock()
	fn := f.faults.onStep
	f.mu.Unlock()
	if fn != nil {
		fn(s, t)
	}
}

// next is the scripted answer to a request, if any.
func next(script *[]answer) (answer, bool) {
	if len(*script) == 0 {
		return answer{}, false
	}
	a := (*script)[0]
	*script = (*script)[1:]
	return a, true
}

func (t Tuple) address() Address {
	return Address{
		LinkIndex: t.LinkIndex, Link: t.Link, Prefix: t.Prefix, Peer: t.Peer, Broadcast: t.Broadcast,
		Scope: t.Scope, Label: t.Label, Flags: t.Flags,
		ValidLifetime: t.ValidLifetime, PreferredLifetime: t.PreferredLifetime,
		Metric: t.Metric, Protocol: t.Protocol,
	}
}

// interrupted says whether this try to list addresses is one to interrupt.
func (f *Fake) interrupted() bool {
	if f.faults.interrupts == 0 {
		return false
	}
	f.faults.interrupts--
	return true
}

// sameHost says whether p and q name the same address, as RTM_DELADDR and
// RTM_NEWADDR compare.
func sameHost(a Address, t Tuple) bool {
	return a.LinkIndex == t.LinkIndex && a.Prefix == t.Prefix && a.Peer == t.Peer
}

// subnet is what makes an IPv4 address a secondary of another.
func subnet(p netip.Prefix) netip.Prefix { return p.Masked() }

func (f *Fake) linkByIndex(index int) (Link, error) {
	i := slices.IndexFunc(f.links, func(l Link) bool { return l.Index == index })
	if i < 0 {
		return Link{}, fmt.Errorf("%w", syscall.ENODEV)
	}
	return f.links[i], nil
}
