// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"
)

// ServerName is the name that every coordinator's certificate carries and
// every client checks, whatever address it dialled.
const ServerName = "coordinator"

// ServerConfig is a coordinator's side: TLS 1.3, its own certificate, and from
// every client a certificate of the same CA with the role agent, witness or
// operator. The certificate is read anew when its file changes; the CA is read
// once.
func ServerConfig(f Files) (*tls.Config, error) {
	roots, pair, err := load(f, RoleCoordinator)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs:  roots,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return pair.current()
		},
		VerifyConnection: func(s tls.ConnectionState) error {
			return verifyRole(s, "talk to a coordinator", RoleAgent, RoleWitness, RoleOperator)
		},
	}, nil
}

// ClientConfig is the side of an agent, a witness or an operator: TLS 1.3, its
// own certificate, and a coordinator whose certificate is of the same CA, for
// ServerName, with the role coordinator. The certificate is read anew when its
// file changes; the CA is read once.
func ClientConfig(f Files) (*tls.Config, error) {
	roots, pair, err := load(f, RoleAgent, RoleWitness, RoleOperator)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: ServerName,
		RootCAs:    roots,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return pair.current()
		},
		VerifyConnection: func(s tls.ConnectionState) error {
			return verifyRole(s, "be a coordinator", RoleCoordinator)
		},
	}, nil
}

// FromFiles is who the certificate of f names, once it is valid as load says.
func FromFiles(f Files) (Identity, error) {
	_, pair, err := load(f, RoleCoordinator, RoleAgent, RoleWitness, RoleOperator)
	if err != nil {
		return Identity{}, err
	}
	return FromCertificate(pair.certificate.Leaf)
}

// verifyRole runs after the chain was verified.
func verifyRole(s tls.ConnectionState, act string, roles ...string) error {
	if len(s.VerifiedChains) == 0 {
		return fmt.Errorf("verifying the peer: %w", ErrNoIdentity)
	}
	i, err := FromCertificate(s.VerifiedChains[0][0])
	if err != nil {
		return err
	}
	return i.RequireRole(act, roles...)
}

// load reads f and checks at start what a peer would refuse later with less to
// say: the key fits, the certificate is in its time, is signed by the CA, and
// names one of the roles.
func load(f Files, roles ...string) (*x509.CertPool, *keyPair, error) {
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the CA's certificate %s: %w", f.CA, reason(err))
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, nil, fmt.Errorf("reading the CA's certificate %s: it has no PEM block %q", f.CA, certificateBlock)
	}
	pair := &keyPair{files: f}
	certificate, err := pair.current()
	if err != nil {
		return nil, nil, err
	}
	if err := checkOwn(certificate.Leaf, f, roots, roles); err != nil {
		return nil, nil, fmt.Errorf("using certificate %s: %w", f.Certificate, err)
	}
	return roots, pair, nil
}

func checkOwn(c *x509.Certificate, f Files, roots *x509.CertPool, roles []string) error {
	i, err := FromCertificate(c)
	if err != nil {
		return err
	}
	if err := i.RequireRole("be used here", roles...); err != nil {
		return err
	}
	_, err = c.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return fmt.Errorf("it is not signed by the CA of %s: %w", f.CA, err)
	}
	if err != nil {
		return Explain("the", err)
	}
	return nil
}

// Explain puts what a TLS handshake says of a certificate into a sentence for
// the operator; whose completes "… certificate", for example "the
// coordinator's". Other errors, and nil, are returned as they are. The error
// still is what it was, for errors.As.
func Explain(whose string, err error) error {
	var (
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		name    x509.HostnameError
	)
	switch {
	case errors.As(err, &unknown):
		return &explained{whose + " certificate is signed by another CA than ours: both sides need certificates of one CA", err}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return &explained{whose + " certificate " + whenValid(invalid.Cert) + ": issue a new one, or set the clock right", err}
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return &explained{whose + " certificate is of a role that may not take that side of a connection", err}
	case errors.As(err, &name):
		return &explained{fmt.Sprintf("%s certificate is for %v, not for the name %s", whose, name.Certificate.DNSNames, name.Host), err}
	}
	return err
}

// whenValid says how the clock is outside of a certificate's time.
func whenValid(c *x509.Certificate) string {
	if time.Now().Before(c.NotBefore) {
		return "is not valid before " + c.NotBefore.UTC().Format(time.RFC3339)
	}
	return "expired at " + c.NotAfter.UTC().Format(time.RFC3339)
}

type explained struct {
	sentence string
	cause    error
}

func (e *explained) Error() string { return e.sentence }
func (e *explained) Unwrap() error { return e.cause }
