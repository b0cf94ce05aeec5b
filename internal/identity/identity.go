// SPDX-License-Identifier: Apache-2.0

// Package identity is who speaks on a connection: mutual TLS with certificates
// of our own CA, each naming one role and one name in a URI SAN.
package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// The roles. A role is the host part of the URI SAN.
const (
	RoleCoordinator = "coordinator" // vipmove://coordinator; has no name
	RoleAgent       = "agent"       // vipmove://agent/NODE
	RoleWitness     = "witness"     // vipmove://witness/NAME
	RoleOperator    = "operator"    // vipmove://operator/NAME
)

const scheme = "vipmove"

// Reasons for which a peer is turned away, for errors.Is.
var (
	ErrNoIdentity = errors.New("no vipmove identity")
	ErrWrongRole  = errors.New("wrong role")
	ErrWrongName  = errors.New("wrong name")
)

// Identity is one role and, but for the coordinator, one name: a node's for an
// agent. Comparable; the zero value is nobody.
type Identity struct {
	Role, Name string
}

// Validate says what is wrong with the role or the name. A name is a DNS name
// (RFC 1123 section 2.1, lower case), as Kubernetes wants of a node's.
func (i Identity) Validate() error {
	switch i.Role {
	case RoleCoordinator:
		if i.Name != "" {
			return fmt.Errorf("identity of a coordinator has no name, got %q", i.Name)
		}
		return nil
	case RoleAgent, RoleWitness, RoleOperator:
		if !validName(i.Name) {
			return fmt.Errorf("name of %s %q is not made of lower-case letters, digits, dots and inner hyphens", i.Role, i.Name)
		}
		return nil
	default:
		return fmt.Errorf("role %q is none of coordinator, agent, witness, operator", i.Role)
	}
}

func validName(name string) bool {
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		if strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}

// URI is the SAN that carries i.
func (i Identity) URI() *url.URL {
	u := &url.URL{Scheme: scheme, Host: i.Role}
	if i.Name != "" {
		u.Path = "/" + i.Name
	}
	return u
}

// String is i in a sentence: "agent n1".
func (i Identity) String() string {
	return strings.TrimSpace(i.Role + " " + i.Name)
}

// Parse reads a URI made by URI, strictly: nothing but role and name.
func Parse(u *url.URL) (Identity, error) {
	i := Identity{Role: u.Host, Name: strings.TrimPrefix(u.Path, "/")}
	if err := i.Validate(); err != nil {
		return Identity{}, fmt.Errorf("reading identity %s: %w", u, err)
	}
	if i.URI().String() != u.String() {
		return Identity{}, fmt.Errorf("reading identity %s: not of the form %s", u, i.URI())
	}
	return i, nil
}

// FromCertificate reads the one vipmove:// URI SAN of a certificate. SANs of
// other schemes are not looked at. It verifies nothing.
func FromCertificate(c *x509.Certificate) (Identity, error) {
	var ours []*url.URL
	for _, u := range c.URIs {
		if u.Scheme == scheme {
			ours = append(ours, u)
		}
	}
	switch len(ours) {
	case 0:
		return Identity{}, fmt.Errorf("reading certificate %q: it names no role (vipmove://ROLE/NAME): %w", c.Subject, ErrNoIdentity)
	case 1:
		return Parse(ours[0])
	default:
		return Identity{}, fmt.Errorf("reading certificate %q: it names %d roles, want one: %w", c.Subject, len(ours), ErrNoIdentity)
	}
}

// FromPeer is who is at the other end of a gRPC call, from the certificate
// that the TLS handshake verified.
func FromPeer(ctx context.Context) (Identity, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Identity{}, fmt.Errorf("identifying the caller: not a gRPC call: %w", ErrNoIdentity)
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return Identity{}, fmt.Errorf("identifying the caller at %s: it shows no verified certificate: %w", p.Addr, ErrNoIdentity)
	}
	return FromCertificate(info.State.VerifiedChains[0][0])
}

// RequireRole says in a sentence that i may not do what only the given roles
// may; act completes "may not", for example "start a run". The error is
// ErrWrongRole.
func (i Identity) RequireRole(act string, roles ...string) error {
	if slices.Contains(roles, i.Role) {
		return nil
	}
	return fmt.Errorf("%s may not %s: that takes a certificate of role %s: %w", i, act, strings.Join(roles, " or "), ErrWrongRole)
}

// RequireName says in a sentence that i may not speak for another node or
// witness. The error is ErrWrongName.
func (i Identity) RequireName(name string) error {
	if i.Name == name {
		return nil
	}
	return fmt.Errorf("%s may not speak for %q: give it a certificate of that name: %w", i, name, ErrWrongName)
}
