// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/vipmove/vipmove/internal/identity"
)

// defaultPKI is the directory of pki where neither flag nor environment names one.
const defaultPKI = "pki"

func (a *app) pkiCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pki",
		Short: "make the certificate authority and the certificates for mutual TLS",
		Long: `pki makes a certificate authority of your own, and a certificate for everyone who takes part: the coordinator, an agent for each
node, witnesses, operators. A certificate names its role and its name; the coordinator holds everyone to theirs.`,
		Args: a.noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.pkiInitCommand(), a.pkiIssueCommand())
	return cmd
}

// pkiDir adds the flag for the directory; env and a default stand behind it.
func (a *app) pkiDir(cmd *cobra.Command) func() string {
	var dir string
	cmd.Flags().StringVar(&dir, "pki", "", "directory (env "+envPKI+", else ./"+defaultPKI+")")
	return func() string {
		if dir == "" {
			dir = a.env.Getenv(envPKI)
		}
		if dir == "" {
			dir = defaultPKI
		}
		return dir
	}
}

func (a *app) pkiInitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init",
		Short: "make a certificate authority: ca.crt and ca.key",
		Long: `init makes a certificate authority in the directory, valid for ten years, readable by its owner alone. It overwrites nothing.
Keep ca.key where only you can read it: whoever has it can give orders.`,
		Example: a.examples("pki init --pki ./pki", "ca.crt and ca.key"),
		Args:    noArguments,
	}
	dir := a.pkiDir(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := identity.Init(dir()); err != nil {
			return keepExisting(err)
		}
		ca := identity.FilesIn(dir(), identity.Identity{Role: identity.RoleCoordinator}).CA
		return writeAll(a.env.Stdout, []byte(ca+"\n"))
	}
	return cmd
}

func (a *app) pkiIssueCommand() *cobra.Command {
	var names, addresses []string
	var validity time.Duration
	cmd := &cobra.Command{
		Use:   "issue ROLE [NAME]",
		Short: "issue a certificate: coordinator, agent NODE, witness NAME, operator NAME",
		Long: `issue makes a key and a certificate that the authority in the directory signs: ROLE-NAME.crt and .key, or coordinator.crt and .key,
readable by their owner alone. It overwrites nothing, and prints the two paths.

ROLE is one of
  coordinator      the coordinator; no name
  agent NODE       the agent on that node, and on no other
  witness NAME     a witness outside the cluster
  operator NAME    a person who gives orders; runs are recorded under the name`,
		Example: a.examples(
			"pki issue coordinator --dns vipmove.example", "the coordinator",
			"pki issue agent n1", "the agent on n1",
			"pki issue operator alice", "alice; --pki finds it"),
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("ROLE is missing: coordinator, agent NODE, witness NAME or operator NAME")
			case len(args) > 2:
				return usagef("ROLE and one NAME are wanted, got %d arguments", len(args))
			}
			return nil
		},
	}
	dir := a.pkiDir(cmd)
	cmd.Flags().StringArrayVar(&names, "dns", nil, "further DNS name in a coordinator's certificate, repeatable")
	cmd.Flags().StringArrayVar(&addresses, "ip", nil, "IP address in a coordinator's certificate, repeatable")
	cmd.Flags().DurationVar(&validity, "validity", identity.DefaultValidity, "how long it is valid, never longer than the authority")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		who := identity.Identity{Role: args[0]}
		if len(args) == 2 {
			who.Name = args[1]
		}
		if err := who.Validate(); err != nil {
			return usagef("issuing a certificate: %w", err)
		}
		if who.Role != identity.RoleCoordinator && len(names)+len(addresses) > 0 {
			return usagef("--dns and --ip are for the coordinator's certificate: nobody dials %s", who)
		}
		if validity <= 0 {
			return usagef("--validity %s: want a time above zero", validity)
		}
		ips, err := parseAddresses(addresses)
		if err != nil {
			return err
		}
		files, err := identity.Issue(dir(), who, names, ips, validity)
		if err != nil {
			return keepExisting(err)
		}
		return writeAll(a.env.Stdout, []byte(files.Certificate+"\n"+files.Key+"\n"))
	}
	return cmd
}

func parseAddresses(texts []string) ([]netip.Addr, error) {
	var ips []netip.Addr
	for _, text := range texts {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return nil, usagef("--ip %q: not an IP address", text)
		}
		ips = append(ips, ip)
	}
	return ips, nil
}

// keepExisting says of a file that is there that it was kept: nothing was changed.
func keepExisting(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return &exitError{code: exitPreconditions, err: fmt.Errorf("%w; it was kept: remove it yourself if you mean to replace it", err)}
	}
	return err
}
