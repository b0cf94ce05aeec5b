// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHelloGoesFirstCommandsArriveInOrderAndResultsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n network
		const commands = 50
		var hello *vipmovev1.Hello
		var results []string
		var boottimes []time.Duration
		c := &coordinator{session: welcoming(welcome(), func(h *vipmovev1.Hello, s serverStream) error {
			hello = h
			for i := range commands {
				if err := s.Send(command(fmt.Sprint(i))); err != nil {
					return err
				}
			}
			for range commands {
				m, err := s.Recv()
				if err != nil {
					return err
				}
				results = append(results, m.GetResult().GetCommandId())
				boottimes = append(boottimes, m.GetBoottime().AsDuration())
			}
			return holding(h, s)
		})}
		c.start(t, n.listen("a:1"))
		o := &observer{command: func(_ context.Context, c *vipmovev1.Command, reply func(*vipmovev1.CommandResult)) {
			reply(&vipmovev1.CommandResult{CommandId: c.GetCommandId()})
		}}
		cfg := config(&n, "a:1")
		cfg.Boottime = func() time.Duration { return 42 * time.Second }
		s := New(cfg, o)
		stop := run(t, s)
		synctest.Wait()

		var want []string
		for i := range commands {
			want = append(want, fmt.Sprint(i))
		}
		heard, _ := o.heard()
		if diff := cmp.Diff(want, heard); diff != "" {
			t.Errorf("commands (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, results); diff != "" {
			t.Errorf("results (-want +got):\n%s", diff)
		}
		if slices.ContainsFunc(boottimes, func(d time.Duration) bool { return d != 42*time.Second }) {
			t.Errorf("boottimes = %v, want 42s each", boottimes)
		}
		if hello.GetNode() != "n1" || hello.GetProtocol() != Protocol {
			t.Errorf("hello = %v, want node n1 and protocol %d", hello, Protocol)
		}
		if !s.Connected() || s.LastError() != "" {
			t.Errorf("Connected = %t, LastError = %q while connected", s.Connected(), s.LastError())
		}
		stop()
		if s.Connected() || s.Send(&vipmovev1.ObserverMessage{}) {
			t.Error("connected, or a message was taken, after Run ended")
		}
	})
}

func TestCoordinatorsAreTriedInOrderAndTheFirstIsPreferredAgainAfterASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n network
		c := &coordinator{session: welcoming(welcome(), func(_ *vipmovev1.Hello, s serverStream) error {
			return status.Error(codes.Unavailable, "standing by")
		})}
		c.start(t, n.listen("c:3"))
		run(t, New(config(&n, "a:1", "b:2", "c:3"), &observer{}))
		for len(n.attempts()) < 7 {
			pass(100 * time.Millisecond)
		}
		want := []string{"a:1", "b:2", "c:3", "a:1", "b:2", "c:3", "a:1"}
		if diff := cmp.Diff(want, n.attempts()[:7]); diff != "" {
			t.Errorf("dialled (-want +got):\n%s", diff)
		}
	})
}

func TestARestartedCoordinatorIsFoundAgainWithinTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n network
		c := &coordinator{session: welcoming(welcome(), holding)}
		first := c.start(t, n.listen("a:1"))
		o := &observer{}
		s := New(config(&n, "a:1"), o)
		run(t, s)
		synctest.Wait()
		if !s.Connected() {
			t.Fatalf("not connected: %s", s.LastError())
		}
		n.drop("a:1")
		first.Stop()
		pass(30 * time.Second)
		if s.Connected() || s.Send(&vipmovev1.ObserverMessage{}) {
			t.Error("connected, or a message was taken, while the coordinator is away")
		}
		if got, want := s.LastError(), "connecting to coordinator a:1: connection refused"; got != want {
			t.Errorf("LastError = %q, want %q", got, want)
		}
		c.start(t, n.listen("a:1"))
		pass(defaultMaxBackoff)
		synctest.Wait()
		if !s.Connected() {
			t.Errorf("not connected %s after the coordinator is back: %s", defaultMaxBackoff, s.LastError())
		}
		if _, ended := o.heard(); len(ended) != 1 {
			t.Errorf("Disconnected was called %d times (%v), want once: failed attempts are no sessions", len(ended), ended)
		}
	})
}

