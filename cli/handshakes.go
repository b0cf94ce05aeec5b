// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/vipmove/vipmove/internal/identity"
)

// handshakes keeps why a connection's last TLS handshake did not succeed, which gRPC passes on as text, or not at all: in
// TLS 1.3 a server refuses our certificate after our side of the handshake has ended (RFC 8446 section 4.4.2.4), so gRPC
// may see no more than a broken pipe.
type handshakes struct {
	credentials.TransportCredentials

	mu  sync.Mutex
	err error
}

func (h *handshakes) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	h.note(err)
	if err != nil {
		return nil, nil, err
	}
	return &shakenConn{Conn: conn, shakes: h}, info, nil
}

// Clone gives the same record to gRPC's copy.
func (h *handshakes) Clone() credentials.TransportCredentials { return h }

func (h *handshakes) note(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

func (h *handshakes) last() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// notTrusted says, of a call that found no connection, which certificate was not accepted, ours or the coordinator's;
// "" where it was something else.
func (h *handshakes) notTrusted() string {
	err := h.last()
	switch {
	case err == nil:
		return ""
	case refusesCertificate(err):
		return "the coordinator does not accept our certificate: " + err.Error()
	case namesCertificate(err):
		return identity.Explain("the coordinator's", err).Error()
	}
	return ""
}

// shakenConn notes the alert with which a server refuses our certificate.
type shakenConn struct {
	net.Conn
	shakes *handshakes
}

func (c *shakenConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && refusesCertificate(err) {
		c.shakes.note(err)
	}
	return n, err
}

// alertWait is how long an alert may take that is behind a write that failed.
const alertWait = 200 * time.Millisecond

// Write looks for an alert where the other side has closed; crypto/tls returns it to every later Read too.
func (c *shakenConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil {
		_ = c.SetReadDeadline(time.Now().Add(alertWait)) // the connection is lost in any case
		_, _ = c.Read(make([]byte, 1))
	}
	return n, err
}

// refusesCertificate reports whether err is a TLS alert about a certificate (RFC 8446 section 6.2).
func refusesCertificate(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" &&
		(strings.Contains(op.Err.Error(), "certificate") || strings.Contains(op.Err.Error(), "access denied"))
}

// namesCertificate reports whether err is about a certificate that is not to be trusted, or of the wrong role.
func namesCertificate(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		invalid      x509.CertificateInvalidError
	)
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &invalid) ||
		errors.Is(err, identity.ErrWrongRole) || errors.Is(err, identity.ErrNoIdentity)
}
