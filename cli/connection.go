// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/vipmove/vipmove/internal/identity"
	"github.com/vipmove/vipmove/internal/session"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// connection is where the coordinator is and who asks: flags first, then the environment.
type connection struct {
	coordinator   string // host:port or unix:PATH
	pki           string // directory with ca.crt, operator-*.crt and operator-*.key
	ca, cert, key string // files, each of them before what pki would give
	serverName    string // name that the coordinator's certificate must carry
	timeout       time.Duration
}

// Environment variables behind the connection flags.
const (
	envCoordinator = "VIPMOVE_COORDINATOR"
	envPKI         = "VIPMOVE_PKI"
	envCA          = "VIPMOVE_CA"
	envCert        = "VIPMOVE_CERT"
	envKey         = "VIPMOVE_KEY"
)

// addTo gives cmd the connection flags. A timeout of 0 is none.
func (c *connection) addTo(cmd *cobra.Command, timeout time.Duration) {
	f := cmd.Flags()
	f.StringVar(&c.coordinator, "coordinator", "", "coordinator's address, host:port or unix:PATH (env "+envCoordinator+")")
	f.StringVar(&c.pki, "pki", "", "directory with ca.crt, operator-*.crt and operator-*.key, as `vipmove pki` makes it (env "+envPKI+")")
	f.Lookup("pki").Usage = strings.ReplaceAll(f.Lookup("pki").Usage, "`", "")
	f.StringVar(&c.ca, "ca", "", "certificate authority's certificate, a PEM file (env "+envCA+")")
	f.StringVar(&c.cert, "cert", "", "operator's certificate, a PEM file (env "+envCert+")")
	f.StringVar(&c.key, "key", "", "operator's key, a PEM file (env "+envKey+")")
	f.StringVar(&c.serverName, "server-name", identity.ServerName, "name that the coordinator's certificate must carry")
	f.DurationVar(&c.timeout, "timeout", timeout, "give up after this long, exit code 6; 0: never")
}

// fromEnvironment fills in what no flag gave.
func (c *connection) fromEnvironment(getenv func(string) string) {
	for _, v := range []struct {
		value *string
		env   string
	}{{&c.coordinator, envCoordinator}, {&c.pki, envPKI}, {&c.ca, envCA}, {&c.cert, envCert}, {&c.key, envKey}} {
		if *v.value == "" {
			*v.value = getenv(v.env)
		}
	}
}

// resolve fills in the environment, and refuses what cannot work.
func (c *connection) resolve(getenv func(string) string) error {
	c.fromEnvironment(getenv)
	if err := checkCoordinator(c.coordinator); err != nil {
		return err
	}
	if c.timeout < 0 {
		return usagef("--timeout %s: a time cannot be negative", c.timeout)
	}
	if c.pki != "" {
		if err := c.fromPKI(); err != nil {
			return err
		}
	}
	if c.ca == "" || c.cert == "" || c.key == "" {
		return usagef("no operator's certificate given: set --pki DIR (or %s), or --ca, --cert and --key; `vipmove pki --help` makes one", envPKI)
	}
	return nil
}

// checkCoordinator wants host:port or unix:PATH.
func checkCoordinator(address string) error {
	if address == "" {
		return usagef("no coordinator given: set --coordinator host:port or unix:PATH, or %s; to try vipmove without one, run `vipmove demo`", envCoordinator)
	}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if path == "" {
			return usagef("--coordinator %s: the path is missing", address)
		}
		return nil
	}
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return usagef("--coordinator %s: want host:port or unix:PATH", address)
	}
	return nil
}

// fromPKI takes what no flag named from the directory.
func (c *connection) fromPKI() error {
	if c.ca == "" {
		c.ca = filepath.Join(c.pki, "ca.crt")
	}
	if c.cert != "" && c.key != "" {
		return nil
	}
	if c.cert != "" || c.key != "" {
		return usagef("--cert and --key belong together")
	}
	found, err := filepath.Glob(filepath.Join(c.pki, "operator-*.crt"))
	switch {
	case err != nil:
		return usagef("--pki %s: %w", c.pki, err)
	case len(found) == 0:
		return usagef("--pki %s: no operator-*.crt in it; make one with `vipmove pki issue --help`", c.pki)
	case len(found) > 1:
		return usagef("--pki %s: several operators in it (%s); choose with --cert and --key", c.pki, strings.Join(found, ", "))
	}
	c.cert = found[0]
	c.key = strings.TrimSuffix(found[0], ".crt") + ".key"
	return nil
}

// tlsConfig reads the files. A certificate that no coordinator would accept is not allowed; a file that is missing or
// broken is a mistake in the flags.
func (c *connection) tlsConfig() (*tls.Config, error) {
	config, err := identity.ClientConfig(identity.Files{CA: c.ca, Certificate: c.cert, Key: c.key})
	switch {
	case err != nil && namesCertificate(err):
		return nil, &exitError{code: exitNotAllowed, err: err}
	case err != nil:
		return nil, usagef("%w; see --pki, --ca, --cert and --key", err)
	}
	config.ServerName = c.serverName
	return config, nil
}

// control is a connected client. Connecting itself happens with the first call.
type control struct {
	vipmovev1.ControlClient
	conn   *connection
	grpc   *grpc.ClientConn
	shakes *handshakes
}

func (c *control) Close() { _ = c.grpc.Close() } // nothing is buffered, nothing can be lost

// connectTimeout bounds one attempt, connecting and TLS handshake together.
const connectTimeout = 5 * time.Second

// maxMessage bounds one message from the coordinator: a snapshot of hundreds of nodes with a thousand addresses each.
const maxMessage = 256 << 20

// dial prepares a client. Errors are the operator's: a missing flag, an unreadable file.
func (a *app) dial(c *connection) (*control, error) {
	if err := c.resolve(a.env.Getenv); err != nil {
		return nil, err
	}
	security, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	shakes := &handshakes{TransportCredentials: credentials.NewTLS(security)}
	conn, err := grpc.NewClient("passthrough:///"+c.coordinator,
		grpc.WithTransportCredentials(shakes),
		grpc.WithAuthority(c.serverName),
		grpc.WithContextDialer(dialAddress),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: connectTimeout}),
		grpc.WithKeepaliveParams(session.ClientKeepalive()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
	)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to %s: %w", c.coordinator, err)
	}
	return &control{ControlClient: vipmovev1.NewControlClient(conn), conn: c, grpc: conn, shakes: shakes}, nil
}

func dialAddress(ctx context.Context, address string) (net.Conn, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	return (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, network, address)
}

// within bounds ctx by the connection's timeout.
func (c *connection) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.timeout)
}
