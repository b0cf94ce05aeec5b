// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// What a kernel does only now and then, played on the fake.

func fakeStory(t *testing.T) (*Fake, Tuple) {
	t.Helper()
	w := newFakeWorld(t).(fakeWorld)
	return w.Fake, story(w)
}

func TestC09OneInterruptedDumpIsAskedForAgain(t *testing.T) {
	f, _ := fakeStory(t)
	f.InterruptDumps(1)
	st, err := f.State(t.Context(), watchVIP)
	if err != nil || len(st.Addresses) != 45+2 || st.DumpRetries != 1 || len(st.Incomplete) != 0 {
		t.Errorf("got %d addresses, %d retries, incomplete %q, %v, want 47, 1, none", len(st.Addresses), st.DumpRetries, st.Incomplete, err)
	}
}

// I6: unknown never counts as absent.
func TestC09FiveInterruptedDumpsAreUnknownNotClean(t *testing.T) {
	f, tuple := fakeStory(t)
	f.InterruptDumps(5)
	st, err := f.State(t.Context(), watchVIP)
	if err != nil {
		t.Fatal(err)
	}
	if st.Addresses != nil || st.Links != nil || st.DumpRetries != 4 ||
		!slices.Equal(st.Incomplete, []string{"links and addresses: interrupted by changes in each of 5 tries"}) {
		t.Errorf("got %d addresses, %d retries, incomplete %q, want nil, 4 and the reason", len(st.Addresses), st.DumpRetries, st.Incomplete)
	}
	f.InterruptDumps(5)
	if list, err := f.ListLink(t.Context(), tuple.LinkIndex); list != nil || !errors.Is(err, ErrInterrupted) {
		t.Errorf("listing: got %d addresses, %v, want interrupted", len(list), err)
	}
	f.InterruptDumps(5)
	if out, err := f.Remove(t.Context(), tuple); out.Result != Unknown || out.Sent || !errors.Is(err, ErrInterrupted) {
		t.Errorf("removing: got %+v, %v, want unknown and nothing sent", out, err)
	}
	if n := len(f.Deletes()); n != 0 {
		t.Errorf("%d deletes were planned from no list", n)
	}
}

func TestAnUnreadableListingAfterTheDeleteIsUnknown(t *testing.T) {
	f, tuple := fakeStory(t)
	f.OnStep(func(s Step, _ Tuple) {
		if s == Deleted {
			f.InterruptDumps(5)
		}
	})
	out, err := f.Remove(t.Context(), tuple)
	if out.Result != Unknown || !out.Sent || out.Left != nil || !errors.Is(err, ErrInterrupted) {
		t.Errorf("got %+v, %v, want unknown, sent", out, err)
	}
}

func TestAnUnreadableLocalTableAfterTheDeleteIsUnknown(t *testing.T) {
	f, tuple := fakeStory(t)
	f.Break("routes", unix.EIO)
	out, err := f.Remove(t.Context(), tuple)
	if out.Result != Unknown || !out.Sent || !errors.Is(err, unix.EIO) {
		t.Errorf("got %+v, %v, want unknown, sent", out, err)
	}
}

func TestTheLinkVanishesAfterTheDelete(t *testing.T) {
	f, tuple := fakeStory(t)
	f.OnStep(func(s Step, _ Tuple) {
		if s == Deleted {
			f.DropLink("kube-ipvs0")
		}
	})
	out, err := f.Remove(t.Context(), tuple)
	if out.Result != Unknown || !errors.Is(err, ErrNoLink) {
		t.Errorf("got %+v, %v, want unknown", out, err)
	}
}

// Every remote effect fails in two ways.
func TestARemovalFailsInTwoWays(t *testing.T) {
	f, tuple := fakeStory(t)
	f.FailDelete(unix.EIO, false)
	out, err := f.Remove(t.Context(), tuple)
	if out.Result != StillPresent || !out.Sent || !errors.Is(err, unix.EIO) || !errors.Is(err, ErrStillPresent) {
		t.Errorf("error, not done: got %+v, %v, want still present", out, err)
	}
	f.FailDelete(unix.EIO, true)
	out, err = f.Remove(t.Context(), tuple)
	if out.Result != Removed || !strings.Contains(out.Detail, "input/output error") || err != nil {
		t.Errorf("error, done: got %+v, %v, want removed and the error told", out, err)
	}
	if n := len(f.Deletes()); n != 2 {
		t.Errorf("%d deletes reached the kernel, want 2", n)
	}
}

