// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// scrapesAtOnce bounds what /metrics costs however often it is asked.
	scrapesAtOnce = 4
	requestTime   = 30 * time.Second
	farewell      = 2 * time.Second
	headerBytes   = 8 << 10
)

// Endpoint is a daemon's one HTTP port: /metrics, /healthz and /readyz, GET
// only.
type Endpoint struct {
	// Flag is the option that set Address, named when the port cannot be had.
	Flag string
	// Address is host:port.
	Address string
	// Metrics is gathered anew for each scrape.
	Metrics prometheus.Gatherer
	// Ready says why this daemon cannot do its work now. nil is always ready.
	Ready func() error
	// Log gets errors of scrapes. nil is discarded.
	Log *slog.Logger
}

// Server is an Endpoint whose port is open. Run serves it.
type Server struct {
	endpoint Endpoint
	listener net.Listener
}

// Listen opens the port, so that a daemon that cannot be watched does not
// start. Connections wait until Run.
func (e Endpoint) Listen() (*Server, error) {
	listener, err := net.Listen("tcp", e.Address)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fmt.Errorf("listening on %s for metrics and health: %w (choose another address with %s)", e.Address, err, e.Flag)
	}
	if e.Log == nil {
		e.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{endpoint: e, listener: listener}, nil
}

// Addr is where the port is open.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close gives the port back, when Run is not called.
func (s *Server) Close() error { return s.listener.Close() }

// Run serves until ctx ends, then lets requests finish for a moment. It
// returns ctx's error, or why serving ended before.
func (s *Server) Run(ctx context.Context) error {
	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: requestTime,
		ReadTimeout:       requestTime,
		WriteTimeout:      requestTime,
		IdleTimeout:       2 * requestTime,
		MaxHeaderBytes:    headerBytes,
		ErrorLog:          slog.NewLogLogger(s.endpoint.Log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(s.listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving metrics and health on %s: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		_ = server.Close() // ends what would not finish
	}
	<-ended
	return ctx.Err()
}

// handler answers the three paths.
func (s *Server) handler() http.Handler {
	paths := http.NewServeMux()
	paths.Handle("/metrics", promhttp.HandlerFor(s.endpoint.Metrics, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(s.endpoint.Log.Handler(), slog.LevelError),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: scrapesAtOnce,
	}))
	paths.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	paths.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if s.endpoint.Ready != nil {
			if err := s.endpoint.Ready(); err != nil {
				say(w, http.StatusServiceUnavailable, err.Error())
				return
			}
		}
		say(w, http.StatusOK, "ok")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			say(w, http.StatusMethodNotAllowed, "this port answers GET only")
			return
		}
		paths.ServeHTTP(w, r)
	})
}

func say(w http.ResponseWriter, status int, sentence string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, sentence+"\n") // the caller has gone: nobody to tell
}
