// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vipmove/vipmove/agent/node"
	"github.com/vipmove/vipmove/internal/identity"
	"github.com/vipmove/vipmove/internal/version"
)

const (
	program         = "vipmove-agent"
	defaultStateDir = "/var/lib/vipmove-agent"
	defaultListen   = ":9742"
	defaultChanges  = 10
	develVersion    = "devel"
)

const help = `vipmove-agent tells a coordinator what this node's kernel holds and what it
hears on the wire. With --act it also takes an address off an allowed link when
the coordinator orders it, and puts it back unless that is confirmed in time.

Example, an agent that may take service addresses of one range off kube-ipvs0:

  vipmove-agent --node n1 --coordinator 192.0.2.2:7443 \
      --ca ca.crt --cert agent-n1.crt --key agent-n1.key \
      --act --allow-prefix 192.0.2.48/28

  vipmove-agent reset-term    obey a new coordinator's journal (see reset-term --help)

A file named paused in the state directory makes the agent refuse every change;
what it has taken off and nobody confirmed is put back all the same.

Flags:
`

const resetHelp = `vipmove-agent reset-term lets a node obey a coordinator with another journal, or
with a lower term, than the one it has obeyed so far: after a coordinator's
journal was lost, say. Run it on the node, as whoever owns the state directory;
the agent may be running.

Flags:
`

// options are the flags as they were given.
type options struct {
	node, serverName, ca, cert, key string
	stateDir, listen                string
	coordinators, prefixes          []string
	links, interfaces               []string
	act, controlPlane, version      bool
	maxChanges                      int
	logFormat, logLevel             string
}

// usageError is a mistake in how the program was called.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// list is a flag that may be given several times, or with commas.
type list struct{ values *[]string }

func (l list) String() string {
	if l.values == nil {
		return ""
	}
	return strings.Join(*l.values, ",")
}

func (l list) Set(s string) error {
	for v := range strings.SplitSeq(s, ",") {
		if v = strings.TrimSpace(v); v == "" {
			return errors.New("an empty value")
		} else if !slices.Contains(*l.values, v) {
			*l.values = append(*l.values, v)
		}
	}
	return nil
}

// newFlags makes a set that prints nothing by itself: mistakes are for the
// caller to tell.
func newFlags(name, text string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), text)
		flags.VisitAll(func(f *flag.Flag) { printFlag(flags.Output(), f) })
	}
	return flags
}

// parseFlags prints the help to out where it is asked for.
func parseFlags(flags *flag.FlagSet, args []string, out io.Writer) error {
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(out)
		flags.Usage()
	}
	return err
}

// printFlag prints one flag with two dashes, as the documentation does.
func printFlag(w io.Writer, f *flag.Flag) {
	value, text := flag.UnquoteUsage(f)
	if value != "" {
		value = " " + strings.ToUpper(value)
	}
	if f.DefValue != "" && f.DefValue != "false" {
		text += " (default " + f.DefValue + ")"
	}
	fmt.Fprintf(w, "  --%s%s\n        %s\n", f.Name, value, text)
}

func (o *options) register(flags *flag.FlagSet, env func(string) string) {
	flags.StringVar(&o.node, "node", env("NODE_NAME"), "`name` of this node, as in its certificate; $NODE_NAME if not given")
	flags.Var(list{&o.coordinators}, "coordinator", "`address` of a coordinator, host:port; may be repeated, tried in order")
	flags.StringVar(&o.serverName, "server-name", identity.ServerName, "`name` that the coordinator's certificate must carry")
	flags.StringVar(&o.ca, "ca", "", "`file` with the certificate of the CA, PEM")
	flags.StringVar(&o.cert, "cert", "", "`file` with this node's certificate, PEM")
	flags.StringVar(&o.key, "key", "", "`file` with its key, PEM")
	flags.StringVar(&o.stateDir, "state-dir", defaultStateDir, "`directory` of the records that must survive a crash")
	flags.StringVar(&o.listen, "listen", defaultListen, "`address` of the HTTP port for /metrics, /healthz and /readyz")
	flags.Var(list{&o.prefixes}, "allow-prefix", "`range` that an address must lie in to be removed; may be repeated; needed with --act")
	flags.Var(list{&o.links}, "allow-link", "`link` that addresses may be removed from; may be repeated; a real NIC only if named here (default "+node.DefaultLink+", if it is a dummy)")
	flags.BoolVar(&o.act, "act", false, "let the coordinator remove addresses; without it the agent only looks")
	flags.IntVar(&o.maxChanges, "max-changes", defaultChanges, "removals allowed in an hour, whoever orders them; `number` from 1 to 100")
	flags.BoolVar(&o.controlPlane, "control-plane", false, "this node is of the control plane: it is not taken as canary unless named")
	flags.Var(list{&o.interfaces}, "interface", "`NIC` to listen on; may be repeated (default every Ethernet NIC with an IPv4 address)")
	flags.StringVar(&o.logFormat, "log-format", "text", "`format` of the log: text or json")
	flags.StringVar(&o.logLevel, "log-level", "info", "least `level` that is logged: debug, info, warn or error")
	flags.BoolVar(&o.version, "version", false, "print the version and exit")
}

