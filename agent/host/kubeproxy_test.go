// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ports plays the two ports: what each does with a connection.
type ports map[string]func(ctx context.Context) (net.Conn, error)

func (p ports) dial(ctx context.Context, _, address string) (net.Conn, error) {
	if answer := p[address]; answer != nil {
		return answer(ctx)
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", unix.ECONNREFUSED)}
}

// serve answers every connection as an HTTP server.
func serve(t *testing.T, status int, body string) func(context.Context) (net.Conn, error) {
	t.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/proxyMode" || r.Method != http.MethodGet {
			t.Errorf("asked %s %s", r.Method, r.URL.Path)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	})
	return func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			req, err := http.ReadRequest(bufio.NewReader(theirs))
			if err != nil {
				t.Errorf("reading the request: %v", err)
				return
			}
			answer := httptest.NewRecorder()
			handler(answer, req)
			_ = answer.Result().Write(theirs)
		}()
		return ours, nil
	}
}

// says answers every connection with fixed bytes, read or not.
func says(text string) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			_, _ = theirs.Read(make([]byte, 1024))
			_, _ = theirs.Write([]byte(text))
		}()
		return ours, nil
	}
}

func fails(err error) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) { return nil, err }
}

func TestKubeProxyIsToldByItsOwnPorts(t *testing.T) {
	const mode, health = "127.0.0.1:10249", "127.0.0.1:10256"
	timeout := fmt.Errorf("dial tcp: %w", context.DeadlineExceeded)
	for _, c := range []struct {
		name   string
		ports  ports
		state  KubeProxyState
		mode   string
		detail string
	}{
		{"names its mode", ports{mode: serve(t, 200, "ipvs")}, KubeProxyRunning, "ipvs", "answers ipvs"},
		{"names its mode on a line", ports{mode: serve(t, 200, "nftables\n"), health: fails(timeout)}, KubeProxyRunning, "nftables", ""},
		{"both ports refuse", ports{}, KubeProxyAbsent, "", "127.0.0.1:10249 and 127.0.0.1:10256 refuse"},
		{"only the health port answers, as with Cilium", ports{health: says("")}, KubeProxyUnknownManager, "", "10256 answers alone"},
		{"the mode port answers something else", ports{mode: serve(t, 404, "not found")}, KubeProxyUnknownManager, "", "status 404"},
		{"the mode port answers a page", ports{mode: serve(t, 200, "<html>")}, KubeProxyUnknownManager, "", "status 200"},
		{"the mode port answers nothing", ports{mode: serve(t, 200, "")}, KubeProxyUnknownManager, "", "status 200"},
		{"the mode port times out", ports{mode: fails(timeout)}, KubeProxyUnknown, "", "10249"},
		{"the health port times out", ports{health: fails(timeout)}, KubeProxyUnknown, "", "10256"},
		{"the mode port does not speak HTTP", ports{mode: says("SSH-2.0\r\n")}, KubeProxyUnknown, "", "10249"},
		{"the mode port closes at once", ports{mode: says("")}, KubeProxyUnknown, "", "10249"},
		{"the network is broken", ports{mode: fails(unix.ENETUNREACH)}, KubeProxyUnknown, "", "unreachable"},
		{"a header without end", ports{mode: says("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<15))}, KubeProxyUnknown, "", "10249"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := New(Options{Dial: c.ports.dial})
			if err != nil {
				t.Fatal(err)
			}
			got := l.proxy.ask(t.Context())
			if got.State != c.state || got.Mode != c.mode || !strings.Contains(got.Detail, c.detail) || got.Detail == "" {
				t.Errorf("got %+v, want %s, mode %q, detail with %q", got, c.state, c.mode, c.detail)
			}
		})
	}
}

// A port that accepts and then says nothing must not hold the agent.
func TestASilentKubeProxyPortEndsWithTheCaller(t *testing.T) {
	silent := func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { theirs.Close() })
		return ours, nil
	}
	l, err := New(Options{Dial: ports{"127.0.0.1:10249": silent}.dial})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("the caller has gone"))
	defer cancel()
	if got := l.proxy.ask(ctx); got.State != KubeProxyUnknown {
		t.Errorf("got %+v, want unknown", got)
	}
}

// With real sockets, on the thread of the namespace that is asked about.
func TestKubeProxyIsLookedForInTheCallersNamespace(t *testing.T) {
	w := newNamespaceWorld(t, Options{})
	if st, err := w.State(t.Context(), nil); err != nil || st.KubeProxy.State != KubeProxyAbsent {
		t.Fatalf("got %+v, %v, want absent", st.KubeProxy, err)
	}
	var listener net.Listener
	w.do(func() (err error) { listener, err = net.Listen("tcp", "127.0.0.1:10249"); return err })
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ipvs") })}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	st, err := w.State(t.Context(), nil)
	if err != nil || st.KubeProxy.State != KubeProxyRunning || st.KubeProxy.Mode != "ipvs" {
		t.Errorf("got %+v, %v, want running, ipvs", st.KubeProxy, err)
	}
}
