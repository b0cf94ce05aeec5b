// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheLogIsTextOrJSONFromALevelOn(t *testing.T) {
	var text bytes.Buffer
	log, err := Logger(&text, "text", "warn")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("unheard")
	log.Warn("heard", "vip", "192.0.2.50")
	if got := text.String(); !strings.Contains(got, "msg=heard vip=192.0.2.50") || strings.Contains(got, "unheard") {
		t.Errorf("text log:\n%s", got)
	}

	var lines bytes.Buffer
	log, err = Logger(&lines, "json", "debug")
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("heard", "node", "n1")
	var line struct{ Level, Msg, Node string }
	if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Level != "DEBUG" || line.Msg != "heard" || line.Node != "n1" {
		t.Errorf("json log: %+v, %v", line, err)
	}
}

func TestUnknownLogSettingsListWhatMayBeGiven(t *testing.T) {
	for want, give := range map[string][2]string{
		`reading the log level "loud": want debug, info, warn or error`: {"text", "loud"},
		`reading the log format "xml": want text or json`:               {"xml", "info"},
	} {
		if _, err := Logger(io.Discard, give[0], give[1]); err == nil || err.Error() != want {
			t.Errorf("Logger(%q, %q) = %v, want %s", give[0], give[1], err, want)
		}
	}
}

// start serves e on a free port of loopback until the test ends.
func start(t *testing.T, e Endpoint) (url string) {
	t.Helper()
	e.Address = "127.0.0.1:0"
	s, err := e.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want context.Canceled", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return "http://" + s.Addr().String()
}

func ask(t *testing.T, method, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestThePortTellsMetricsHealthAndReadiness(t *testing.T) {
	registry := prometheus.NewRegistry()
	scraped := 0.0
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "vipmove_test"}, func() float64 { scraped++; return scraped }))
	ready := errors.New("no session with a coordinator")
	url := start(t, Endpoint{Metrics: registry, Ready: func() error { return ready }})

	tests := []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/healthz", 200, "ok\n"},
		{"GET", "/readyz", 503, "no session with a coordinator\n"},
		{"GET", "/metrics", 200, "vipmove_test 1\n"},
		{"GET", "/metrics", 200, "vipmove_test 2\n"},
		{"GET", "/", 404, "404"},
		{"GET", "/debug/pprof/", 404, "404"},
		{"POST", "/metrics", 405, "GET only"},
		{"PUT", "/healthz", 405, "GET only"},
		{"DELETE", "/readyz", 405, "GET only"},
	}
	for _, tt := range tests {
		status, body := ask(t, tt.method, url+tt.path)
		if status != tt.status || !strings.Contains(body, tt.body) {
			t.Errorf("%s %s = %d %q, want %d %q", tt.method, tt.path, status, body, tt.status, tt.body)
		}
	}
	ready = nil
	if status, body := ask(t, "GET", url+"/readyz"); status != 200 || body != "ok\n" {
		t.Errorf("ready: %d %q", status, body)
	}
}

func TestWithoutAConditionItIsReady(t *testing.T) {
	url := start(t, Endpoint{Metrics: prometheus.NewRegistry()})
	if status, _ := ask(t, "GET", url+"/readyz"); status != 200 {
		t.Errorf("status %d", status)
	}
}

func TestAPortThatIsTakenNamesTheAddressAndTheFlag(t *testing.T) {
	first, err := Endpoint{Flag: "--listen", Address: "127.0.0.1:0"}.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	address := first.Addr().String()
	_, err = Endpoint{Flag: "--listen", Address: address}.Listen()
	want := "listening on " + address + " for metrics and health: bind: address already in use (choose another address with --listen)"
	if !errors.Is(err, unix.EADDRINUSE) || err.Error() != want {
		t.Errorf("err = %v\nwant  %s", err, want)
	}
	if _, err := (Endpoint{Flag: "--listen", Address: "nonsense"}).Listen(); err == nil || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("a malformed address: %v", err)
	}
}

func TestASignalEndsTheContext(t *testing.T) {
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGINT} {
		ctx, stop := SignalContext(t.Context())
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if err := self.Signal(s); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		stop()
	}
}