// parse reads the flags and checks what can be checked without touching
// anything.
func parse(args []string, env func(string) string, out io.Writer) (options, error) {
	var o options
	flags := newFlags(program, help)
	o.register(flags, env)
	err := parseFlags(flags, args, out)
	switch {
	case err != nil || o.version:
		return o, err
	case flags.NArg() > 0:
		return o, fmt.Errorf("no arguments are wanted, got %q", flags.Arg(0))
	}
	return o, o.check()
}

// check says what is missing or wrong, and what to do.
func (o options) check() error {
	switch {
	case o.node == "":
		return errors.New("give this node's name with --node, or in $NODE_NAME")
	case len(o.coordinators) == 0:
		return errors.New("give the coordinator's address with --coordinator host:port")
	case o.ca == "" || o.cert == "" || o.key == "":
		return errors.New("give --ca, --cert and --key; `vipmove pki issue` makes them")
	case o.act && len(o.prefixes) == 0:
		return errors.New("--act needs --allow-prefix: the ranges that an address may be removed from, 192.0.2.48/28 for example")
	case o.maxChanges < 1 || o.maxChanges > node.MaxMaxChanges:
		return fmt.Errorf("--max-changes %d is not between 1 and %d", o.maxChanges, node.MaxMaxChanges)
	case o.stateDir == "":
		return errors.New("give a directory with --state-dir")
	}
	for _, address := range append([]string{o.listen}, o.coordinators...) {
		if strings.HasPrefix(address, "unix:") {
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return fmt.Errorf("reading the address %q: %w; want host:port", address, err)
		}
	}
	_, err := o.allowed()
	return err
}

// allowed reads --allow-prefix. A prefix with host bits is a mistake more
// often than not (CASES.md C41): it is refused, with what it would mean.
func (o options) allowed() ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range o.prefixes {
		p, err := netip.ParsePrefix(s)
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading --allow-prefix %q: want a range such as 192.0.2.48/28 or 192.0.2.50/32", s)
		case p.Masked() != p:
			return nil, fmt.Errorf("reading --allow-prefix %q: that range is %s; say so if it is meant", s, p.Masked())
		}
		out = append(out, p)
	}
	return out, nil
}

// config reads the certificate and puts everything together.
func (o options) config() (node.Config, error) {
	files := identity.Files{CA: o.ca, Certificate: o.cert, Key: o.key}
	who, err := identity.FromFiles(files)
	if err != nil {
		return node.Config{}, err
	}
	if who.Role != identity.RoleAgent || who.Name != o.node {
		return node.Config{}, &usageError{fmt.Errorf("the certificate %s is of %s, and --node says %s: give the node's own", o.cert, who, o.node)}
	}
	client, err := identity.ClientConfig(files)
	if err != nil {
		return node.Config{}, err
	}
	prefixes, err := o.allowed()
	if err != nil {
		return node.Config{}, err
	}
	v := version.Version
	if v == "" {
		v = develVersion
	}
	return node.Config{
		Name: o.node, Version: v, ControlPlane: o.controlPlane,
		Policy:   node.Policy{Act: o.act, Links: o.links, Prefixes: prefixes, MaxChanges: o.maxChanges},
		StateDir: o.stateDir, Listen: o.listen, Coordinators: o.coordinators,
		ServerName: o.serverName, TLS: client, Interfaces: o.interfaces,
	}, nil
}
