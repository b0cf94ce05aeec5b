// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/vipmove/vipmove/internal/daemon"
	"github.com/vipmove/vipmove/internal/identity"
	"github.com/vipmove/vipmove/witness"
)

// witnessOptions are the flags of witness.
type witnessOptions struct {
	name, target         string
	coordinators         []string
	files                identity.Files
	pki, serverName      string
	rate                 float64
	host, marker         string
	status               int
	timeout              time.Duration
	logFormat, leastText string
}

func (a *app) witnessCommand() *cobra.Command {
	var o witnessOptions
	cmd := &cobra.Command{
		Use:   "witness --target URL",
		Short: "be a witness: send real requests and watch ARP from outside the cluster",
		Long: `witness runs until it is ended. On a host outside the cluster, on the VIP's network, it sends requests to the VIP at a steady rate, each
over a new connection, listens to ARP, and tells the coordinator. It has no right to change anything, on its host or elsewhere.

It needs CAP_NET_RAW. Its certificate is one of: pki issue witness NAME.`,
		Example: a.examples(
			"witness --target http://192.0.2.50/ --name lan1 --coordinator 192.0.2.2:7443 --pki ./pki", "an HTTP service",
			"witness --target tcp://192.0.2.50:5432 --rate 20", "any TCP service; the rest from the environment"),
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := o.resolve(a)
			if err != nil {
				return err
			}
			err = witness.Run(cmd.Context(), config)
			if cmd.Context().Err() != nil { // it was told to end
				return nil
			}
			return err
		},
	}
	o.addTo(cmd)
	return cmd
}

func (o *witnessOptions) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.name, "name", "", "name, as in the certificate (default: the host's)")
	f.StringVar(&o.target, "target", "", "what to ask: http://VIP[:PORT][/PATH] or tcp://VIP:PORT")
	f.StringArrayVar(&o.coordinators, "coordinator", nil, "coordinator's address, host:port or unix:PATH, repeatable, tried in order (env "+envCoordinator+")")
	f.StringVar(&o.serverName, "server-name", identity.ServerName, "name that the coordinator's certificate must carry")
	f.StringVar(&o.pki, "pki", "", "directory with ca.crt, witness-NAME.crt and witness-NAME.key (env "+envPKI+")")
	f.StringVar(&o.files.CA, "ca", "", "certificate authority's certificate, a PEM file (env "+envCA+")")
	f.StringVar(&o.files.Certificate, "cert", "", "witness's certificate, a PEM file (env "+envCert+")")
	f.StringVar(&o.files.Key, "key", "", "witness's key, a PEM file (env "+envKey+")")
	f.Float64Var(&o.rate, "rate", witness.DefaultRate, "requests a second")
	f.StringVar(&o.host, "host", "", "Host header of HTTP requests (default: the VIP)")
	f.IntVar(&o.status, "expect-status", 200, "HTTP status of a good answer")
	f.StringVar(&o.marker, "expect-body", "", "text that a good answer's body holds (default: any body)")
	f.DurationVar(&o.timeout, "request-timeout", witness.DefaultTimeout, "how long one request may take, connection and answer together")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json, on stderr")
	f.StringVar(&o.leastText, "log-level", "info", "debug, info, warn or error")
}

