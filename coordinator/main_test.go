// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/vipmove/vipmove/coordinator/journal"
	"github.com/vipmove/vipmove/internal/identity"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pki makes a CA with certificates for a coordinator, an operator and an agent.
func pki(t *testing.T) (dir string, coordinator, operator, agent identity.Files) {
	t.Helper()
	dir = t.TempDir()
	if err := identity.Init(dir); err != nil {
		t.Fatal(err)
	}
	issue := func(id identity.Identity) identity.Files {
		f, err := identity.Issue(dir, id, nil, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	return dir, issue(identity.Identity{Role: identity.RoleCoordinator}), issue(identity.Identity{Role: identity.RoleOperator, Name: "alice"}),
		issue(identity.Identity{Role: identity.RoleAgent, Name: "n1"})
}

func tlsFlags(f identity.Files) []string {
	return []string{"--ca", f.CA, "--cert", f.Certificate, "--key", f.Key}
}

// start runs the command and returns how it ended, once it has.
func start(ctx context.Context, args ...string) <-chan error {
	ended := make(chan error, 1)
	c := command()
	c.SetArgs(args)
	c.SetOut(io.Discard)
	c.SetErr(io.Discard)
	go func() { ended <- c.ExecuteContext(ctx) }()
	return ended
}

// freePort is one that nobody listens on at this moment.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func TestTheCoordinatorServesOnAllItsAddressesUntilItIsToldToEnd(t *testing.T) {
	dir, files, operator, _ := pki(t)
	socket, web := "unix:"+filepath.Join(dir, "s"), freePort(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := start(ctx, append(tlsFlags(files), "--listen", "127.0.0.1:0", "--listen", socket, "--http", web,
		"--journal", filepath.Join(dir, "journal.db"), "--log-level", "error", "--watch", "192.0.2.50")...)

	tls, err := identity.ClientConfig(operator)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(credentials.NewTLS(tls)), grpc.WithAuthority(identity.ServerName))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	within, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	if _, err := vipmovev1.NewControlClient(conn).ListNodes(within, &vipmovev1.ListNodesRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/metrics": "vipmove_coordinator_term 1", "/healthz": "ok", "/readyz": "ok"} {
		if code, body := get(t, "http://"+web+path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
	if _, err := net.Dial("tcp", web); err == nil {
		t.Error("the web server did not end")
	}
	again := start(t.Context(), append(tlsFlags(files), "--listen", "127.0.0.1:0", "--http", "bad", "--journal", filepath.Join(dir, "journal.db"))...)
	if err := <-again; err == nil || strings.Contains(err.Error(), "journal") {
		t.Errorf("the journal was not given back: %v", err)
	}
}

// What cannot be had is fatal, and the flag that changes it is named. Nothing is left open.
func TestWhatCannotBeHadIsFatalAndNamed(t *testing.T) {
	dir, files, _, agent := pki(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	held := filepath.Join(dir, "held.db")
	j, err := journal.Open(held)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	fresh := func() []string { return []string{"--journal", filepath.Join(t.TempDir(), "j.db")} }
	free := []string{"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"}
	tests := []struct {
		name string
		args [][]string
		want string
	}{
		{"no certificate", [][]string{free, fresh()}, `required flag(s) "ca", "cert", "key" not set`},
		{"a certificate that is not there", [][]string{tlsFlags(identity.Files{CA: files.CA, Certificate: "/nowhere/c", Key: files.Key}), free, fresh()}, "reading certificate /nowhere/c"},
		{"an agent's certificate", [][]string{tlsFlags(agent), free, fresh()}, "takes a certificate of role coordinator"},
		{"gRPC port in use", [][]string{tlsFlags(files), fresh(), {"--listen", "127.0.0.1:0", "--listen", taken.Addr().String(), "--http", "127.0.0.1:0"}},
			"listening on " + taken.Addr().String() + ": bind: address already in use (choose another address with --listen)"},
		{"web port in use", [][]string{tlsFlags(files), fresh(), {"--listen", "127.0.0.1:0", "--http", taken.Addr().String()}}, "(choose another address with --http)"},
		{"journal in use", [][]string{tlsFlags(files), free, {"--journal", held}}, "another process has this journal open"},
		{"journal that cannot be made", [][]string{tlsFlags(files), free, {"--journal", files.CA + "/j.db"}}, "making the journal's folder"},
		{"bad log level", [][]string{tlsFlags(files), free, fresh(), {"--log-level", "loud"}}, `reading the log level "loud"`},
		{"bad log format", [][]string{tlsFlags(files), free, fresh(), {"--log-format", "xml"}}, `reading the log format "xml"`},
		{"bad watched address", [][]string{tlsFlags(files), free, fresh(), {"--watch", "192.0.2.50/32"}}, `--watch "192.0.2.50/32": give an IPv4 address`},
		{"unknown flag", [][]string{{"--frobnicate"}}, "unknown flag"},
		{"an argument", [][]string{tlsFlags(files), {"serve"}}, `unknown command "serve"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var args []string
			for _, a := range tt.args {
				args = append(args, a...)
			}
			err := <-start(t.Context(), args...)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v\nwant it to say %q", err, tt.want)
			}
		})
	}
}

// A second coordinator on the journal of a running one does not start, and the first one does not notice.
func TestTwoCoordinatorsOnOneJournal(t *testing.T) {
	dir, files, _, _ := pki(t)
	web, file := freePort(t), filepath.Join(dir, "journal.db")
	ctx, cancel := context.WithCancel(t.Context())
	first := start(ctx, append(tlsFlags(files), "--listen", "127.0.0.1:0", "--http", web, "--journal", file, "--log-level", "error")...)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for code := 0; code != http.StatusOK; code, _ = get(t, "http://"+web+"/readyz") {
		select {
		case err := <-first:
			t.Fatal(err)
		case <-tick.C:
		}
	}
	second := <-start(t.Context(), append(tlsFlags(files), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--journal", file)...)
	if !errors.Is(second, journal.ErrInUse) || !strings.Contains(second.Error(), "stop the other one first") {
		t.Errorf("the second ended with %v", second)
	}
	if code, body := get(t, "http://"+web+"/metrics"); code != http.StatusOK || !strings.Contains(body, "vipmove_coordinator_term 1") {
		t.Errorf("the first: %d %s", code, body)
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the first ended with %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestTheVersionIsOneLineAlsoOfABuildWithoutOne(t *testing.T) {
	var out bytes.Buffer
	c := command()
	c.SetArgs([]string{"--version"})
	c.SetOut(&out)
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "vipmove-coordinator ") || strings.Count(got, "\n") != 1 || !strings.Contains(got, "commit ") {
		t.Errorf("%q", got)
	}
}

func TestEveryFlagSaysWhatItIsFor(t *testing.T) {
	c := command()
	var out bytes.Buffer
	c.SetArgs([]string{"--help"})
	c.SetOut(&out)
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--listen", "--http", "--journal", "--ca", "--cert", "--key", "--watch", "--log-format", "--log-level", "--version"} {
		if !strings.Contains(out.String(), flag+" ") {
			t.Errorf("--help does not tell %s", flag)
		}
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" {
			t.Errorf("--%s has no description", f.Name)
		}
	})
}
