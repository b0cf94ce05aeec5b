// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/vipmove/vipmove/internal/identity"
	"github.com/vipmove/vipmove/lab"
	"github.com/vipmove/vipmove/witness"
)

// stageOptions are the flags of demo and lab up.
type stageOptions struct {
	nodes, clusterIPs int
	rate              float64
	serveNeedsAddress bool
	noAnnouncer       bool
	dir               string
	verbose           bool
}

func (o *stageOptions) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&o.nodes, "nodes", 7, "number of nodes")
	f.IntVar(&o.clusterIPs, "clusterips", 44, "other addresses on each node's kube-ipvs0")
	f.Float64Var(&o.rate, "rate", 100, "requests a second from the client, each over a new connection")
	f.BoolVar(&o.serveNeedsAddress, "serve-needs-address", false, "nodes serve only while they hold the address: the run must undo its first step, exit code 4")
	f.BoolVar(&o.noAnnouncer, "no-announcer", false, "no announcer runs, only kernels answer: the plan must be refused, exit code 3")
	f.StringVar(&o.dir, "dir", "", "keep logs, journal and certificates in this directory (default: a temporary one)")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log what the lab does on stderr")
}

func (o *stageOptions) check() error {
	switch {
	case o.nodes < 1 || o.nodes > lab.MaxNodes:
		return usagef("--nodes %d: want 1 to %d", o.nodes, lab.MaxNodes)
	case o.clusterIPs < 0:
		return usagef("--clusterips %d: want 0 or more", o.clusterIPs)
	case !(o.rate >= 1 && o.rate <= witness.MaxRate):
		return usagef("--rate %v: want 1 to %v requests a second", o.rate, witness.MaxRate)
	}
	return nil
}

// stage is a lab with the whole product running in it.
type stage struct {
	*lab.Lab
	options  stageOptions
	programs lab.Programs
	conn     connection // of an operator, from outside the lab's network
}

// operatorName is whom the lab's runs are recorded under.
const operatorName = "lab"

// coordinatorPort is where the lab's coordinator listens inside the lab.
const coordinatorPort = 7443

// witnessProcess is the name of the witness's process in the lab.
const witnessProcess = "witness"

// newStage checks the options; it builds and starts nothing.
func (a *app) newStage(o stageOptions) (*stage, error) {
	programs, err := lab.FindPrograms()
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	if o.verbose {
		log = slog.New(slog.NewTextHandler(a.env.Stderr, nil))
	}
	s := &stage{options: o, programs: programs}
	clusterIPs := o.clusterIPs
	if clusterIPs == 0 {
		clusterIPs = -1 // lab's word for none
	}
	s.Lab, err = lab.New(lab.Config{
		Nodes: o.nodes, ClusterIPs: clusterIPs, NoAnnouncer: o.noAnnouncer, ServeNeedsAddress: o.serveNeedsAddress, Dir: o.dir,
		VipmovePath: programs.Vipmove, AgentPath: programs.Agent, CoordinatorPath: programs.Coordinator,
		Credentials: s.credentials, Log: log,
	})
	if err != nil {
		return nil, usagef("%w", err)
	}
	return s, nil
}

// startProduct makes certificates, starts coordinator, agents and witness in a lab that is up, and waits until all are
// connected.
func (a *app) startProduct(ctx context.Context, s *stage) error {
	if err := s.issueCertificates(); err != nil {
		return err
	}
	if _, err := s.StartCoordinator(ctx); err != nil {
		return err
	}
	if err := s.StartAgents(ctx); err != nil {
		return err
	}
	if err := s.startWitness(); err != nil {
		return err
	}
	operator := identity.FilesIn(s.pki(), identity.Identity{Role: identity.RoleOperator, Name: operatorName})
	s.conn = connection{
		coordinator: "unix:" + s.Socket(), ca: operator.CA, cert: operator.Certificate, key: operator.Key,
		serverName: identity.ServerName, timeout: defaultTimeout,
	}
	return a.awaitEverybody(ctx, s)
}

func (s *stage) startWitness() error {
	host, err := s.Host(lab.Coordinator)
	if err != nil {
		return err
	}
	address := netip.AddrPortFrom(host.Address.Addr(), coordinatorPort).String()
	_, err = s.StartProcess(lab.Client, witnessProcess, s.programs.Vipmove, s.witnessArgs(address)...)
	return err
}

func (s *stage) pki() string { return filepath.Join(s.Dir(), "pki") }

// members are who takes part, by the host they run on.
func (s *stage) members() map[string]identity.Identity {
	m := map[string]identity.Identity{
		lab.Coordinator: {Role: identity.RoleCoordinator},
		lab.Client:      {Role: identity.RoleWitness, Name: lab.Client},
	}
	for i := 1; i <= s.options.nodes; i++ {
		name := fmt.Sprintf("n%d", i)
		m[name] = identity.Identity{Role: identity.RoleAgent, Name: name}
	}
	return m
}

func (s *stage) credentials(host string) lab.Credentials {
	f := identity.FilesIn(s.pki(), s.members()[host])
	return lab.Credentials{CA: f.CA, Cert: f.Certificate, Key: f.Key}
}

func (s *stage) issueCertificates() error {
	if err := identity.Init(s.pki()); err != nil {
		return err
	}
	for _, who := range append(valuesByName(s.members()), identity.Identity{Role: identity.RoleOperator, Name: operatorName}) {
		if _, err := identity.Issue(s.pki(), who, nil, nil, 0); err != nil {
			return err
		}
	}
	return nil
}

func valuesByName[V any](m map[string]V) []V {
	var values []V
	for _, name := range sortedNames(m) {
		values = append(values, m[name])
	}
	return values
}

// witnessArgs is the witness's command line; coordinator is an address inside the lab.
func (s *stage) witnessArgs(coordinator string) []string {
	c := s.credentials(lab.Client)
	return []string{
		"witness", "--name", lab.Client, "--target", "http://" + s.VIP().String() + "/",
		"--rate", strconv.FormatFloat(s.options.rate, 'f', -1, 64),
		"--coordinator", coordinator, "--server-name", identity.ServerName,
		"--ca", c.CA, "--cert", c.Cert, "--key", c.Key,
	}
}

// exports prints what another terminal needs to talk to this lab.
func (s *stage) exports(w io.Writer) {
	fmt.Fprintf(w, "export %s=%s\nexport %s=%s\n", envCoordinator, shellQuote("unix:"+s.Socket()), envPKI, shellQuote(s.pki()))
}
