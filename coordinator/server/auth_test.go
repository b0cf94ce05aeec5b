// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/vipmove/vipmove/coordinator/fleet/fleettest"
	"github.com/vipmove/vipmove/internal/identity"
	"github.com/vipmove/vipmove/internal/session"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// controlMethods are all methods of Control, by the contract: one that is added is in the tests below.
func controlMethods(t *testing.T) protoreflect.MethodDescriptors {
	t.Helper()
	d, err := protoregistry.GlobalFiles.FindDescriptorByName("vipmove.v1.Control")
	if err != nil {
		t.Fatal(err)
	}
	methods := d.(protoreflect.ServiceDescriptor).Methods()
	if methods.Len() < 9 {
		t.Fatalf("Control has %d methods: does this test still read them?", methods.Len())
	}
	return methods
}

// call calls any method with an empty request and returns how it ended.
func call(ctx context.Context, conn *grpc.ClientConn, m protoreflect.MethodDescriptor) error {
	name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	if !m.IsStreamingServer() && !m.IsStreamingClient() {
		return conn.Invoke(ctx, name, in, out)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: m.IsStreamingServer(), ClientStreams: m.IsStreamingClient()}, name)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(proto.Message(in)); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return stream.RecvMsg(proto.Message(out))
}

func TestOnlyAnOperatorMayCallControl(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		methods := controlMethods(t)
		for _, id := range []identity.Identity{{Role: identity.RoleAgent, Name: "n1"}, {Role: identity.RoleWitness, Name: "client"}} {
			conn := w.connect(id)
			for i := range methods.Len() {
				err := call(w.ctx, conn, methods.Get(i))
				if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), id.String()+" may not give orders") || !strings.Contains(err.Error(), "vipmove pki issue operator") {
					t.Errorf("%s by %s: %v", methods.Get(i).Name(), id, err)
				}
			}
			_ = conn.Close()
		}
		w.unchanged(t)
		conn := w.connect(alice)
		defer conn.Close()
		for i := range methods.Len() {
			if code := status.Code(call(w.ctx, conn, methods.Get(i))); code == codes.PermissionDenied || code == codes.Unauthenticated || code == codes.Unimplemented {
				t.Errorf("%s by an operator: %s", methods.Get(i).Name(), code)
			}
		}
	})
}

// The TLS handshake turns away who has no certificate of our CA. Were it ever left out, the methods still do.
func TestWhoShowsNoCertificateMayNothing(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		methods := controlMethods(t)
		plain := dialPlain(t, w.mustListener())
		for i := range methods.Len() {
			if err := call(w.ctx, plain, methods.Get(i)); status.Code(err) != codes.Unavailable {
				t.Errorf("%s in the clear: %v", methods.Get(i).Name(), err)
			}
		}

		l := fleettest.Listen()
		g := grpc.NewServer()
		vipmovev1.RegisterControlServer(g, &control{Server: w.server})
		vipmovev1.RegisterObserversServer(g, &observers{Server: w.server})
		served := make(chan error, 1)
		go func() { served <- g.Serve(l) }()
		defer func() { g.Stop(); <-served }()
		conn := dialPlain(t, l)
		defer conn.Close()
		for i := range methods.Len() {
			if err := call(w.ctx, conn, methods.Get(i)); status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s without TLS: %v", methods.Get(i).Name(), err)
			}
		}
		stream, err := vipmovev1.NewObserversClient(conn).Session(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := turnedAway(stream, helloOf("n9", vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT, "b")); status.Code(err) != codes.Unauthenticated {
			t.Errorf("a session without TLS: %v", err)
		}
	})
}

func (w *world) mustListener() *fleettest.Listener {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listener
}

func dialPlain(t *testing.T, l *fleettest.Listener) *grpc.ClientConn {
	t.Helper()
	return dialWith(t, l, insecure.NewCredentials())
}

