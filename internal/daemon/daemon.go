// SPDX-License-Identifier: Apache-2.0

// Package daemon is what the agent and the coordinator need as long-running
// processes, and nothing else: a logger, one HTTP port with metrics and health,
// and a context that ends with a signal.
package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Logger writes to w in the format text or json, from the level debug, info,
// warn or error on. Anything else is an error that lists what may be given.
func Logger(w io.Writer, format, level string) (*slog.Logger, error) {
	levels := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}
	least, ok := levels[level]
	if !ok {
		return nil, fmt.Errorf("reading the log level %q: want debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: least}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	default:
		return nil, fmt.Errorf("reading the log format %q: want text or json", format)
	}
}

// SignalContext ends with the first SIGINT or SIGTERM; the second one then ends
// the process as if this had never been called. stop gives the signals back.
func SignalContext(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = signal.NotifyContext(parent, unix.SIGINT, unix.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
