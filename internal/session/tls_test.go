// SPDX-License-Identifier: Apache-2.0

package session

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/vipmove/vipmove/internal/identity"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// authority is a CA in a folder of its own.
func authority(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := identity.Init(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func issue(t *testing.T, dir string, i identity.Identity) identity.Files {
	t.Helper()
	files, err := identity.Issue(dir, i, nil, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// secured serves sessions over TLS and sends who came to who.
func secured(t *testing.T, cfg *tls.Config, who chan<- identity.Identity) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &coordinator{session: welcoming(welcome(), func(h *vipmovev1.Hello, s serverStream) error {
		i, err := identity.FromPeer(s.Context())
		if err != nil {
			return err
		}
		select {
		case who <- i:
		default:
		}
		return holding(h, s)
	})}
	c.start(t, l, grpc.Creds(credentials.NewTLS(cfg)))
	return l.Addr().String()
}

func TestTheCoordinatorKnowsWhoCameByMutualTLS(t *testing.T) {
	dir := authority(t)
	server, err := identity.ServerConfig(issue(t, dir, identity.Identity{Role: identity.RoleCoordinator}))
	if err != nil {
		t.Fatal(err)
	}
	n1 := identity.Identity{Role: identity.RoleAgent, Name: "n1"}
	client, err := identity.ClientConfig(issue(t, dir, n1))
	if err != nil {
		t.Fatal(err)
	}
	who := make(chan identity.Identity, 1)
	cfg := config(nil, secured(t, server, who))
	cfg.dial, cfg.TLS, cfg.ServerName = nil, client, identity.ServerName
	run(t, New(cfg, &observer{}))
	if got := <-who; got != n1 {
		t.Errorf("the coordinator sees %s, want %s", got, n1)
	}
}

func TestARefusedCertificateIsASentenceOnTheSideThatDialled(t *testing.T) {
	dir, other := authority(t), authority(t)
	coordinatorOnly := identity.Identity{Role: identity.RoleCoordinator}
	n1 := identity.Identity{Role: identity.RoleAgent, Name: "n1"}
	ours := issue(t, dir, n1)
	theirs := issue(t, other, n1)
	mixed := identity.Files{CA: ours.CA, Certificate: theirs.Certificate, Key: theirs.Key}

	server, err := identity.ServerConfig(issue(t, dir, coordinatorOnly))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		client func(t *testing.T) *tls.Config
		want   string
	}{{
		name: "the coordinator is of another CA",
		client: func(t *testing.T) *tls.Config {
			c, err := identity.ClientConfig(theirs)
			if err != nil {
				t.Fatal(err)
			}
			return c
		},
		want: "the coordinator's certificate is signed by another CA than ours",
	}, {
		name: "the agent is of another CA",
		client: func(t *testing.T) *tls.Config {
			c, err := identity.ClientConfig(ours)
			if err != nil {
				t.Fatal(err)
			}
			pair, err := tls.LoadX509KeyPair(mixed.Certificate, mixed.Key)
			if err != nil {
				t.Fatal(err)
			}
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
			return c
		},
		want: "the coordinator refused this program's certificate: tls:",
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := config(nil, secured(t, server, nil))
			cfg.dial, cfg.TLS, cfg.ServerName = nil, tt.client(t), identity.ServerName
			cfg.setDefaults()
			s := New(cfg, &observer{})
			// An alert can be lost to the reset behind it: a later attempt hears it.
			var err error
			for range 20 {
				if _, err = s.attempt(t.Context(), cfg.Coordinators[0]); strings.Contains(err.Error(), tt.want) {
					return
				}
			}
			t.Errorf("err = %v, want it to say %q", err, tt.want)
		})
	}
}
