// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vipmove/vipmove/agent/node"
	"github.com/vipmove/vipmove/internal/identity"
)

func noEnv(string) string { return "" }

// good is a command line that lacks nothing.
func good(more ...string) []string {
	return append([]string{"--node", "n1", "--coordinator", "192.0.2.2:7443", "--ca", "ca.crt", "--cert", "n1.crt", "--key", "n1.key"}, more...)
}

// without is good without one flag and its value.
func without(flag string) []string {
	args := good()
	for i, a := range args {
		if a == flag {
			return append(args[:i:i], args[i+2:]...)
		}
	}
	panic(flag)
}

func TestAMistakeInTheCallIsExitTwoAndSaysWhatToDo(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"no node":                      {without("--node"), "--node, or in $NODE_NAME"},
		"no coordinator":               {without("--coordinator"), "--coordinator host:port"},
		"no certificate":               {without("--cert"), "vipmove pki issue"},
		"no CA":                        {without("--ca"), "--ca, --cert and --key"},
		"no key":                       {without("--key"), "--ca, --cert and --key"},
		"a coordinator as name":        {good("--coordinator", "192.0.2.2"), "want host:port"},
		"a port as listen":             {good("--listen", "9742"), "want host:port"},
		"act without a range":          {good("--act"), "--act needs --allow-prefix"},
		"a range with a typo":          {good("--act", "--allow-prefix", "192.0.2.0/33"), `"192.0.2.0/33"`},
		"a bare address":               {good("--act", "--allow-prefix", "192.0.2.50"), "192.0.2.50/32"},
		"a range with host bits (C41)": {good("--act", "--allow-prefix", "192.0.2.200/28"), "192.0.2.192/28"},
		"no changes":                   {good("--max-changes", "0"), "between 1 and 100"},
		"too many changes":             {good("--max-changes", "101"), "between 1 and 100"},
		"no number":                    {good("--max-changes", "x"), "max-changes"},
		"an empty list":                {good("--allow-link", "a,,b"), "empty value"},
		"no state directory":           {good("--state-dir", ""), "--state-dir"},
		"an unknown flag":              {good("--force"), "force"},
		"an argument":                  {good("now"), `"now"`},
		"a wrong command":              {[]string{"reset-terms"}, "reset-terms"},
		"an argument too many":         {[]string{"reset-term", "now"}, `"now"`},
		"a flag of the other":          {[]string{"reset-term", "--act"}, "act"},
		"a log level":                  {good("--log-level", "loud"), "debug, info, warn or error"},
		"a log format":                 {good("--log-format", "xml"), "text or json"},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), tt.args, noEnv, &out, &errs); code != exitUsage {
			t.Errorf("%s: exit code %d, want %d", name, code, exitUsage)
		}
		if !strings.Contains(errs.String(), tt.says) || !strings.HasPrefix(errs.String(), program+": ") {
			t.Errorf("%s: says %q, want %q", name, errs.String(), tt.says)
		}
		if out.Len() > 0 {
			t.Errorf("%s: on stdout: %s", name, &out)
		}
	}
}

func TestHelpAndVersionAreForStdoutAndExitZero(t *testing.T) {
	for _, tt := range []struct {
		args []string
		says []string
	}{
		{[]string{"--help"}, []string{"Example", "--act --allow-prefix", "--max-changes NUMBER", "$NODE_NAME", "reset-term", "paused"}},
		{[]string{"-h"}, []string{"--node NAME"}},
		{[]string{"--version"}, []string{"vipmove-agent "}},
		{[]string{"reset-term", "--help"}, []string{"--state-dir DIRECTORY"}},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), tt.args, noEnv, &out, &errs); code != 0 || errs.Len() > 0 {
			t.Errorf("%v: exit code %d, stderr %q", tt.args, code, &errs)
		}
		for _, want := range tt.says {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%v does not say %q:\n%s", tt.args, want, &out)
			}
		}
	}
}

