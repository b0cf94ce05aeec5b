// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vipmove/vipmove/internal/identity"
	"github.com/vipmove/vipmove/witness"
)

func TestAWitnessStartsWithNothingThatCannotWork(t *testing.T) {
	dir := shortDir(t)
	issue(t, dir, identity.Identity{Role: identity.RoleWitness, Name: "lan1"})
	agent := issue(t, dir, identity.Identity{Role: identity.RoleAgent, Name: "lan1"})
	env := map[string]string{envPKI: dir, envCoordinator: "unix:/nowhere"}
	const target = "--target http://192.0.2.50/ --name lan1 "
	for _, c := range []struct {
		line string
		code int
		says string
	}{
		{"", exitUsage, "--target is missing"},
		{"--target 192.0.2.50", exitUsage, "want http://VIP"},
		{"--target https://192.0.2.50/", exitUsage, "want http://VIP"},
		{"--target http://gateway/", exitUsage, "not an IPv4 address"},
		{"--target http://[2001:db8::50]/", exitUsage, "IPv6 is not supported yet"},
		{"--target tcp://192.0.2.50", exitUsage, "want a port"},
		{"--target tcp://192.0.2.50:0", exitUsage, "want a port"},
		{"--target tcp://192.0.2.50:80/path", exitUsage, "a TCP target has no path"},
		{"--target http://192.0.2.50:99999/", exitUsage, "want a port"},
		{target + "--rate 0", exitUsage, "--rate 0"},
		{target + "--rate 5000", exitUsage, "--rate 5000"},
		{target + "--request-timeout 0s", exitUsage, "want a time above zero"},
		{target + "--log-level loud", exitUsage, "log level"},
		{target + "--coordinator here", exitUsage, "want host:port"},
		{target + "--pki /nowhere", exitUsage, "/nowhere/ca.crt"},
		{"--target http://192.0.2.50/ --name Lan_1", exitUsage, "give --name"},
		{target + "--cert " + agent.Certificate + " --key " + agent.Key, exitNotAllowed, "it is the certificate of agent lan1"},
		{target + "now", exitUsage, "no argument is wanted"},
	} {
		r := command(t, env, append([]string{"witness"}, strings.Fields(c.line)...)...)
		r.want(t, c.code, c.says)
		r.noData(t)
	}
	command(t, nil, strings.Fields("witness "+target)...).want(t, exitUsage, "no coordinator given")
	command(t, map[string]string{envCoordinator: "192.0.2.2:7443"}, strings.Fields("witness "+target)...).want(t, exitUsage, "pki issue witness lan1")
}

func TestAWitnessAsksWhatItsTargetSays(t *testing.T) {
	for _, c := range []struct {
		options witnessOptions
		want    witness.Target
	}{
		{witnessOptions{target: "http://192.0.2.50/", status: 200}, witness.Target{Path: "/", Status: 200}},
		{
			witnessOptions{target: "http://192.0.2.50:8080/health?deep=1", host: "shop.example", status: 204, marker: "ok"},
			witness.Target{Path: "/health?deep=1", Host: "shop.example", Status: 204, Marker: "ok"},
		},
		{witnessOptions{target: "http://192.0.2.50", status: 200}, witness.Target{Path: "/", Status: 200}},
		{witnessOptions{target: "tcp://192.0.2.50:5432"}, witness.Target{TCP: true}},
	} {
		c.options.timeout, c.want.Timeout = time.Second, time.Second
		got, err := c.options.parseTarget()
		if err != nil {
			t.Errorf("%s: %v", c.options.target, err)
		}
		if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(witness.Target{}, "Address")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.options.target, diff)
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%s: %v", c.options.target, err)
		}
	}
}

// The lab's witness is this very command: what the lab passes must be flags it has.
func TestTheLabsWitnessIsStartedWithFlagsThatExist(t *testing.T) {
	root := newApp(Env{Args: []string{"vipmove"}}).rootCommand()
	args := testStage(t).witnessArgs("192.0.2.2:7443")
	cmd, rest, err := root.Find(args)
	if err != nil || cmd.Name() != "witness" {
		t.Fatalf("%q finds %v: %v", args, cmd, err)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Errorf("%q: %v", args, err)
	}
	if got := cmd.Flags().Lookup("rate").Value.String(); got != "100" {
		t.Errorf("rate is %s, want 100", got)
	}
}
