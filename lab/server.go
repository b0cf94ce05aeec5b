// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// servicePort is the VIP's TCP port.
const servicePort = 80

// ServerConfig configures RunServer.
type ServerConfig struct {
	// Node is what every answer's body names, followed by a newline.
	Node string
	// Listen is the local address to listen on.
	Listen netip.AddrPort
	// Ready, when not nil, is called once connections are taken.
	Ready func()
}

// RunServer serves HTTP until ctx ends: it answers every request with 200 and
// the node's name. It stands for the workload behind the VIP.
func RunServer(ctx context.Context, c ServerConfig) error {
	listener, err := net.Listen("tcp4", c.Listen.String())
	if err != nil {
		return fmt.Errorf("serving as %s: %w", c.Node, err)
	}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = fmt.Fprintln(w, c.Node) // the client has gone: nothing to do
		}),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       30 * time.Second,
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if c.Ready != nil {
		c.Ready()
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving as %s: %w", c.Node, err)
	}
	return nil
}
