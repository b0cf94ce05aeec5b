// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// handshake joins a client and a server, and returns what each says of it.
func handshake(t *testing.T, client, server *tls.Config) (clientErr, serverErr error) {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	done := make(chan error, 1)
	go func() {
		s := tls.Server(b, server)
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("x"))
		}
		b.Close()
		done <- err
	}()
	c := tls.Client(a, client)
	clientErr = c.Handshake()
	if clientErr == nil { // TLS 1.3: the server's verdict comes with its first data
		_, clientErr = c.Read(make([]byte, 1))
	}
	a.Close()
	return clientErr, <-done
}

func serverOf(t *testing.T, f Files) *tls.Config {
	t.Helper()
	c, err := ServerConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func clientOf(t *testing.T, f Files) *tls.Config {
	t.Helper()
	c, err := ClientConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestBothSidesVerifyEachOther(t *testing.T) {
	dir, other := newAuthority(t), newAuthority(t)
	server := newFiles(t, dir, theCoordinator, 0)
	agent := newFiles(t, dir, n1, 0)
	stranger := newFiles(t, other, n1, 0)
	strangeServer := newFiles(t, other, theCoordinator, 0)

	// showing dials with the rules of one and the certificate of another.
	showing := func(rules *tls.Config, f Files) *tls.Config {
		pair, err := readPair(f)
		if err != nil {
			t.Fatal(err)
		}
		rules.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair, nil }
		rules.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
		return rules
	}
	naked := clientOf(t, agent)
	naked.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return new(tls.Certificate), nil }
	old := clientOf(t, agent)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	elsewhere := clientOf(t, agent)
	elsewhere.ServerName = "other"

	tests := []struct {
		name                   string
		client, server         *tls.Config
		clientFails, serverSay string // empty: that side is content
	}{
		{"an agent and the coordinator", clientOf(t, agent), serverOf(t, server), "", ""},
		{"a client of another CA", showing(clientOf(t, agent), stranger), serverOf(t, server),
			"remote error: tls: unknown certificate authority", "the client's certificate is signed by another CA than ours"},
		{"a client without certificate", naked, serverOf(t, server), "remote error: tls: certificate required", "didn't provide a certificate"},
		{"a coordinator of another CA", clientOf(t, agent), showing(serverOf(t, server), strangeServer),
			"the server's certificate is signed by another CA than ours", "remote error"},
		{"an agent in the place of the coordinator", clientOf(t, agent), showing(serverOf(t, server), agent), "the server's certificate is", "remote error"},
		{"the coordinator's certificate in the place of an agent's", showing(clientOf(t, agent), server), serverOf(t, server),
			"remote error", "the client's certificate is of a role that may not take that side"},
		{"TLS 1.2", old, serverOf(t, server), "remote error", "client offered only unsupported versions"},
		{"another server name", elsewhere, serverOf(t, server), "the server's certificate is for [coordinator], not for the name other", "remote error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clientErr, serverErr := handshake(t, tt.client, tt.server)
			says(t, "client", Explain("the server's", clientErr), tt.clientFails)
			says(t, "server", Explain("the client's", serverErr), tt.serverSay)
		})
	}
}

func says(t *testing.T, who string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want %q", who, err, want)
	}
}

func TestAFolderThatCannotWorkIsRefusedAtStart(t *testing.T) {
	dir, other := newAuthority(t), newAuthority(t)
	agent, server := newFiles(t, dir, n1, 0), newFiles(t, dir, theCoordinator, 0)
	operator := newFiles(t, dir, alice, 0)
	expired := newFiles(t, dir, Identity{RoleAgent, "old"}, time.Nanosecond)
	stranger := newFiles(t, other, n1, 0)
	stranger.CA = agent.CA

	tests := []struct {
		name  string
		make  func(Files) (*tls.Config, error)
		files Files
		want  string
	}{
		{"expired", ClientConfig, expired, "using certificate " + expired.Certificate + ": the certificate expired at "},
		{"signed by another CA", ClientConfig, stranger, "using certificate " + stranger.Certificate + ": it is not signed by the CA of " + agent.CA},
		{"an agent's certificate serves", ServerConfig, agent, "agent n1 may not be used here: that takes a certificate of role coordinator"},
		{"a coordinator's certificate dials", ClientConfig, server, "coordinator may not be used here: that takes a certificate of role agent or witness or operator"},
		{"another key", ClientConfig, Files{agent.CA, agent.Certificate, operator.Key}, "reading certificate " + agent.Certificate + " with key " + operator.Key},
		{"no key", ClientConfig, Files{agent.CA, agent.Certificate, "/nowhere/k"}, "reading key /nowhere/k: no such file or directory"},
		{"no certificate", ClientConfig, Files{agent.CA, "/nowhere/c", agent.Key}, "reading certificate /nowhere/c: no such file or directory"},
		{"no CA", ClientConfig, Files{"/nowhere/ca", agent.Certificate, agent.Key}, "reading the CA's certificate /nowhere/ca: no such file or directory"},
		{"a key for a CA", ClientConfig, Files{agent.Key, agent.Certificate, agent.Key}, "reading the CA's certificate " + agent.Key + ": it has no PEM block"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := tt.make(tt.files); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v\nwant it to say %s", err, tt.want)
			}
		})
	}
	if got, err := FromFiles(operator); err != nil || got != alice {
		t.Errorf("FromFiles = %v, %v, want %v", got, err, alice)
	}
}

func TestExplainLeavesOtherErrorsAlone(t *testing.T) {
	if Explain("the", nil) != nil {
		t.Error("nil became an error")
	}
	plain := errors.New("x")
	if got := Explain("the", plain); got != plain {
		t.Errorf("%v became %v", plain, got)
	}
	future := x509.CertificateInvalidError{Reason: x509.Expired, Cert: &x509.Certificate{
		NotBefore: time.Now().Add(time.Hour), NotAfter: time.Now().Add(2 * time.Hour)}}
	got := Explain("the", future)
	says(t, "a clock behind", got, "the certificate is not valid before ")
	if !errors.As(got, new(x509.CertificateInvalidError)) {
		t.Error("the error is no longer what it was")
	}
}

func TestANewCertificateIsTakenUpAndABrokenOneIsNot(t *testing.T) {
	dir, again := newAuthority(t), t.TempDir()
	f := newFiles(t, dir, n1, time.Hour)
	server := newFiles(t, dir, theCoordinator, 0)
	client := clientOf(t, f)
	serial := func() string {
		t.Helper()
		c, err := client.GetClientCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf.SerialNumber.String()
	}
	first := serial()

	for _, name := range []string{"ca.crt", "ca.key"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(again, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	renewed := newFiles(t, again, n1, 2*time.Hour)
	move := func(from, to string, modified time.Time) {
		t.Helper()
		if err := os.Chtimes(from, modified, modified); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	later := time.Now().Add(time.Minute)
	move(renewed.Certificate, f.Certificate, later)
	if got := serial(); got != first {
		t.Error("a certificate without its key yet was taken up")
	}
	move(renewed.Key, f.Key, later)
	if got := serial(); got == first {
		t.Error("the new certificate was not taken up")
	}
	if clientErr, serverErr := handshake(t, client, serverOf(t, server)); clientErr != nil || serverErr != nil {
		t.Errorf("with the new certificate: %v, %v", clientErr, serverErr)
	}
	if err := os.Remove(f.Certificate); err != nil {
		t.Fatal(err)
	}
	if got := serial(); got == first {
		t.Error("the certificate before last came back")
	}
}
