// SPDX-License-Identifier: Apache-2.0

// Command vipmove-agent is vipmove's agent: it runs on every node, tells what
// its kernel holds and what it hears on the wire, and takes one address off,
// or puts it back, when a coordinator orders it and this node allows it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/vipmove/vipmove/agent/node"
	"github.com/vipmove/vipmove/internal/daemon"
	"github.com/vipmove/vipmove/internal/version"
)

// Exit codes: 0 told to stop, 1 could not run, 2 wrong usage.
const (
	exitError = 1
	exitUsage = 2
)

func main() {
	ctx, stop := daemon.SignalContext(context.Background())
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run is main without the process.
func run(ctx context.Context, args []string, env func(string) string, out, errs io.Writer) int {
	if len(args) > 0 && args[0] == "reset-term" {
		return resetTerm(args[1:], out, errs)
	}
	o, err := parse(args, env, out)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return usage(errs, err)
	case o.version:
		fmt.Fprintln(out, version.String(program))
		return 0
	}
	if err := serve(ctx, o, errs); err != nil {
		fmt.Fprintf(errs, "%s: %v\n", program, err)
		var wrong *usageError
		if errors.As(err, &wrong) {
			return exitUsage
		}
		return exitError
	}
	return 0
}

func usage(errs io.Writer, err error) int {
	fmt.Fprintf(errs, "%s: %v\nSee %s --help.\n", program, err, program)
	return exitUsage
}

// serve runs the agent until ctx ends.
func serve(ctx context.Context, o options, errs io.Writer) error {
	log, err := daemon.Logger(errs, o.logFormat, o.logLevel)
	if err != nil {
		return &usageError{err}
	}
	cfg, err := o.config()
	if err != nil {
		return err
	}
	cfg.Log = log
	agent, err := node.New(cfg)
	if err != nil {
		return err
	}
	return agent.Run(ctx)
}

// resetTerm leaves a request in the state directory; the agent there, running
// or not, obeys it when the next order of another journal or a lower term comes.
func resetTerm(args []string, out, errs io.Writer) int {
	flags := newFlags("reset-term", resetHelp)
	dir := flags.String("state-dir", defaultStateDir, "`directory` of the agent's records")
	switch err := parseFlags(flags, args, out); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err == nil && flags.NArg() > 0:
		return usage(errs, fmt.Errorf("reset-term takes no arguments, got %q", flags.Arg(0)))
	case err != nil:
		return usage(errs, err)
	}
	if err := node.RequestReset(*dir); err != nil {
		fmt.Fprintf(errs, "%s: %v\n", program, err)
		return exitError
	}
	fmt.Fprintf(out, "The next coordinator that orders a change here will be obeyed, whatever its journal and term.\n")
	return 0
}
