// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
)

// twoNodes are on one switch of the kernel's.
func twoNodes(t *testing.T) (n1, n2 *kernelHost) {
	w := newKernelWorld(t)
	noLeaks(t)
	return w.node(t, 11), w.node(t, 12)
}

// delivered returns how many frames passed the filter of l's socket so far.
// The kernel counts them before anyone reads.
func delivered(t *testing.T, l *Listener) uint32 {
	t.Helper()
	st, err := l.sock.(*kernelSocket).conn.Stats()
	must(t, err)
	return st.Packets
}

// What costs is being woken: a flood about other addresses wakes nobody.
func TestAFloodAboutOtherAddressesNeverLeavesTheKernel(t *testing.T) {
	n1, n2 := twoNodes(t)
	var l *Listener
	var err error
	frames := make(chan Frame, 100)
	n1.in(func() {
		l, err = Listen(n1.nic(), ListenConfig{Watched: scattered(1000), OnFrame: func(f Frame) { frames <- f }})
	})
	must(t, err)
	_, witness := listenOn(t, n1, "192.0.2.60") // sees all of the flood
	for i := range 20000 {
		f := announces(n2, "192.0.2.49")
		if i%2 == 1 {
			f = announces(n2, "192.0.2.51")
		}
		n2.send(t, bytesOf(t, f, 0))
	}
	n2.send(t, bytesOf(t, announces(n2, "192.0.2.60"), 0))
	await(t, witness.frames, "what was sent after the flood")
	n2.send(t, bytesOf(t, announces(n2, "192.0.2.50"), 0))
	working := run(t, frames, l)
	if f := await(t, frames, "the frame about the VIP"); f.SenderIP != vip {
		t.Errorf("heard %+v", f)
	}
	if n := delivered(t, l); n != 1 {
		t.Errorf("%d frames left the kernel, want 1", n)
	}
	working.end(t)
	witness.end(t)
	if st := l.Stats(); st != (Stats{Frames: 1}) {
		t.Errorf("%+v", st)
	}
}

