// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/vipmove/vipmove/internal/identity"
)

const (
	// connectTimeout bounds TCP connect and TLS handshake together.
	connectTimeout = 5 * time.Second
	// bufferSize of a connection, each way: messages are small, agents many.
	bufferSize = 4 << 10
)

// dialer opens the connections of one attempt and keeps the last reason why it
// could not, which gRPC passes on as quoted text only.
type dialer struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu  sync.Mutex
	err error
}

func (d *dialer) open(ctx context.Context, address string) (net.Conn, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	}
	conn, err := d.dial(ctx, network, address)
	d.note(err)
	return conn, err
}

func (d *dialer) note(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// handshaker is a TLS client whose failures are noted by a dialer.
type handshaker struct {
	credentials.TransportCredentials
	dialer *dialer
}

// ClientHandshake implements credentials.TransportCredentials.
func (h handshaker) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	h.dialer.note(identity.Explain("the coordinator's", err))
	if err != nil {
		return nil, nil, err
	}
	return alertConn{conn, h.dialer}, info, nil
}

// alertConn notes a TLS alert from the peer. In TLS 1.3 a client's handshake is
// over before the server has looked at the client's certificate.
type alertConn struct {
	net.Conn
	dialer *dialer
}

func (c alertConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	var alert *net.OpError
	if errors.As(err, &alert) && alert.Op == "remote error" { // how crypto/tls marks one
		c.dialer.note(fmt.Errorf("the coordinator refused this program's certificate: %w", alert.Err))
	}
	return n, err
}

// Clone implements credentials.TransportCredentials.
func (h handshaker) Clone() credentials.TransportCredentials {
	return handshaker{h.TransportCredentials.Clone(), h.dialer}
}

// reason is why no connection could be opened; nil when the last one could.
func (d *dialer) reason() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// connection makes the one gRPC connection of an attempt. It dials nothing yet.
func (c *Config) connection(address string, d *dialer) (*grpc.ClientConn, error) {
	security := insecure.NewCredentials()
	if c.TLS != nil {
		own := c.TLS.Clone()
		own.ServerName = c.ServerName
		security = handshaker{credentials.NewTLS(own), d}
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(security),
		grpc.WithContextDialer(d.open),
		grpc.WithKeepaliveParams(ClientKeepalive()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: grpcbackoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithReadBufferSize(bufferSize),
		grpc.WithWriteBufferSize(bufferSize),
		grpc.WithIdleTimeout(0),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
	}
	if c.ServerName != "" {
		options = append(options, grpc.WithAuthority(c.ServerName))
	}
	// passthrough: the dialer resolves names, one attempt has one address.
	return grpc.NewClient("passthrough:///"+address, options...)
}
