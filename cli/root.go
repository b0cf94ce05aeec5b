// SPDX-License-Identifier: Apache-2.0

// Package cli is the vipmove command: its subcommands, and how they print. Data goes to stdout, everything else to
// stderr; exit codes are those of exitCodesHelp.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/vipmove/vipmove/internal/version"
	"github.com/vipmove/vipmove/lab"
)

// Env is what a command has of the process it runs in.
type Env struct {
	Args   []string // as os.Args: the first is the program's name
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Getenv func(string) string
}

// secondSignal is how long after the first signal another one is taken for the same: timeout(1) sends two, and a person's
// finger may.
const secondSignal = time.Second

// Main runs one command line and returns the exit code. The first SIGINT or SIGTERM ends the command's work, one that comes
// later ends the process.
func Main(env Env) int {
	if handled, code := lab.RunChild(env.Args[1:]); handled {
		return code
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { time.AfterFunc(secondSignal, stop) })
	return newApp(env).run(ctx)
}

// app is one invocation.
type app struct {
	env  Env
	name string // as usage text names the program: vipmove, or kubectl vipmove
	call string // as the next command line names it, for copying
	now  func() time.Time
	zone *time.Location
	// reconnect is the first pause before a lost watch is taken up again; patience is how long it is tried.
	reconnect, patience time.Duration
}

func newApp(env Env) *app {
	a := &app{env: env, now: time.Now, zone: time.Local, reconnect: 500 * time.Millisecond, patience: 2 * time.Minute}
	a.name, a.call = "vipmove", "vipmove"
	switch base := filepath.Base(env.Args[0]); {
	case strings.HasPrefix(base, "kubectl-"):
		a.name, a.call = "kubectl vipmove", "kubectl vipmove"
	case strings.Contains(env.Args[0], "/"):
		a.call = shellQuote(env.Args[0])
	}
	return a
}

func (a *app) run(ctx context.Context) int {
	root := a.rootCommand()
	root.SetArgs(a.env.Args[1:])
	root.SetOut(a.env.Stdout)
	root.SetErr(a.env.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	code := exitCode(err)
	var exit *exitError
	if err == nil || (errors.As(err, &exit) && exit.err == nil) {
		return code
	}
	fmt.Fprintf(a.env.Stderr, "%s: %v\n", a.name, err)
	if code == exitUsage {
		fmt.Fprintf(a.env.Stderr, "See `%s --help`.\n", commandPath(a.name, cmd))
	}
	return code
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:         "vipmove",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: a.name},
		Short:       "make exactly one machine answer for a LoadBalancer address, and prove it on the wire",
		Long: `vipmove finds every machine that answers ARP for a LoadBalancer address (the VIP), says why each one does, takes the
stale address off node by node, canary first and survivor last, and proves on the wire that exactly one answers.

It talks to a vipmove-coordinator, which alone decides. Nothing is changed but by run, abort and rollback.

` + exitCodesHelp,
		Example: a.examples(
			"demo", "the whole story in a minute, on this machine alone",
			"owners 192.0.2.50", "who answers, and why; changes nothing",
			"plan 192.0.2.50", "what would be done, and the plan's hash",
			"run 192.0.2.50 --plan HASH", "do it"),
		Version:       version.String("vipmove"),
		Args:          a.noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usagef("%w", err) })
	root.AddGroup(
		&cobra.Group{ID: "look", Title: "Look (changes nothing):"},
		&cobra.Group{ID: "act", Title: "Act:"},
		&cobra.Group{ID: "setup", Title: "Set up and try out:"},
	)
	a.addCommands(root)
	return root
}

func (a *app) addCommands(root *cobra.Command) {
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("look", a.nodesCommand(), a.ownersCommand(), a.snapshotCommand(), a.diagnoseCommand(), a.planCommand(), a.watchCommand(), a.statusCommand())
	add("act", a.runCommand(), a.abortCommand(), a.rollbackCommand())
	add("setup", a.demoCommand(), a.labCommand(), a.witnessCommand(), a.pkiCommand(), a.versionCommand())
}

// noSuchCommand refuses what stands where a subcommand should, and names the nearest.
func (a *app) noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown command %q; did you mean %s?", args[0], strings.Join(near, ", "))
	}
	return usagef("unknown command %q", args[0])
}

// commandPath names cmd as a user types it.
func commandPath(name string, cmd *cobra.Command) string {
	if cmd == nil || !cmd.HasParent() {
		return name
	}
	return commandPath(name, cmd.Parent()) + " " + cmd.Name()
}

// examples lays out pairs of command line and comment for a command's help.
func (a *app) examples(pairs ...string) string {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		width = max(width, len(pairs[i]))
	}
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "  %s %-*s  # %s\n", a.name, width, pairs[i], pairs[i+1])
	}
	return strings.TrimSuffix(b.String(), "\n")
}
