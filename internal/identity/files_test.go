// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	theCoordinator = Identity{Role: RoleCoordinator}
	n1             = Identity{RoleAgent, "n1"}
	alice          = Identity{RoleOperator, "alice"}
)

func newAuthority(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pki")
	if err := Init(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func newFiles(t testing.TB, dir string, i Identity, validity time.Duration) Files {
	t.Helper()
	f, err := Issue(dir, i, nil, nil, validity)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFilesAreForTheirOwnerOnly(t *testing.T) {
	dir := newAuthority(t)
	newFiles(t, dir, theCoordinator, 0)
	newFiles(t, dir, n1, 0)
	var got []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != 0o600 {
			t.Errorf("%s has mode %s, want 0600", e.Name(), info.Mode())
		}
		got = append(got, e.Name())
	}
	want := []string{"agent-n1.crt", "agent-n1.key", "ca.crt", "ca.key", "coordinator.crt", "coordinator.key"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v, want 0700", info.Mode(), err)
	}
}

func TestNothingIsOverwritten(t *testing.T) {
	for _, victim := range []string{"ca.crt", "ca.key", "agent-n1.crt", "agent-n1.key"} {
		t.Run(victim, func(t *testing.T) {
			dir := t.TempDir()
			act := func() error { return Init(dir) }
			if strings.HasPrefix(victim, "agent") {
				if err := Init(dir); err != nil {
					t.Fatal(err)
				}
				act = func() error { _, err := Issue(dir, n1, nil, nil, 0); return err }
			}
			path := filepath.Join(dir, victim)
			if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadDir(dir)
			err := act()
			if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), path) {
				t.Errorf("err = %v, want fs.ErrExist that names %s", err, path)
			}
			if text, _ := os.ReadFile(path); string(text) != "mine" {
				t.Errorf("%s was overwritten", path)
			}
			if after, _ := os.ReadDir(dir); len(after) != len(before) {
				t.Errorf("%d files before, %d after: a half pair is left", len(before), len(after))
			}
		})
	}
}

func TestIssueSaysWhatIsWrongAndNamesTheFile(t *testing.T) {
	dir := newAuthority(t)
	garbled := newAuthority(t)
	if err := os.WriteFile(filepath.Join(garbled, "ca.crt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	swapped, other := newAuthority(t), newAuthority(t)
	key, err := os.ReadFile(filepath.Join(other, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(swapped, "ca.key"), key, 0o600); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	tests := []struct {
		name, dir string
		who       Identity
		want      string
	}{
		{"no CA", empty, n1, "issuing a certificate for agent n1: reading " + empty + "/ca.crt: no such file or directory: make a CA first (vipmove pki init)"},
		{"a garbled CA", garbled, n1, `issuing a certificate for agent n1: reading ` + garbled + `/ca.crt: it has no PEM block "CERTIFICATE"`},
		{"another CA's key", swapped, n1, "issuing a certificate for agent n1: " + swapped + "/ca.key is not the key of " + swapped + "/ca.crt"},
		{"no role", dir, Identity{"root", "x"}, `issuing a certificate: role "root" is none of coordinator, agent, witness, operator`},
		{"a path for a name", dir, Identity{RoleAgent, "../ca"}, `issuing a certificate: name of agent "../ca" is not made of lower-case letters, digits, dots and inner hyphens`},
		{"a named coordinator", dir, Identity{RoleCoordinator, "c1"}, `issuing a certificate: identity of a coordinator has no name, got "c1"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Issue(tt.dir, tt.who, nil, nil, 0); err == nil || err.Error() != tt.want {
				t.Errorf("err = %v\nwant  %s", err, tt.want)
			}
		})
	}
}

func TestWhatIsIssuedIsInTheCertificate(t *testing.T) {
	dir := newAuthority(t)
	f, err := Issue(dir, theCoordinator, []string{"vipmove.example"}, []netip.Addr{netip.MustParseAddr("192.0.2.2")}, 48*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c, err := readCertificate(f.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{ServerName, "vipmove.example"}, c.DNSNames); diff != "" {
		t.Errorf("DNS names (-want +got):\n%s", diff)
	}
	if len(c.IPAddresses) != 1 || c.IPAddresses[0].String() != "192.0.2.2" {
		t.Errorf("addresses = %v", c.IPAddresses)
	}
	if left := time.Until(c.NotAfter); left < 47*time.Hour || left > 48*time.Hour {
		t.Errorf("valid for %s, want 48 h", left)
	}
	long := newFiles(t, dir, n1, 100*365*24*time.Hour)
	ca, err := readCertificate(long.CA)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := readCertificate(long.Certificate); err != nil || c.NotAfter.After(ca.NotAfter) {
		t.Errorf("a certificate outlives its CA: %v, %v", c.NotAfter, err)
	}
}