// Bounded memory, and every frame accounted for: kept, counted, or dropped by
// the kernel, which says so.
func TestAFloodAboutTheVIPIsBoundedAndCounted(t *testing.T) {
	client, n1 := twoNodes(t)
	const flood = 20000
	n1.hold(t, vip)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var once, after bool
	announcement := bytesOf(t, announces(n1, "192.0.2.50"), 0)
	var results []Result
	var err error
	first := make(chan struct{})
	go func() {
		<-first
		for range flood {
			n1.send(t, announcement)
		}
		cancel()
	}()
	client.in(func() {
		results, err = prober(client).Round(ctx, []Request{{Kind: Broadcast, VIP: vip, Sender: client.addr(), Window: maxWindow}},
			OnReply(func(_ int, r Reply) {
				if !once {
					once = true
					close(first)
				}
				after = after || !r.Solicited
			}))
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r := results[0]
	// Announcements in reply form are kept as replies, a few of each MAC.
	if len(r.Answers()) != 1 || len(r.Replies) != maxFromOne || !r.Truncated || r.Complete() {
		t.Errorf("%d answers, %d replies, truncated %v", len(r.Answers()), len(r.Replies), r.Truncated)
	}
	if all := len(r.Replies) + r.Overflow + int(r.Dropped); all != flood+1 {
		t.Errorf("%d of %d frames accounted for: %d kept, %d counted, %d dropped", all, flood+1, len(r.Replies), r.Overflow, r.Dropped)
	}
	if !after {
		t.Error("no frame of the flood was shown")
	}
}

// C24: a tag is the kernel's metadata for a socket bound to all protocols; for
// one bound to ARP it is gone, and the frame must not count as untagged.
func TestATaggedFrameIsAnotherSegmentsForEverySocket(t *testing.T) {
	n1, n2 := twoNodes(t)
	l, standing := listenOn(t, n1, "192.0.2.50", "192.0.2.60")
	c, captured := captureOn(t, n1, "192.0.2.50", "192.0.2.60")
	sender, sent := captureOn(t, n2, "192.0.2.50")
	for _, vlan := range []uint16{217, 0} {
		toAll := announces(n2, "192.0.2.50")
		toUs := toAll
		toAll.VLAN, toUs.VLAN, toUs.EthDst = vlan, vlan, n1.nic().MAC
		n2.send(t, bytesOf(t, toAll, 0))
		n2.send(t, bytesOf(t, toUs, 0))
	}
	priority := slices.Insert(bytesOf(t, announces(n2, "192.0.2.50"), 42), 12, 0x81, 0x00, 5<<5, 0)
	n2.send(t, priority)
	n2.send(t, bytesOf(t, announces(n2, "192.0.2.60"), 0))
	for _, l := range []listening{standing, captured} {
		for f := range l.frames {
			if f.SenderIP != vip {
				break
			}
		}
		l.end(t)
	}
	sent.end(t)

	if st := l.Stats(); st != (Stats{Frames: 4, Elsewhere: 2}) {
		t.Errorf("bound to ARP: %+v, want the untagged ones, that with a priority, and the last", st)
	}
	vlans := func(c *Capture) (out []uint16) {
		kept, _ := c.Frames()
		for _, f := range kept {
			if f.SenderIP == vip {
				out = append(out, f.VLAN)
			}
		}
		return out
	}
	if got := vlans(c); !slices.Equal(got, []uint16{217, 217, 0, 0, 0}) {
		t.Errorf("received in VLANs %v", got)
	}
	if got := vlans(sender); !slices.Equal(got, []uint16{217, 217, 0, 0, 0}) { // inline, as it was sent
		t.Errorf("sent in VLANs %v", got)
	}
}

func TestNICsThatCannotBeUsedAreTypedErrors(t *testing.T) {
	n1, _ := twoNodes(t)
	var lo *net.Interface
	must(t, n1.ns.Do(func() (err error) { lo, err = net.InterfaceByName("lo"); return err }))
	otherMAC, gone := n1.eth0, n1.eth0
	otherMAC.MAC, gone.Index = m3, 999
	tests := []struct {
		name string
		nic  NIC
		want error
	}{
		{"loopback", NIC{Name: "lo", Index: lo.Index}, ErrNotEthernet},
		{"another MAC than the inventory's", otherMAC, ErrMACChanged},
		{"an index that nobody has", gone, ErrGone},
	}
	open := func(nic NIC) (err error) {
		n1.in(func() {
			var l *Listener
			if l, err = Listen(nic, ListenConfig{Watched: addrs("192.0.2.50")}); err == nil {
				err = l.Close()
			}
		})
		return err
	}
	check := func(name string, nic NIC, want error) {
		t.Helper()
		err := open(nic)
		// The kernel notices a lost carrier in the background.
		for begun := time.Now(); err == nil && want == ErrNoCarrier && time.Since(begun) < 30*time.Second; {
			err = open(nic)
		}
		var nicErr *NICError
		if !errors.Is(err, want) || !errors.As(err, &nicErr) || nicErr.NIC != nic.Name {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	for _, tt := range tests {
		check(tt.name, tt.nic, tt.want)
	}
	n1.fail(t, ErrNoCarrier)
	check("no carrier", n1.eth0, ErrNoCarrier)
	n1.fail(t, ErrDown)
	check("down", n1.eth0, ErrDown)
}

func TestWithoutRightsTheErrorSaysWhichAreNeeded(t *testing.T) {
	n1, _ := twoNodes(t)
	var err error
	n1.in(func() {
		// Capabilities are the thread's, and effective ones can be taken back.
		restore := withoutNetRaw(t)
		defer restore()
		_, err = NewProber(n1.nic(), ProberConfig{}).Round(t.Context(), []Request{{Kind: ZeroSender, VIP: vip}})
	})
	want := "opening a packet socket on eth0: operation not permitted (needs CAP_NET_RAW)"
	if err == nil || err.Error() != want || !errors.Is(err, unix.EPERM) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func withoutNetRaw(t *testing.T) (restore func()) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&hdr, &caps[0]); err != nil {
		t.Errorf("reading capabilities: %v", err)
	}
	less := caps
	less[0].Effective &^= 1 << unix.CAP_NET_RAW
	if err := unix.Capset(&hdr, &less[0]); err != nil {
		t.Errorf("giving CAP_NET_RAW up: %v", err)
	}
	return func() {
		if err := unix.Capset(&hdr, &caps[0]); err != nil {
			t.Errorf("taking CAP_NET_RAW back: %v", err)
		}
	}
}

// Before Linux 6.7 the kernel has room for about 200 scattered addresses.
func TestAKernelWithLittleRoomForFiltersStillWatchesAThousandAddresses(t *testing.T) {
	n1, n2 := twoNodes(t)
	if err := n1.ns.SetSysctl("net/core/optmem_max", "20480"); err != nil {
		t.Skipf("net.core.optmem_max is not the namespace's: %v", err)
	}
	spans, err := spansOf(scattered(1000))
	must(t, err)
	exact, err := program(spans)
	must(t, err)
	n1.in(func() { _, err = Kernel{}.open(n1.nic(), standingWatch, exact) })
	if !errors.Is(err, errFilterMemory) || !strings.Contains(err.Error(), "optmem_max") {
		t.Fatalf("this kernel takes the exact filter (%v): the test tests nothing", err)
	}
	frames := make(chan Frame, 100)
	var l *Listener
	n1.in(func() {
		l, err = Listen(n1.nic(), ListenConfig{Watched: scattered(1000), OnFrame: func(f Frame) { frames <- f }})
	})
	must(t, err)
	working := run(t, frames, l)
	must(t, l.SetWatched(scattered(999)))
	for _, ip := range []string{"192.0.13.226", "192.0.13.227", "192.0.13.228"} { // the last one is watched
		n2.send(t, bytesOf(t, announces(n2, ip), 0))
	}
	if f := await(t, frames, "a watched address"); f.SenderIP.String() != "192.0.13.228" {
		t.Errorf("heard %v", f.SenderIP)
	}
	working.end(t)
	if st := l.Stats(); st.Frames != 1 || st.Unwatched != 2 {
		t.Errorf("%+v", st)
	}
}

// The NIC's switch goes away, and with it the NIC.
func TestANICThatIsRemovedEndsTheListener(t *testing.T) {
	sw := namespacetest.NewT(t, "short-lived")
	must(t, sw.AddBridge("br0"))
	must(t, sw.AddAddress("br0", netip.MustParsePrefix("192.0.2.254/24")))
	noLeaks(t)
	n1 := kernelWorld{sw}.node(t, 11)
	_, heard := listenOn(t, n1, vip.String())
	must(t, sw.Close())
	err := await(t, heard.ended, "the end of Run")
	if !errors.Is(err, ErrGone) && !errors.Is(err, ErrDown) {
		t.Errorf("Run: %v", err)
	}
}

func TestTheKernelsStampIsBelievedWhenItIsRecent(t *testing.T) {
	now := time.Now()
	wall := now.Round(0)
	tests := []struct {
		name  string
		stamp time.Time
		want  time.Duration // before now
	}{
		{"a moment ago", wall.Add(-3 * time.Millisecond), 3 * time.Millisecond},
		{"now", wall, 0},
		{"in the future: the clock was set back", wall.Add(time.Second), 0},
		{"an hour ago: the clock was set", wall.Add(-time.Hour), 0},
		{"none", time.Time{}, 0},
	}
	for _, tt := range tests {
		if got := now.Sub(received(now, tt.stamp)); got != tt.want {
			t.Errorf("%s: %v before now, want %v", tt.name, got, tt.want)
		}
	}
}

func TestTimeStampsOfBothSizesAreRead(t *testing.T) {
	want := time.Unix(0x01020304, 0x05060708)
	long := []byte{4, 3, 2, 1, 0, 0, 0, 0, 8, 7, 6, 5, 0, 0, 0, 0}
	short := []byte{4, 3, 2, 1, 8, 7, 6, 5}
	if networkOrder(1) == 1 { // big endian
		long = []byte{0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8}
		short = []byte{1, 2, 3, 4, 5, 6, 7, 8}
	}
	if a, b := timespec(long), timespec(short); !a.Equal(want) || !b.Equal(want) {
		t.Errorf("got %v and %v, want %v", a, b, want)
	}
	if got := timespec(long[:15]); !got.IsZero() {
		t.Errorf("15 bytes are %v", got)
	}
	var m Metadata
	vlanTag(make([]byte, 19), &m)
	if m != (Metadata{}) {
		t.Errorf("a short tpacket_auxdata is %+v", m)
	}
}

// While one socket of a host asks for time stamps, its kernel stamps every
// packet: the standing watch has to cost other traffic nothing.
func TestTheStandingWatchAsksForNoTimeStamps(t *testing.T) {
	n1, _ := twoNodes(t)
	for as, want := range map[binding]int{standingWatch: 0, quietRound: 1, bothWays: 1} {
		n1.in(func() {
			s, err := openFiltered(nil, n1.nic(), as, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.close()
			var got int
			err = s.(*kernelSocket).control(func(fd int) (err error) {
				got, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS)
				return err
			})
			if err != nil || got != want {
				t.Errorf("%+v: SO_TIMESTAMPNS is %d (%v), want %d", as, got, err, want)
			}
		})
	}
}