// resolve checks the flags, fills in the environment and reads the certificate.
func (o *witnessOptions) resolve(a *app) (witness.Options, error) {
	target, err := o.parseTarget()
	if err != nil {
		return witness.Options{}, err
	}
	if !(o.rate >= 0.1 && o.rate <= witness.MaxRate) {
		return witness.Options{}, usagef("--rate %v: want 0.1 to %v requests a second", o.rate, witness.MaxRate)
	}
	log, err := daemon.Logger(a.env.Stderr, o.logFormat, o.leastText)
	if err != nil {
		return witness.Options{}, usagef("%w", err)
	}
	if o.name == "" {
		if o.name, err = os.Hostname(); err != nil {
			return witness.Options{}, usagef("finding this host's name: %w; give --name", err)
		}
	}
	if env := a.env.Getenv(envCoordinator); len(o.coordinators) == 0 && env != "" {
		o.coordinators = []string{env}
	}
	if len(o.coordinators) == 0 {
		return witness.Options{}, usagef("no coordinator given: set --coordinator host:port or unix:PATH, or %s", envCoordinator)
	}
	for _, address := range o.coordinators {
		if err := checkCoordinator(address); err != nil {
			return witness.Options{}, err
		}
	}
	security, err := o.tlsConfig(a.env.Getenv)
	if err != nil {
		return witness.Options{}, err
	}
	return witness.Options{
		Name: o.name, Version: thisBuild().Version, Coordinators: o.coordinators, TLS: security, ServerName: o.serverName,
		Target: target, Rate: o.rate, Log: log.With(slog.String("witness", o.name)),
	}, nil
}

// tlsConfig finds the files and checks that they name this very witness: the coordinator would hold it to that.
func (o *witnessOptions) tlsConfig(getenv func(string) string) (config *tls.Config, err error) {
	who := identity.Identity{Role: identity.RoleWitness, Name: o.name}
	if err := who.Validate(); err != nil {
		return nil, usagef("%w; give --name", err)
	}
	c := connection{pki: o.pki, ca: o.files.CA, cert: o.files.Certificate, key: o.files.Key, serverName: o.serverName}
	c.fromEnvironment(getenv)
	if c.pki != "" {
		found := identity.FilesIn(c.pki, who)
		c.ca = orText(c.ca, found.CA)
		c.cert, c.key = orText(c.cert, found.Certificate), orText(c.key, found.Key)
	}
	if c.ca == "" || c.cert == "" || c.key == "" {
		return nil, usagef("no witness's certificate given: set --pki DIR (or %s), or --ca, --cert and --key; `vipmove pki issue witness %s` makes one", envPKI, o.name)
	}
	if config, err = c.tlsConfig(); err != nil {
		return nil, err
	}
	named, err := identity.FromFiles(identity.Files{CA: c.ca, Certificate: c.cert, Key: c.key})
	if err == nil && named != who {
		err = fmt.Errorf("using certificate %s as %s: it is the certificate of %s", c.cert, who, named)
	}
	if err != nil {
		return nil, &exitError{code: exitNotAllowed, err: err}
	}
	return config, nil
}

// parseTarget reads --target. The host is an address: a name could mean another machine tomorrow.
func (o *witnessOptions) parseTarget() (witness.Target, error) {
	if o.target == "" {
		return witness.Target{}, usagef("--target is missing, for instance http://192.0.2.50/ or tcp://192.0.2.50:5432")
	}
	u, err := url.Parse(o.target)
	if err != nil || (u.Scheme != "http" && u.Scheme != "tcp") || u.User != nil || u.Fragment != "" {
		return witness.Target{}, usagef("--target %s: want http://VIP[:PORT][/PATH] or tcp://VIP:PORT", o.target)
	}
	vip, err := parseVIP(u.Hostname())
	if err != nil {
		return witness.Target{}, usagef("--target %s: %w", o.target, err)
	}
	text := u.Port()
	if text == "" && u.Scheme == "http" {
		text = "80"
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return witness.Target{}, usagef("--target %s: want a port from 1 to 65535", o.target)
	}
	if o.timeout <= 0 {
		return witness.Target{}, usagef("--request-timeout %s: want a time above zero", o.timeout)
	}
	if u.Scheme == "tcp" {
		if u.RequestURI() != "/" {
			return witness.Target{}, usagef("--target %s: a TCP target has no path", o.target)
		}
		return witness.Target{Address: netip.AddrPortFrom(vip, uint16(port)), TCP: true, Timeout: o.timeout}, nil
	}
	return witness.Target{
		Address: netip.AddrPortFrom(vip, uint16(port)), Host: o.host, Path: u.RequestURI(), Status: o.status, Marker: o.marker, Timeout: o.timeout,
	}, nil
}