func TestEveryFlagIsInTheHelpAndHasAWord(t *testing.T) {
	var out bytes.Buffer
	if code := run(t.Context(), []string{"--help"}, noEnv, &out, &bytes.Buffer{}); code != 0 {
		t.Fatal(code)
	}
	for _, name := range []string{
		"node", "coordinator", "server-name", "ca", "cert", "key", "state-dir", "listen", "allow-prefix", "allow-link",
		"act", "max-changes", "control-plane", "interface", "log-format", "log-level", "version",
	} {
		if !strings.Contains(out.String(), "\n  --"+name) {
			t.Errorf("the help has no --%s", name)
		}
	}
}

func TestFlagsBecomeThePolicy(t *testing.T) {
	dir := t.TempDir()
	files := issue(t, dir, identity.Identity{Role: identity.RoleAgent, Name: "n1"})
	env := func(name string) string { return map[string]string{"NODE_NAME": "n1"}[name] }
	args := []string{
		"--coordinator", "192.0.2.2:7443,192.0.2.3:7443", "--coordinator", "192.0.2.2:7443", "--ca", files.CA, "--cert", files.Certificate, "--key", files.Key,
		"--act", "--allow-prefix", "192.0.2.0/24", "--allow-prefix", "198.51.100.50/32", "--allow-link", "kube-ipvs0", "--allow-link", "eth1",
		"--interface", "eth0", "--control-plane", "--max-changes", "3",
	}
	o, err := parse(args, env, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := o.config()
	if err != nil {
		t.Fatal(err)
	}
	if got.TLS == nil || got.TLS.ServerName != identity.ServerName {
		t.Errorf("TLS %v", got.TLS)
	}
	got.TLS = nil
	want := node.Config{
		Name: "n1", Version: "devel", ControlPlane: true, StateDir: defaultStateDir, Listen: defaultListen,
		Coordinators: []string{"192.0.2.2:7443", "192.0.2.3:7443"}, ServerName: "coordinator", Interfaces: []string{"eth0"},
		Policy: node.Policy{
			Act: true, Links: []string{"kube-ipvs0", "eth1"}, MaxChanges: 3,
			Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.50/32")},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

// issue makes a CA and one certificate in dir.
func issue(t *testing.T, dir string, i identity.Identity) identity.Files {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "ca.crt")); err != nil {
		if err := identity.Init(dir); err != nil {
			t.Fatal(err)
		}
	}
	files, err := identity.Issue(dir, i, nil, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestAnotherNodesCertificateIsRefusedBeforeAnythingStarts(t *testing.T) {
	dir := t.TempDir()
	for name, i := range map[string]identity.Identity{
		"another node": {Role: identity.RoleAgent, Name: "n2"},
		"a witness":    {Role: identity.RoleWitness, Name: "n1"},
	} {
		files := issue(t, dir, i)
		args := []string{"--node", "n1", "--coordinator", "192.0.2.2:7443", "--ca", files.CA, "--cert", files.Certificate, "--key", files.Key}
		var errs bytes.Buffer
		if code := run(t.Context(), args, noEnv, &bytes.Buffer{}, &errs); code != exitUsage || !strings.Contains(errs.String(), i.String()) {
			t.Errorf("%s: exit code %d, %s", name, code, &errs)
		}
	}
	var errs bytes.Buffer
	if code := run(t.Context(), good(), noEnv, &bytes.Buffer{}, &errs); code != exitError || !strings.Contains(errs.String(), "n1.crt") && !strings.Contains(errs.String(), "ca.crt") {
		t.Errorf("no certificate there: exit code %d, %s", code, &errs)
	}
}

func TestResetTermLeavesTheRequestForTheAgent(t *testing.T) {
	dir := t.TempDir()
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"reset-term", "--state-dir", dir}, noEnv, &out, &errs); code != 0 || errs.Len() > 0 {
		t.Fatalf("exit code %d, %s", code, &errs)
	}
	d, err := node.OpenDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if asked, err := d.ResetRequested(); !asked || err != nil {
		t.Errorf("requested %v, %v", asked, err)
	}
	missing := filepath.Join(dir, "missing")
	if code := run(t.Context(), []string{"reset-term", "--state-dir", missing}, noEnv, &out, &errs); code != exitError || !strings.Contains(errs.String(), missing) {
		t.Errorf("no such directory: exit code %d, %s", code, &errs)
	}
}
