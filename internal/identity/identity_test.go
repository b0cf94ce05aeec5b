// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc/peer"
	"pgregory.net/rapid"
)

func uri(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestEveryRoleHasItsURI(t *testing.T) {
	for want, i := range map[string]Identity{
		"vipmove://coordinator":             {Role: RoleCoordinator},
		"vipmove://agent/n1":                {Role: RoleAgent, Name: "n1"},
		"vipmove://agent/node-1.example.de": {Role: RoleAgent, Name: "node-1.example.de"},
		"vipmove://witness/client":          {Role: RoleWitness, Name: "client"},
		"vipmove://operator/alice":          {Role: RoleOperator, Name: "alice"},
	} {
		if got := i.URI().String(); got != want {
			t.Errorf("URI of %s = %s, want %s", i, got, want)
		}
		if got, err := Parse(uri(t, want)); err != nil || got != i {
			t.Errorf("Parse(%s) = %v, %v", want, got, err)
		}
	}
}

func TestParseTakesNothingButRoleAndName(t *testing.T) {
	for _, s := range []string{
		"vipmove://", "vipmove:", "vipmove:agent/n1", "vipmove:///agent/n1", "vipmove://root", "vipmove://agent",
		"vipmove://agent/", "vipmove://agent/n1/", "vipmove://agent/n1/x", "vipmove://agent//n1", "vipmove://coordinator/",
		"vipmove://coordinator/c1", "vipmove://agent/N1", "vipmove://agent/n_1", "vipmove://agent/-n1", "vipmove://agent/n1-",
		"vipmove://agent/n1.", "vipmove://agent/n1%2e", "vipmove://agent/..", "vipmove://agent/n1?x=1", "vipmove://agent/n1#x",
		"vipmove://agent:1/n1", "vipmove://u@agent/n1", "vipmove://Agent/n1", "spiffe://agent/n1", "vipmove://agent/n%31",
		"vipmove://agent/" + strings.Repeat("a", 64), "vipmove://agent/" + strings.Repeat("a.", 127) + "a",
	} {
		if got, err := Parse(uri(t, s)); err == nil {
			t.Errorf("Parse(%s) = %v, want an error", s, got)
		}
	}
}

func TestParseIsTheInverseOfURIProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Identity{
			Role: rapid.SampledFrom([]string{RoleAgent, RoleWitness, RoleOperator}).Draw(t, "role"),
			Name: rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?){0,3}`).Draw(t, "name"),
		}
		if got, err := Parse(want.URI()); err != nil || got != want {
			t.Fatalf("Parse(%s) = %v, %v", want.URI(), got, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("vipmove://agent/n1")
	f.Add("vipmove://coordinator")
	f.Add("vipmove://agent/../operator/root")
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.Parse(s)
		if err != nil {
			return
		}
		i, err := Parse(u)
		if err != nil {
			return
		}
		if i.Validate() != nil || i.URI().String() != u.String() || strings.ContainsAny(i.Name, "/\\%") {
			t.Errorf("Parse(%q) = %#v", s, i)
		}
	})
}

func TestACertificateNamesExactlyOneRole(t *testing.T) {
	agent, operator, spiffe := uri(t, "vipmove://agent/n1"), uri(t, "vipmove://operator/alice"), uri(t, "spiffe://x/y")
	tests := []struct {
		name string
		uris []*url.URL
		want Identity
		err  error
	}{
		{"one", []*url.URL{agent}, Identity{RoleAgent, "n1"}, nil},
		{"one beside another scheme", []*url.URL{spiffe, agent}, Identity{RoleAgent, "n1"}, nil},
		{"none", nil, Identity{}, ErrNoIdentity},
		{"another scheme only", []*url.URL{spiffe}, Identity{}, ErrNoIdentity},
		{"two", []*url.URL{agent, operator}, Identity{}, ErrNoIdentity},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := FromCertificate(&x509.Certificate{URIs: tt.uris})
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("FromCertificate = %v, %v, want %v, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

func TestWithoutAVerifiedCertificateThereIsNoIdentity(t *testing.T) {
	if _, err := FromPeer(t.Context()); !errors.Is(err, ErrNoIdentity) {
		t.Errorf("no call: %v", err)
	}
	ctx := peer.NewContext(t.Context(), &peer.Peer{})
	if _, err := FromPeer(ctx); !errors.Is(err, ErrNoIdentity) {
		t.Errorf("a call without TLS: %v", err)
	}
}

func TestWhoMayNotIsToldWhyInASentence(t *testing.T) {
	n2 := Identity{RoleAgent, "n2"}
	err := n2.RequireRole("start a run", RoleOperator)
	if got, want := err.Error(), "agent n2 may not start a run: that takes a certificate of role operator: wrong role"; got != want || !errors.Is(err, ErrWrongRole) {
		t.Errorf("err = %v, want %s", err, want)
	}
	err = n2.RequireName("n1")
	if got, want := err.Error(), `agent n2 may not speak for "n1": give it a certificate of that name: wrong name`; got != want || !errors.Is(err, ErrWrongName) {
		t.Errorf("err = %v, want %s", err, want)
	}
	if err := errors.Join(n2.RequireRole("x", RoleWitness, RoleAgent), n2.RequireName("n2")); err != nil {
		t.Errorf("err = %v, want none", err)
	}
}
