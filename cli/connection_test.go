// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vipmove/vipmove/internal/identity"
)

func TestACertificateThatIsNotTrustedIsExitCode7(t *testing.T) {
	fake := &fakeControl{nodes: sevenNodes()}
	env := fake.serve(t)
	ours, theirs := env[envPKI], shortDir(t)
	other := issue(t, theirs, identity.Identity{Role: identity.RoleOperator, Name: "test"})
	agent := issue(t, ours, identity.Identity{Role: identity.RoleAgent, Name: "n1"})
	coordinator := identity.FilesIn(ours, identity.Identity{Role: identity.RoleCoordinator})
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"the coordinator's is of another CA": {[]string{"--pki", theirs}, "signed by another CA"},
		"ours is of another CA": {
			[]string{"--cert", other.Certificate, "--key", other.Key}, "not signed by the CA",
		},
		"ours is of the coordinator's role": {
			[]string{"--cert", coordinator.Certificate, "--key", coordinator.Key}, "coordinator may not be used here",
		},
		"the coordinator has another name": {[]string{"--server-name", "elsewhere"}, "elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			r := command(t, env, append([]string{"nodes"}, c.args...)...)
			r.want(t, exitNotAllowed, c.says)
			r.noData(t)
		})
	}
	if len(fake.requests()) != 0 {
		t.Errorf("the coordinator took a request")
	}
	// An agent's certificate is trusted, and not the CLI's to judge: the coordinator refuses the call.
	command(t, env, "nodes", "--cert", agent.Certificate, "--key", agent.Key).want(t, exitDone)
}

// A server of TLS 1.3 refuses a client's certificate only after the client's handshake has ended.
func TestACertificateThatTheCoordinatorRefusesIsExitCode7(t *testing.T) {
	fake := &fakeControl{}
	env := fake.serve(t)
	theirs := shortDir(t)
	operator := issue(t, theirs, identity.Identity{Role: identity.RoleOperator, Name: "test"})
	// Both CAs are trusted by us, one only by the coordinator.
	both := filepath.Join(theirs, "both.crt")
	var bundle []byte
	for _, dir := range []string{theirs, env[envPKI]} {
		ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		bundle = append(bundle, ca...)
	}
	if err := os.WriteFile(both, bundle, 0o600); err != nil {
		t.Fatal(err)
	}
	r := command(t, env, "nodes", "--ca", both, "--cert", operator.Certificate, "--key", operator.Key)
	r.want(t, exitNotAllowed, "the coordinator does not accept our certificate", "--cert "+operator.Certificate)
	r.noData(t)
}

func TestACoordinatorThatIsNotThereIsNamedWithTheFlagToCheck(t *testing.T) {
	env := (&fakeControl{}).serve(t)
	gone := filepath.Join(t.TempDir(), "gone.sock")
	for _, address := range []string{"unix:" + gone, "127.0.0.1:1"} {
		r := command(t, env, "nodes", "--coordinator", address)
		r.want(t, exitFailure, "listing nodes: no coordinator reached at "+address, "check --coordinator")
		if strings.Contains(r.stderr, "desc =") {
			t.Errorf("gRPC's wrapping is shown: %s", r.stderr)
		}
	}
	// It may be there later, so a run that was not sent did not start, and a person should not have to wonder.
	r := command(t, env, "run", testVIP, "--plan", "3f1c", "--coordinator", "unix:"+gone)
	r.want(t, exitFailure)
	if strings.Contains(r.stderr, "may have started") {
		t.Errorf("nothing was sent, but: %s", r.stderr)
	}
}

func TestConnectionFlagsAndEnvironment(t *testing.T) {
	env := (&fakeControl{nodes: sevenNodes()}).serve(t)
	pki, coordinator := env[envPKI], env[envCoordinator]
	files := identity.FilesIn(pki, identity.Identity{Role: identity.RoleOperator, Name: "test"})
	several := shortDir(t)
	issue(t, several, identity.Identity{Role: identity.RoleOperator, Name: "one"})
	issue(t, several, identity.Identity{Role: identity.RoleOperator, Name: "two"})
	for _, c := range []struct {
		name string
		env  map[string]string
		args []string
		code int
		says string
	}{
		{"nothing", nil, nil, exitUsage, "no coordinator given: set --coordinator host:port or unix:PATH, or VIPMOVE_COORDINATOR"},
		{"no certificate", map[string]string{envCoordinator: coordinator}, nil, exitUsage, "set --pki DIR (or VIPMOVE_PKI)"},
		{"files by flags", nil, []string{"--coordinator", coordinator, "--ca", files.CA, "--cert", files.Certificate, "--key", files.Key}, exitDone, ""},
		{"files by environment", map[string]string{envCoordinator: coordinator, envCA: files.CA, envCert: files.Certificate, envKey: files.Key}, nil, exitDone, ""},
		{"a flag is before the environment", map[string]string{envCoordinator: "unix:/nowhere", envPKI: pki}, []string{"--coordinator", coordinator}, exitDone, ""},
		{"key without certificate", env, []string{"--key", files.Key}, exitUsage, "--cert and --key belong together"},
		{"no operator in the directory", env, []string{"--pki", t.TempDir()}, exitUsage, "no operator-*.crt in it"},
		{"two operators in the directory", env, []string{"--pki", several}, exitUsage, "choose with --cert and --key"},
		{"no such file", env, []string{"--ca", "/nowhere/ca.crt"}, exitUsage, "/nowhere/ca.crt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			command(t, c.env, append([]string{"nodes"}, c.args...)...).want(t, c.code, c.says)
		})
	}
}
