// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/vipmove/vipmove/internal/identity"
	"github.com/vipmove/vipmove/internal/session"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// fakeControl is a coordinator that answers what a test tells it to, over real TLS on a unix socket.
type fakeControl struct {
	vipmovev1.UnimplementedControlServer

	mu       sync.Mutex
	received []proto.Message // every request, in order

	nodes    *vipmovev1.ListNodesResponse
	survey   []*vipmovev1.SurveyEvent
	snapshot *vipmovev1.Snapshot
	plan     *vipmovev1.Plan
	runID    string
	runs     []*vipmovev1.Run
	ordered  *vipmovev1.Run // what abort and rollback answer
	// watches are the streams of WatchRun: the first call gets the first, further calls get the last again.
	watches [][]*vipmovev1.Run
	watched int
	hold    bool          // WatchRun stays open after its last state, until the client goes
	holding chan struct{} // closed when it does
	err     error         // of every call, at once
	lose    error         // of WatchRun, after what a stream holds, but for the last stream
}

func (f *fakeControl) note(m proto.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.received = append(f.received, m)
	return f.err
}

func (f *fakeControl) requests() []proto.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]proto.Message(nil), f.received...)
}

func (f *fakeControl) ListNodes(_ context.Context, r *vipmovev1.ListNodesRequest) (*vipmovev1.ListNodesResponse, error) {
	return f.nodes, f.note(r)
}

func (f *fakeControl) Survey(r *vipmovev1.SurveyRequest, stream grpc.ServerStreamingServer[vipmovev1.SurveyEvent]) error {
	if err := f.note(r); err != nil {
		return err
	}
	for _, e := range f.survey {
		if err := stream.Send(e); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeControl) TakeSnapshot(_ context.Context, r *vipmovev1.TakeSnapshotRequest) (*vipmovev1.TakeSnapshotResponse, error) {
	return &vipmovev1.TakeSnapshotResponse{Snapshot: f.snapshot}, f.note(r)
}

func (f *fakeControl) MakePlan(_ context.Context, r *vipmovev1.MakePlanRequest) (*vipmovev1.MakePlanResponse, error) {
	return &vipmovev1.MakePlanResponse{Plan: f.plan}, f.note(r)
}

func (f *fakeControl) StartRun(_ context.Context, r *vipmovev1.StartRunRequest) (*vipmovev1.StartRunResponse, error) {
	return &vipmovev1.StartRunResponse{RunId: f.runID}, f.note(r)
}

func (f *fakeControl) WatchRun(r *vipmovev1.WatchRunRequest, stream grpc.ServerStreamingServer[vipmovev1.WatchRunResponse]) error {
	if err := f.note(r); err != nil {
		return err
	}
	f.mu.Lock()
	last := f.watched >= len(f.watches)-1
	var states []*vipmovev1.Run
	if len(f.watches) > 0 {
		states = f.watches[min(f.watched, len(f.watches)-1)]
	}
	f.watched++
	f.mu.Unlock()
	for _, state := range states {
		if err := stream.Send(&vipmovev1.WatchRunResponse{Run: state}); err != nil {
			return err
		}
	}
	if f.hold {
		close(f.holding)
		<-stream.Context().Done()
		return status.FromContextError(stream.Context().Err()).Err()
	}
	if !last {
		return f.lose
	}
	return nil
}

func (f *fakeControl) AbortRun(_ context.Context, r *vipmovev1.AbortRunRequest) (*vipmovev1.AbortRunResponse, error) {
	return &vipmovev1.AbortRunResponse{Run: f.ordered}, f.note(r)
}

func (f *fakeControl) RollbackRun(_ context.Context, r *vipmovev1.RollbackRunRequest) (*vipmovev1.RollbackRunResponse, error) {
	return &vipmovev1.RollbackRunResponse{Run: f.ordered}, f.note(r)
}

func (f *fakeControl) ListRuns(_ context.Context, r *vipmovev1.ListRunsRequest) (*vipmovev1.ListRunsResponse, error) {
	return &vipmovev1.ListRunsResponse{Runs: f.runs}, f.note(r)
}

// serve makes f reachable, and returns the environment that finds it.
func (f *fakeControl) serve(t *testing.T) map[string]string {
	t.Helper()
	dir := shortDir(t)
	issue(t, dir, identity.Identity{Role: identity.RoleCoordinator})
	issue(t, dir, identity.Identity{Role: identity.RoleOperator, Name: "test"})
	return map[string]string{envCoordinator: f.serveWith(t, dir), envPKI: dir}
}

// serveWith serves with the coordinator's certificate of the CA in dir, and returns the address.
func (f *fakeControl) serveWith(t *testing.T, dir string) string {
	t.Helper()
	f.holding = make(chan struct{})
	config, err := identity.ServerConfig(identity.FilesIn(dir, identity.Identity{Role: identity.RoleCoordinator}))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "c.sock"))
	if err != nil {
		t.Fatal(err)
	}
	keepalive, policy := session.ServerKeepalive()
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)), grpc.KeepaliveParams(keepalive), grpc.KeepaliveEnforcementPolicy(policy))
	vipmovev1.RegisterControlServer(server, f)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = server.Serve(listener) // ended by Stop
	}()
	t.Cleanup(func() { server.Stop(); <-stopped })
	return "unix:" + listener.Addr().String()
}

// shortDir is a directory for a socket: its path has at most 107 characters, t.TempDir's may be longer.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cli")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// issue makes a certificate in dir, and the CA where there is none.
func issue(t *testing.T, dir string, i identity.Identity) identity.Files {
	t.Helper()
	if err := identity.Init(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	files, err := identity.Issue(dir, i, nil, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// unavailable is what a client sees while a coordinator restarts.
var unavailable = status.Error(codes.Unavailable, "connection error: desc = \"error reading server preface: EOF\"")