func TestASessionThatIsTurnedAwaySaysWhyAndIsTriedAgain(t *testing.T) {
	tests := []struct {
		name    string
		session func(serverStream) error
		welcome func(*vipmovev1.Welcome) error
		want    string
	}{{
		name:    "another protocol major names both numbers",
		session: welcoming(&vipmovev1.Welcome{Protocol: 7, Version: "v9.0.0"}, holding),
		want: "joining coordinator a:1: it speaks protocol 7 (version v9.0.0) and this program speaks protocol 1: " +
			"install matching versions",
	}, {
		name:    "the observer refuses the welcome",
		session: welcoming(welcome(), holding),
		welcome: func(w *vipmovev1.Welcome) error { return errors.New("journal j1 is not journal j0") },
		want:    "joining coordinator a:1: journal j1 is not journal j0",
	}, {
		name: "the coordinator refuses the hello",
		session: func(s serverStream) error {
			return status.Error(codes.PermissionDenied, "certificate of agent n2 cannot speak for n1")
		},
		want: "connecting to coordinator a:1: certificate of agent n2 cannot speak for n1",
	}, {
		name:    "the coordinator ends the stream without a word",
		session: func(serverStream) error { return nil },
		want:    "connecting to coordinator a:1: the coordinator ended it",
	}, {
		name:    "a command comes before the welcome",
		session: func(s serverStream) error { _ = s.Send(command("early")); return holding(nil, s) },
		want:    "connecting to coordinator a:1: its first message is no welcome",
	}, {
		name:    "the coordinator accepts and says nothing",
		session: func(s serverStream) error { return holding(nil, s) },
		want:    "connecting to coordinator a:1: no welcome within 10s",
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n network
				(&coordinator{session: tt.session}).start(t, n.listen("a:1"))
				o := &observer{welcome: tt.welcome}
				s := New(config(&n, "a:1"), o)
				run(t, s)
				pass(time.Minute)
				if got := s.LastError(); got != tt.want {
					t.Errorf("LastError = %q, want %q", got, tt.want)
				}
				if s.Connected() || s.Send(&vipmovev1.ObserverMessage{}) {
					t.Error("connected, or a message was taken")
				}
				if got := len(n.attempts()); got < 4 {
					t.Errorf("%d attempts in a minute, want it tried again", got)
				}
				if commands, ended := o.heard(); len(commands)+len(ended) != 0 {
					t.Errorf("commands %v, ends %v reached the observer", commands, ended)
				}
			})
		})
	}
}

func TestRunWithoutAnAddressOrAHelloIsAnError(t *testing.T) {
	if err := New(Config{Hello: func() *vipmovev1.Hello { return nil }}, &observer{}).Run(t.Context()); err == nil {
		t.Error("no address: no error")
	}
	if err := New(Config{Coordinators: []string{"a:1"}}, &observer{}).Run(t.Context()); err == nil {
		t.Error("no hello: no error")
	}
}

func TestRealSocketsByTCPAndByUnixPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.sock")
	for _, where := range [][2]string{{"tcp", "127.0.0.1:0"}, {"unix", path}} {
		t.Run(where[0], func(t *testing.T) {
			l, err := net.Listen(where[0], where[1])
			if err != nil {
				t.Fatal(err)
			}
			welcomed := make(chan struct{})
			c := &coordinator{session: welcoming(welcome(), func(h *vipmovev1.Hello, s serverStream) error {
				m, err := s.Recv()
				if err != nil || m.GetBoottime().AsDuration() <= 0 {
					return fmt.Errorf("no message with the kernel's boot time: %v, %w", m, err)
				}
				close(welcomed)
				return holding(h, s)
			})}
			c.start(t, l)
			address := l.Addr().String()
			if where[0] == "unix" {
				address = "unix:" + path
			}
			cfg := config(nil, address)
			cfg.dial = nil
			var s *Session
			s = New(cfg, &observer{welcome: func(*vipmovev1.Welcome) error {
				if !s.Send(&vipmovev1.ObserverMessage{}) {
					t.Error("a message of the observer's Welcome was not taken")
				}
				return nil
			}})
			run(t, s)
			<-welcomed
		})
	}
}

func TestARefusedConnectionKeepsTheKernelsReason(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	cfg := config(nil, address)
	cfg.dial = nil
	cfg.setDefaults()
	s := New(cfg, &observer{})
	_, err = s.attempt(t.Context(), address)
	if err == nil || !strings.HasPrefix(err.Error(), "connecting to coordinator "+address+": ") ||
		!strings.HasSuffix(err.Error(), "connection refused") || strings.Contains(err.Error(), "desc =") {
		t.Errorf("err = %v", err)
	}
}