func dialWith(t *testing.T, l *fleettest.Listener, c credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+identity.ServerName, grpc.WithTransportCredentials(c),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// turnedAway says hello and returns how the session ended; nil: it was welcomed.
func turnedAway(stream grpc.BidiStreamingClient[vipmovev1.ObserverMessage, vipmovev1.CoordinatorMessage], h *vipmovev1.Hello) error {
	if err := stream.Send(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_Hello{Hello: h}}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_, err := stream.Recv()
	return err
}

func TestASessionIsOfItsCertificatesRoleAndName(t *testing.T) {
	const agent, witness, nobody = vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT, vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS, vipmovev1.ObserverRole_OBSERVER_ROLE_UNSPECIFIED
	old := helloOf("n9", agent, "b")
	old.Protocol = session.Protocol + 1
	tests := []struct {
		name  string
		id    identity.Identity
		hello *vipmovev1.Hello
		code  codes.Code
		says  string
	}{
		{"an agent", identity.Identity{Role: identity.RoleAgent, Name: "n9"}, helloOf("n9", agent, "b"), codes.OK, ""},
		{"a witness", identity.Identity{Role: identity.RoleWitness, Name: "w9"}, helloOf("w9", witness, "b"), codes.OK, ""},
		{"an agent for another node", identity.Identity{Role: identity.RoleAgent, Name: "n9"}, helloOf("n1", agent, "b"), codes.PermissionDenied, "vipmove pki issue agent n1"},
		{"an agent as a witness", identity.Identity{Role: identity.RoleAgent, Name: "n9"}, helloOf("n9", witness, "b"), codes.PermissionDenied, "agent n9 may not observe as witness"},
		{"a witness as an agent", identity.Identity{Role: identity.RoleWitness, Name: "w9"}, helloOf("w9", agent, "b"), codes.PermissionDenied, "witness w9 may not observe as agent"},
		{"an operator as an agent", alice, helloOf("alice", agent, "b"), codes.PermissionDenied, "operator alice may not observe as agent"},
		{"without a role", identity.Identity{Role: identity.RoleAgent, Name: "n9"}, helloOf("n9", nobody, "b"), codes.InvalidArgument, "only agents and witnesses observe"},
		{"without a name", identity.Identity{Role: identity.RoleAgent, Name: "n9"}, helloOf("", agent, "b"), codes.PermissionDenied, "may not speak for"},
		{"another protocol", identity.Identity{Role: identity.RoleAgent, Name: "n9"}, old, codes.FailedPrecondition, "use one release for both"},
	}
	inWorld(t, 1, func(t *testing.T, w *world) {
		for _, tt := range tests {
			conn := w.connect(tt.id)
			stream, err := vipmovev1.NewObserversClient(conn).Session(w.ctx)
			if err != nil {
				t.Fatal(err)
			}
			err = turnedAway(stream, tt.hello)
			if status.Code(err) != tt.code || !strings.Contains(status.Convert(err).Message(), tt.says) {
				t.Errorf("%s: %v, want %s %q", tt.name, err, tt.code, tt.says)
			}
			_ = conn.Close()
		}
		w.wait(time.Second)
		known := map[string]bool{}
		for _, n := range w.server.fleet.Nodes() {
			known[n.GetName()] = true
		}
		if len(known) != 4 || !known["n1"] || !known["client"] || !known["n9"] || !known["w9"] {
			t.Errorf("known: %v", known)
		}
	})
}

// An agent that was ever there is missed when it is not; a witness is not a node of the cluster.
func TestAgentsAreRememberedOverARestart(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.agents["n2"].leave()
		w.witness.leave()
		w.restart()
		w.until("n1 is back", func() bool { return w.server.fleet.Connected("n1") })
		var got []string
		for _, n := range w.server.fleet.Nodes() {
			got = append(got, n.GetName()+" "+n.GetRole().String())
			if n.GetConnected() != (n.GetName() == "n1") {
				t.Errorf("%v", n)
			}
		}
		if strings.Join(got, ", ") != "n1 OBSERVER_ROLE_AGENT, n2 OBSERVER_ROLE_AGENT" {
			t.Errorf("known: %v", got)
		}
	})
}
