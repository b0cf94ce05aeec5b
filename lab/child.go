// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// The hidden commands that the lab starts its own processes with:
//
//	lab-server    --node NAME --listen ADDRESS:PORT [--ready-fd N]
//	lab-announcer --interface NIC --vip ADDRESS [--ready-fd N]
//
// ready-fd is a descriptor that gets one byte once the process serves, and is
// then closed. Both end with code 0 on SIGTERM or SIGINT.
const (
	ServerCommand    = "lab-server"
	AnnouncerCommand = "lab-announcer"
)

// RunChild runs the hidden command that args[0] names, with the flags after
// it, and returns its exit code. Anything else is not handled. A program that
// Config.VipmovePath names calls it first thing with os.Args[1:].
func RunChild(args []string) (handled bool, code int) {
	if len(args) == 0 {
		return false, 0
	}
	var run func(ctx context.Context, args []string) error
	switch args[0] {
	case ServerCommand:
		run = serverCommand
	case AnnouncerCommand:
		run = announcerCommand
	default:
		return false, 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	if err := run(ctx, args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", args[0], err)
		return true, 1
	}
	return true, 0
}

func serverCommand(ctx context.Context, args []string) error {
	var c ServerConfig
	flags := flag.NewFlagSet(ServerCommand, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the error says it
	flags.StringVar(&c.Node, "node", "", "name in every answer")
	flags.TextVar(&c.Listen, "listen", netip.AddrPort{}, "address and port to listen on")
	ready := flags.Int("ready-fd", -1, "descriptor to tell that the server is ready")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c.Ready = func() { tellReady(*ready) }
	return RunServer(ctx, c)
}

func announcerCommand(ctx context.Context, args []string) error {
	var c AnnouncerConfig
	flags := flag.NewFlagSet(AnnouncerCommand, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the error says it
	flags.StringVar(&c.Interface, "interface", Uplink, "NIC to answer on")
	flags.TextVar(&c.VIP, "vip", netip.Addr{}, "address to answer for")
	ready := flags.Int("ready-fd", -1, "descriptor to tell that the announcer is ready")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c.Ready = func() { tellReady(*ready) }
	return RunAnnouncer(ctx, c)
}

// tellReady writes to the pipe of Lab.start. Its other end may be gone.
func tellReady(fd int) {
	if fd < 0 {
		return
	}
	pipe := os.NewFile(uintptr(fd), "ready")
	_, _ = pipe.Write([]byte{1})
	_ = pipe.Close()
}
