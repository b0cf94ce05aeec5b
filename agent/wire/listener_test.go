// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// listening is a Listener or a Capture at work.
type listening struct {
	frames chan Frame
	stop   context.CancelFunc
	ended  chan error
}

type runner interface{ Run(context.Context) error }

func run(t *testing.T, frames chan Frame, r runner) listening {
	ctx, cancel := context.WithCancel(t.Context())
	l := listening{frames: frames, stop: cancel, ended: make(chan error, 1)}
	go func() { l.ended <- r.Run(ctx) }()
	t.Cleanup(cancel)
	return l
}

func (l listening) end(t *testing.T) {
	t.Helper()
	l.stop()
	if err := await(t, l.ended, "the end of Run"); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func listenOn(t *testing.T, h host, watched ...string) (*Listener, listening) {
	t.Helper()
	frames := make(chan Frame, 100)
	var l *Listener
	var err error
	h.in(func() {
		l, err = Listen(h.nic(), ListenConfig{Watched: addrs(watched...), Sockets: h.sockets(), OnFrame: func(f Frame) { frames <- f }})
	})
	must(t, err)
	return l, run(t, frames, l)
}

func captureOn(t *testing.T, h host, watched ...string) (*Capture, listening) {
	t.Helper()
	frames := make(chan Frame, 100)
	var c *Capture
	var err error
	h.in(func() {
		c, err = OpenCapture(h.nic(), CaptureConfig{Watched: addrs(watched...), Sockets: h.sockets(), OnFrame: func(f Frame) { frames <- f }})
	})
	must(t, err)
	return c, run(t, frames, c)
}

// announces is the frame with which h says that ip is its own.
func announces(h host, ip string) Frame {
	m := h.nic().MAC
	return Frame{EthSrc: m, EthDst: ff, Op: OpReply, SenderMAC: m, SenderIP: addrs(ip)[0], TargetMAC: m, TargetIP: addrs(ip)[0]}
}

// CASES fact 10: the kernel's own answers are seen by a socket bound to all
// protocols, as outgoing, and by one bound to ARP not at all.
func TestOnlyACaptureSeesTheAnswersOfItsOwnNode(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w world) {
		client, n1 := w.join(t, 2), w.join(t, 11)
		n1.hold(t, vip)
		l, standing := listenOn(t, n1, vip.String())
		c, captured := captureOn(t, n1, vip.String())
		begun := time.Now()
		ask(t, client, prober(client), []Request{{Kind: Broadcast, VIP: vip, Sender: client.addr(), Window: w.window()}})
		standing.end(t)
		captured.end(t)

		request := Frame{Interface: "eth0", PacketType: PacketBroadcast, EthSrc: client.nic().MAC, EthDst: ff,
			Op: OpRequest, SenderMAC: client.nic().MAC, SenderIP: client.addr(), TargetIP: vip, Padded: true}
		answer := Frame{Interface: "eth0", Direction: Outgoing, PacketType: PacketOutgoing,
			EthSrc: n1.nic().MAC, EthDst: client.nic().MAC, Op: OpReply, SenderMAC: n1.nic().MAC, SenderIP: vip,
			TargetMAC: client.nic().MAC, TargetIP: client.addr()}
		kept, forgotten := c.Frames()
		if len(kept) != 2 || forgotten != 0 {
			t.Fatalf("captured %+v, forgotten %d", kept, forgotten)
		}
		if at := kept[1].At; at.Before(begun) || at.After(time.Now()) || at.Before(kept[0].At) {
			t.Errorf("stamped %v, begun %v", at, begun)
		}
		for i := range kept {
			kept[i].At = time.Time{}
		}
		kept[1].Padded = false // the kernel's answers are 42 bytes, ours 60
		if diff := cmp.Diff([]Frame{request, answer}, kept, compareFrames); diff != "" {
			t.Errorf("captured (-want +got):\n%s", diff)
		}
		if st := l.Stats(); st != (Stats{Frames: 1}) || len(standing.frames) != 1 {
			t.Errorf("the standing watch met %+v", st)
		}
		if f := <-standing.frames; f.Direction != Incoming || f.Op != OpRequest {
			t.Errorf("the standing watch saw %+v", f)
		}
	})
}

func TestWatchedAddressesAreReplacedWhileListening(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w world) {
		n1, n2 := w.join(t, 11), w.join(t, 12)
		l, heard := listenOn(t, n1, "192.0.2.50", "192.0.2.60")
		say := func(ips ...string) {
			for _, ip := range ips {
				n2.send(t, bytesOf(t, announces(n2, ip), 0))
			}
		}
		expect := func(ips ...string) {
			t.Helper()
			for _, ip := range ips {
				if f := await(t, heard.frames, "an announcement of "+ip); f.SenderIP.String() != ip {
					t.Errorf("heard %v, want %v", f.SenderIP, ip)
				}
			}
		}
		say("192.0.2.50", "192.0.2.70", "192.0.2.60")
		expect("192.0.2.50", "192.0.2.60")
		must(t, l.SetWatched(addrs("192.0.2.70", "192.0.2.60")))
		say("192.0.2.50", "192.0.2.70", "192.0.2.60")
		expect("192.0.2.70", "192.0.2.60")
		if err := l.SetWatched(addrs("2001:db8::50")); err == nil {
			t.Error("an IPv6 address is watched")
		}
		say("192.0.2.50", "192.0.2.70")
		expect("192.0.2.70")
		must(t, l.SetWatched(nil))
		say("192.0.2.70")
		must(t, l.SetWatched(addrs("192.0.2.50")))
		say("192.0.2.50")
		expect("192.0.2.50")
		heard.end(t)
		if st := l.Stats(); st.Frames != 6 || st.Dropped != 0 || len(heard.frames) != 0 {
			t.Errorf("%+v, %d more frames", st, len(heard.frames))
		}
		if err := l.SetWatched(addrs("192.0.2.50")); !errors.Is(err, os.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestAListenerEndsWhenItsNICGoesDown(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w world) {
		n1 := w.join(t, 11)
		_, heard := listenOn(t, n1, vip.String())
		n1.fail(t, ErrDown)
		err := await(t, heard.ended, "the end of Run")
		var nicErr *NICError
		if !errors.Is(err, ErrDown) || !errors.As(err, &nicErr) || nicErr.NIC != "eth0" {
			t.Errorf("Run: %v", err)
		}
		n1.in(func() { _, err = Listen(n1.nic(), ListenConfig{Watched: addrs("192.0.2.50"), Sockets: n1.sockets()}) })
		if !errors.Is(err, ErrDown) {
			t.Errorf("opening it again: %v", err)
		}
	})
}

