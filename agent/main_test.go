// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/vipmove/vipmove/internal/daemon"
	"github.com/vipmove/vipmove/internal/identity"
	"github.com/vipmove/vipmove/internal/session"
	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// marker makes this test binary the agent, in a process that a test started.
const marker = "VIPMOVE_TEST_AGENT_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(marker) != "" {
		ctx, stop := daemon.SignalContext(context.Background())
		defer stop()
		os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
	}
	os.Exit(namespacetest.Main(m))
}

// greeter is a coordinator that says hello.
type greeter struct {
	vipmovev1.UnimplementedObserversServer
	hello chan *vipmovev1.Hello
	who   chan identity.Identity
}

func (g *greeter) Session(s grpc.BidiStreamingServer[vipmovev1.ObserverMessage, vipmovev1.CoordinatorMessage]) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	who, err := identity.FromPeer(s.Context())
	if err != nil {
		return err
	}
	g.hello <- first.GetHello()
	g.who <- who
	err = s.Send(&vipmovev1.CoordinatorMessage{Message: &vipmovev1.CoordinatorMessage_Welcome{
		Welcome: &vipmovev1.Welcome{JournalId: "j1", Term: 1, Protocol: session.Protocol},
	}})
	<-s.Context().Done()
	return err
}

// TestTheBinaryJoinsItsCoordinatorOverMutualTLS: the program as it is run, in
// a namespace of its own.
func TestTheBinaryJoinsItsCoordinatorOverMutualTLS(t *testing.T) {
	ns := namespacetest.NewT(t, "n1")
	dir, err := os.MkdirTemp("", "vm") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	own := issue(t, dir, identity.Identity{Role: identity.RoleCoordinator})
	files := issue(t, dir, identity.Identity{Role: identity.RoleAgent, Name: "n1"})
	security, err := identity.ServerConfig(own)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := &greeter{hello: make(chan *vipmovev1.Hello, 1), who: make(chan identity.Identity, 1)}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(security)))
	vipmovev1.RegisterObserversServer(server, g)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(self, "--coordinator", "unix:"+socket, "--ca", files.CA, "--cert", files.Certificate, "--key", files.Key,
		"--state-dir", filepath.Join(dir, "state"), "--listen", "127.0.0.1:0", "--act", "--allow-prefix", "192.0.2.0/24")
	cmd.Env = append(os.Environ(), marker+"=1", "NODE_NAME=n1")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	select {
	case h := <-g.hello:
		if who := <-g.who; who.Name != "n1" || h.GetNode() != "n1" || !h.GetCanAct() || h.GetVersion() == "" {
			t.Errorf("%s says %v", who, h)
		}
	case <-time.After(20 * time.Second):
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("no agent came:\n%s", &log)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("told to stop, it ended with %v:\n%s", err, &log)
	}
}
