// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func TestAnObserverJoinsAndLeaves(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.join(hello("n1"))
		want := []*vipmovev1.Node{{Name: "n1", Role: vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT, Connected: true, Version: "v1", CanAct: true, LastSeen: timestamppb.Now()}}
		if diff := cmp.Diff(want, w.fleet.Nodes(), protocmp.Transform()); diff != "" {
			t.Errorf("nodes (-want +got):\n%s", diff)
		}
		p.close()
		synctest.Wait()
		want[0].Connected = false // known all the same: its absence is seen
		if diff := cmp.Diff(want, w.fleet.Nodes(), protocmp.Transform()); diff != "" {
			t.Errorf("nodes after it left (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"joined n1 OBSERVER_ROLE_AGENT", "left n1"}, w.noted()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAnObserverThatEndsItsStreamInOrderHasLeft(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.join(hello("n1"))
		if err := p.rpc.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if code, text := p.ended(); code != codes.Unknown && code != codes.OK || w.fleet.Connected("n1") {
			t.Errorf("ended %v %q, connected %v", code, text, w.fleet.Connected("n1"))
		}
	})
}

func TestASessionIsTurnedAwayWithItsReason(t *testing.T) {
	first := func(h *vipmovev1.Hello) *vipmovev1.ObserverMessage {
		return &vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_Hello{Hello: h}}
	}
	other := hello("n1")
	other.Protocol = 2
	tests := []struct {
		name  string
		first *vipmovev1.ObserverMessage
		allow error
		deny  error
		code  codes.Code
		want  string
	}{
		{"first message is no hello", &vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_Requests{Requests: &vipmovev1.Requests{}}}, nil, nil,
			codes.InvalidArgument, "the first message of a session has to be a hello"},
		{"empty first message", &vipmovev1.ObserverMessage{}, nil, nil, codes.InvalidArgument, "has to be a hello"},
		{"another protocol", first(other), nil, nil, codes.FailedPrecondition, "observer n1 speaks protocol 2, this coordinator speaks 1"},
		{"not allowed", first(hello("n1")), status.Error(codes.PermissionDenied, "agent n2 may not speak for n1"), nil, codes.PermissionDenied, "agent n2 may not speak for n1"},
		{"cannot be remembered", first(hello("n1")), nil, errors.New("disk full"), codes.Unavailable, "letting node n1 join: disk full"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.allow, w.deny = func(*vipmovev1.Hello) error { return tt.allow }, tt.deny
				p := w.dial()
				p.send(tt.first)
				code, text := p.ended()
				if code != tt.code || !strings.Contains(text, tt.want) {
					t.Errorf("ended %v %q\nwant %v with %q", code, text, tt.code, tt.want)
				}
				if len(w.fleet.Nodes()) != 0 {
					t.Errorf("it became known: %v", w.fleet.Nodes())
				}
			})
		})
	}
}

func TestASecondSessionOfANodeEndsTheFirst(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		half := w.join(hello("n1")) // half open: its peer has gone and nobody noticed
		order := w.order(t.Context(), "n1", "c1", nil)
		again := w.join(hello("n1"))
		if code, text := half.ended(); code != codes.Aborted || !strings.Contains(text, "another session of node n1 began") {
			t.Errorf("first session ended %v %q", code, text)
		}
		if d := <-order; !errors.Is(d.err, ErrLost) {
			t.Errorf("order to the first session: %v, want ErrLost", d.err)
		}
		if !w.fleet.Connected("n1") {
			t.Error("the end of the first session took the second one away")
		}
		next := w.order(t.Context(), "n1", "c2", nil)
		again.answer(again.command().GetCommandId(), "yes")
		if d := <-next; d.err != nil || d.result.GetError() != "yes" {
			t.Errorf("order to the second session: %v", d)
		}
		for _, n := range w.noted() {
			if n == "left n1" {
				t.Error("a node that has a session was said to have left")
			}
		}
	})
}

func TestWhatASessionThatWasReplacedStillSaysIsDropped(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		old := w.join(witness("client"))
		w.fleet.mu.Lock()
		s := w.fleet.members["client"].session
		w.fleet.mu.Unlock()
		w.join(witness("client"))
		w.fleet.note("client", s, &vipmovev1.ObserverMessage{Boottime: durationpb.New(99 * time.Hour),
			Message: &vipmovev1.ObserverMessage_Requests{Requests: &vipmovev1.Requests{Sent: 99}}})
		w.fleet.note("nobody", s, &vipmovev1.ObserverMessage{})
		if b, _ := w.fleet.Boottime("client"); b >= 99*time.Hour || len(w.fleet.Requests()) != 0 {
			t.Errorf("boottime %v, requests %v", b, w.fleet.Requests())
		}
		old.ended()
	})
}

func TestAHelloInTheMiddleTellsANewStanding(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.join(hello("n1"))
		again := hello("n2")
		again.Role, again.BootId = vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS, "boot-2"
		again.CanAct, again.CannotActReason = false, "/etc/vipmove/pause is there"
		again.PendingUndo = &vipmovev1.PendingUndo{RunId: "r1", Step: "r1/n1"}
		p.send(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_Hello{Hello: again}})
		synctest.Wait()
		want := []*vipmovev1.Node{{Name: "n1", Role: vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT, // by its certificate, whatever it says now
			Connected: true, Version: "v1", CannotActReason: "/etc/vipmove/pause is there", LastSeen: timestamppb.Now(),
			PendingUndo: &vipmovev1.PendingUndo{RunId: "r1", Step: "r1/n1"}}}
		if diff := cmp.Diff(want, w.fleet.Nodes(), protocmp.Transform()); diff != "" {
			t.Errorf("nodes (-want +got):\n%s", diff)
		}
		if got := w.fleet.BootID("n1"); got != "boot-2" {
			t.Errorf("boot id = %q", got)
		}
		if got := w.fleet.BootID("n2"); got != "" {
			t.Errorf("boot id of an unknown node = %q", got)
		}
	})
}

func TestAKnownNodeIsListedBeforeItComes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.fleet.Remember("n2", vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT)
		w.join(hello("n1"))
		w.fleet.Remember("n1", vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS) // does not undo what is known better
		var got []string
		for _, n := range w.fleet.Nodes() {
			got = append(got, n.GetName()+" "+n.GetRole().String())
			if n.GetConnected() != (n.GetName() == "n1") || (n.GetLastSeen() != nil) != n.GetConnected() {
				t.Errorf("%v", n)
			}
		}
		if diff := cmp.Diff([]string{"n1 OBSERVER_ROLE_AGENT", "n2 OBSERVER_ROLE_AGENT"}, got); diff != "" {
			t.Error(diff)
		}
	})
}