func TestARestoreFailsInTwoWays(t *testing.T) {
	f, tuple := fakeStory(t)
	if _, err := f.Remove(t.Context(), tuple); err != nil {
		t.Fatal(err)
	}
	f.FailAdd(unix.ENOMEM, false)
	out, err := f.Restore(t.Context(), tuple)
	if out.Result != Failed || !out.Sent || !errors.Is(err, unix.ENOMEM) || !errors.Is(err, ErrNotRestored) {
		t.Errorf("error, not done: got %+v, %v, want failed", out, err)
	}
	f.FailAdd(nil, false)
	out, err = f.Restore(t.Context(), tuple)
	if out.Result != Failed || out.Detail != "the listing does not show it" || !errors.Is(err, ErrNotRestored) {
		t.Errorf("no error, not done: got %+v, %v, want failed", out, err)
	}
	f.FailAdd(unix.ENOMEM, true)
	out, err = f.Restore(t.Context(), tuple)
	if out.Result != Restored || !strings.Contains(out.Detail, "cannot allocate memory") || err != nil {
		t.Errorf("error, done: got %+v, %v, want restored and the error told", out, err)
	}
}

func TestC07VanishedBetweenListingAndDelete(t *testing.T) {
	f, tuple := fakeStory(t)
	f.VanishBeforeDelete()
	out, err := f.Remove(t.Context(), tuple)
	if out.Result != AlreadyAbsent || !out.Sent || out.Detail == "" || err != nil {
		t.Errorf("got %+v, %v, want already absent", out, err)
	}
}

func TestAnAddressPutBackAtOnceIsNotRemoved(t *testing.T) {
	f, tuple := fakeStory(t)
	f.ReturnAfterDelete(1)
	out, err := f.Remove(t.Context(), tuple)
	if out.Result != StillPresent || !strings.Contains(out.Detail, "something puts it back") || !errors.Is(err, ErrStillPresent) {
		t.Errorf("got %+v, %v, want still present", out, err)
	}
	if out, err := f.Remove(t.Context(), tuple); out.Result != Removed || err != nil {
		t.Errorf("the second time: got %+v, %v, want removed", out, err)
	}
}

// The caller's context ends while the kernel deletes: the listing is made all
// the same, since someone must know.
func TestTheListingAfterADeleteOutlivesTheCaller(t *testing.T) {
	f, tuple := fakeStory(t)
	for what, c := range map[Step]struct {
		do   func(context.Context, Tuple) (Outcome, error)
		want Result
	}{Deleted: {f.Remove, Removed}, Added: {f.Restore, Restored}} {
		ctx, cancel := context.WithCancel(t.Context())
		if what == Added {
			f.Drop(tuple.Link, tuple.Prefix)
		} else {
			f.HoldIP(tuple.Link, vip)
		}
		f.OnStep(func(s Step, _ Tuple) {
			if s == what {
				cancel()
			}
		})
		if out, err := c.do(ctx, tuple); out.Result != c.want || err != nil || ctx.Err() == nil {
			t.Errorf("%s: got %+v, %v, want %v", what, out, err, c.want)
		}
		cancel()
	}
}

func TestEveryPartCanBeUnknown(t *testing.T) {
	f, _ := fakeStory(t)
	boom := errors.New("boom")
	for _, part := range []string{"boot id", "links and addresses", "routes", "routing rules", "neighbours", "sysctls"} {
		f.Break(part, boom)
	}
	f.Set(func(w *FakeWorld) { w.IPVS = IPVS{State: IPVSUnreadable, Reason: "boom"} })
	st, err := f.State(t.Context(), watchVIP)
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Incomplete) != 6 {
		t.Errorf("incomplete: %q, want the five parts and IPVS", st.Incomplete)
	}
	if st.BootID != "" || st.Addresses != nil || st.Routes != nil || st.Rules != nil || st.Neighbours != nil || st.AllSysctls.ArpIgnore != nil {
		t.Errorf("a broken part was told: %+v", st)
	}
	for _, part := range []string{"boot id", "links and addresses", "routes", "routing rules", "neighbours", "sysctls"} {
		f.Break(part, nil)
	}
	f.Set(func(w *FakeWorld) { w.IPVS = IPVS{State: IPVSNone} })
	if st, _ := f.State(t.Context(), watchVIP); len(st.Incomplete) != 0 || len(st.Addresses) != 47 {
		t.Errorf("mended: incomplete %q, %d addresses", st.Incomplete, len(st.Addresses))
	}
}