func TestFramesQueuedBeforeTheEndAreStillRead(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w world) {
		n1, n2 := w.join(t, 11), w.join(t, 12)
		var c *Capture
		var err error
		n1.in(func() {
			c, err = OpenCapture(n1.nic(), CaptureConfig{Watched: addrs("192.0.2.50"), Sockets: n1.sockets()})
		})
		must(t, err)
		_, marker := listenOn(t, n1, "192.0.2.60")
		n2.send(t, bytesOf(t, announces(n2, "192.0.2.50"), 0))
		n2.send(t, bytesOf(t, announces(n2, "192.0.2.60"), 0))
		await(t, marker.frames, "what was sent after")
		marker.end(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		must(t, c.Run(ctx))
		if kept, _ := c.Frames(); len(kept) != 1 || kept[0].SenderIP != vip {
			t.Errorf("kept %+v", kept)
		}
	})
}

func TestClosingAListenerEndsItsRun(t *testing.T) {
	inBothWorlds(t, func(t *testing.T, w world) {
		n1 := w.join(t, 11)
		l, heard := listenOn(t, n1, vip.String())
		must(t, l.Close())
		must(t, l.Close())
		if err := await(t, heard.ended, "the end of Run"); err == nil {
			t.Error("Run ended as if it had been told to")
		}
		l.Stats() // still answers
	})
}

func TestACaptureKeepsTheNewestFramesAndCountsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := memoryWorld{NewSegment()}
		n1, n2 := w.join(t, 11), w.join(t, 12)
		c, err := OpenCapture(n1.nic(), CaptureConfig{Watched: addrs("192.0.2.50"), Sockets: n1.sockets()})
		must(t, err)
		working := run(t, nil, c)
		frame := announces(n2, "192.0.2.50")
		const flood = 20000
		for i := range flood {
			frame.TargetMAC = MAC{0, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)}
			n2.send(t, bytesOf(t, frame, 0))
			if i%1000 == 0 {
				synctest.Wait() // let it read
			}
		}
		working.end(t)
		kept, forgotten := c.Frames()
		if len(kept) != captureLimit || forgotten != flood-captureLimit || c.Stats().Dropped != 0 {
			t.Fatalf("%d kept, %d forgotten, %+v", len(kept), forgotten, c.Stats())
		}
		for i, f := range kept {
			n := flood - captureLimit + i
			if want := (MAC{0, 0, 0, byte(n >> 16), byte(n >> 8), byte(n)}); f.TargetMAC != want {
				t.Fatalf("frame %d is %v, want %v", i, f.TargetMAC, want)
			}
		}
	})
}

func TestAListenerSaysWhatTheKernelDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := memoryWorld{NewSegment()}
		n1, n2 := w.join(t, 11), w.join(t, 12)
		l, err := Listen(n1.nic(), ListenConfig{Watched: addrs("192.0.2.50"), Sockets: n1.sockets()})
		must(t, err)
		for range memoryQueue + 7 {
			n2.send(t, bytesOf(t, announces(n2, "192.0.2.50"), 0))
		}
		if st := l.Stats(); st.Dropped != 7 {
			t.Errorf("%+v", st)
		}
		working := run(t, nil, l)
		synctest.Wait()
		working.end(t)
		if st := l.Stats(); st.Dropped != 7 || st.Frames != memoryQueue {
			t.Errorf("%+v", st)
		}
	})
}

func TestAWatchThatCannotBeIsRefused(t *testing.T) {
	nic := NIC{Name: "eth0", Index: 2, MAC: m1}
	if _, err := Listen(nic, ListenConfig{Watched: addrs("::1"), Sockets: refusing{}}); err == nil {
		t.Error("Listen took an IPv6 address")
	}
	if _, err := OpenCapture(nic, CaptureConfig{Watched: scattered(1001), Sockets: refusing{}}); err == nil {
		t.Error("OpenCapture took 1001 addresses")
	}
	port := NewSegment().Join(nic)
	for want, asked := range map[error]NIC{
		ErrGone:       {Name: "eth0", Index: 3, MAC: m1},
		ErrMACChanged: {Name: "eth0", Index: 2, MAC: m2},
	} {
		if _, err := Listen(asked, ListenConfig{Sockets: port}); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
}
