// SPDX-License-Identifier: Apache-2.0

// Command vipmove-coordinator collects what observers see, judges it, and sequences runs over all nodes.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/vipmove/vipmove/coordinator/journal"
	"github.com/vipmove/vipmove/coordinator/server"
	"github.com/vipmove/vipmove/internal/daemon"
	"github.com/vipmove/vipmove/internal/identity"
	"github.com/vipmove/vipmove/internal/version"
)

type flags struct {
	listen, watch       []string
	http, journal       string
	tls                 identity.Files
	logFormat, logLevel string
}

func main() {
	ctx, stop := daemon.SignalContext(context.Background())
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "vipmove-coordinator:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "vipmove-coordinator",
		Short: "Collects, judges, plans and sequences; agents dial in, operators call it with vipmove",
		Example: `  vipmove-coordinator --listen 192.0.2.2:7443 --journal /var/lib/vipmove/journal.db \
      --ca pki/ca.crt --cert pki/coordinator.crt --key pki/coordinator.key`,
		Version: version.String("vipmove-coordinator"), Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error { return run(c.Context(), f) },
	}
	c.SetVersionTemplate("{{.Version}}\n")
	fs := c.Flags()
	fs.StringArrayVar(&f.listen, "listen", []string{":7443"}, "address for agents, witnesses and operators, host:port or unix:PATH; may be repeated")
	fs.StringVar(&f.http, "http", "127.0.0.1:9743", "address of /metrics, /healthz and /readyz")
	fs.StringVar(&f.journal, "journal", "/var/lib/vipmove/journal.db", "file that holds runs and the term; one process at a time")
	fs.StringVar(&f.tls.CA, "ca", "", "certificate of the CA that signed agents', witnesses' and operators' certificates")
	fs.StringVar(&f.tls.Certificate, "cert", "", "this coordinator's certificate (vipmove pki issue coordinator)")
	fs.StringVar(&f.tls.Key, "key", "", "its key")
	fs.StringArrayVar(&f.watch, "watch", nil, "VIP that agents watch from the start; may be repeated")
	fs.StringVar(&f.logFormat, "log-format", "text", "text or json")
	fs.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	for _, name := range []string{"ca", "cert", "key"} {
		_ = c.MarkFlagRequired(name) // exists, defined above
	}
	return c
}

// run opens everything before it serves anything: a port or journal that cannot be had is fatal and named.
func run(ctx context.Context, f flags) (err error) {
	log, err := daemon.Logger(os.Stderr, f.logFormat, f.logLevel)
	if err != nil {
		return err
	}
	if err := checkWatched(f.watch); err != nil {
		return err
	}
	tlsConfig, err := identity.ServerConfig(f.tls)
	if err != nil {
		return err
	}
	j, err := journal.Open(f.journal)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	listeners, err := listen(f.listen)
	if err != nil {
		return err
	}
	defer closeAll(listeners) // for when Run is not reached
	s, err := server.New(server.Config{Journal: j, Listeners: listeners, TLS: tlsConfig, Watched: f.watch, Log: log})
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(s); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	web, err := daemon.Endpoint{Flag: "--http", Address: f.http, Metrics: registry, Ready: s.Ready, Log: log}.Listen()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return web.Run(ctx) })
	group.Go(func() error { return s.Run(ctx) })
	return group.Wait()
}

// checkWatched: agents would turn away a welcome with an address that is none.
func checkWatched(vips []string) error {
	for _, vip := range vips {
		if a, err := netip.ParseAddr(vip); err != nil || !a.Is4() {
			return fmt.Errorf("--watch %q: give an IPv4 address such as 192.0.2.50", vip)
		}
	}
	return nil
}

// listen opens all addresses or none.
func listen(addresses []string) ([]net.Listener, error) {
	var open []net.Listener
	for _, address := range addresses {
		l, err := server.Listen(address)
		if err != nil {
			closeAll(open)
			return nil, err
		}
		open = append(open, l)
	}
	return open, nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		_ = l.Close() // closed already when the server ran
	}
}