func TestTheFakesWorldIsToldAsSet(t *testing.T) {
	f, _ := fakeStory(t)
	one := 1
	f.Set(func(w *FakeWorld) {
		w.BootID = "another"
		w.Sysctls["eth0"] = Sysctls{ArpIgnore: &one}
		w.IPVS = IPVS{State: IPVSPresent, Services: []IPVSService{{Address: vip, Port: 80, Protocol: "tcp"}}}
		w.KubeProxy = KubeProxy{State: KubeProxyRunning, Mode: "ipvs"}
		w.Neighbours = []Neighbour{{IP: vip, MAC: eth0MAC, Link: "eth0", State: "stale"}, {IP: node.Addr()}}
		w.Rules = []Rule{{Priority: 100, Table: 2004}}
	})
	st, err := f.State(t.Context(), watchVIP)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := f.BootID(); st.BootID != "another" || id != "another" || err != nil {
		t.Errorf("boot id %q and %q, %v", st.BootID, id, err)
	}
	if *st.LinkSysctls["eth0"].ArpIgnore != 1 || !st.IPVS.Serves(vip) || st.KubeProxy.Mode != "ipvs" || len(st.Rules) != 1 {
		t.Errorf("the world is not told as set: %+v", st)
	}
	if len(st.Neighbours) != 1 || st.Neighbours[0].MAC != eth0MAC {
		t.Errorf("neighbours: %+v, want the watched one", st.Neighbours)
	}
}

func TestTheFakesBootClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFake()
		start := f.BootTime()
		<-time.After(30 * time.Second) // the bubble's time
		if got := f.BootTime() - start; got != 30*time.Second {
			t.Errorf("it moved %v in 30 s of the bubble", got)
		}
		f.Advance(time.Minute)
		if got := f.BootTime() - start; got != 90*time.Second {
			t.Errorf("it moved %v, want 90 s", got)
		}
		f.SetBootTime(5 * time.Second)
		<-time.After(time.Second)
		f.Advance(time.Second)
		if got := f.BootTime(); got != 6*time.Second {
			t.Errorf("it says %v, want the 6 s that were set", got)
		}
	})
}

func TestLostHintsEndTheSubscription(t *testing.T) {
	f, _ := fakeStory(t)
	ended := make(chan error, 1)
	subscribed := make(chan struct{})
	go func() {
		ended <- f.Changes(t.Context(), func(h Hint) {
			if h.Kind == Subscribed {
				close(subscribed)
			}
		})
	}()
	<-subscribed
	f.LoseHints()
	if err := <-ended; !errors.Is(err, ErrOverflow) {
		t.Errorf("ended with %v, want lost", err)
	}
}

func TestTooManyHintsEndTheSubscription(t *testing.T) {
	f, _ := fakeStory(t)
	err := f.Changes(t.Context(), func(h Hint) {
		if h.Kind == Subscribed { // slow, while 1025 things change
			for range 1025 {
				f.HoldIP("kube-ipvs0", vip)
				f.Drop("kube-ipvs0", vip32)
			}
		}
	})
	if !errors.Is(err, ErrOverflow) {
		t.Errorf("ended with %v, want lost", err)
	}
}

func TestUninterruptedIsBounded(t *testing.T) {
	other := errors.New("other")
	for _, c := range []struct {
		name    string
		answers []error
		repeats int
		err     error
	}{
		{"clean at once", []error{nil}, 0, nil},
		{"clean at the fifth", []error{ErrInterrupted, ErrInterrupted, ErrInterrupted, ErrInterrupted, nil}, 4, nil},
		{"never clean", []error{ErrInterrupted, ErrInterrupted, ErrInterrupted, ErrInterrupted, ErrInterrupted}, 4, ErrInterrupted},
		{"another error is not repeated", []error{other}, 0, other},
		{"another error after an interruption", []error{ErrInterrupted, other}, 1, other},
	} {
		calls, pauses := 0, 0
		pause := func(_ context.Context, try int) {
			if pauses++; try != pauses || calls != pauses {
				t.Errorf("%s: pause %d is for try %d after %d calls", c.name, pauses, try, calls)
			}
		}
		repeats, err := uninterrupted(t.Context(), pause, func() error { calls++; return c.answers[calls-1] })
		if pauses != c.repeats {
			t.Errorf("%s: %d pauses for %d repeats", c.name, pauses, c.repeats)
		}
		if repeats != c.repeats || !errors.Is(err, c.err) || calls != len(c.answers) {
			t.Errorf("%s: %d repeats, %d calls, %v, want %d, %d, %v", c.name, repeats, calls, err, c.repeats, len(c.answers), c.err)
		}
	}
}

func TestBackOffEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for try := 1; try < dumpTries; try++ {
			backOff(t.Context(), try)
		}
		if got := time.Since(start); got != 30*time.Millisecond {
			t.Errorf("four pauses take %v, want 30 ms", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start = time.Now()
		backOff(ctx, 4)
		if got := time.Since(start); got != 0 {
			t.Errorf("a pause without a caller takes %v", got)
		}
	})
}

func TestResultsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for r := Unknown; r <= Failed; r++ {
		if s := r.String(); s == "" || seen[s] || strings.HasPrefix(s, "result") {
			t.Errorf("result %d is %q", r, s)
		}
		seen[r.String()] = true
	}
	if got := Result(99).String(); got != "result 99" {
		t.Errorf("an unknown result is %q", got)
	}
}
