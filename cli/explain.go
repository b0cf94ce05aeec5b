// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// explain turns what a call ended with into one error for the operator, with its exit code. doing is a gerund and its
// object, as in "planning for 192.0.2.50".
func (c *control) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	code, text := codeOf(s.Code()), s.Message()
	switch s.Code() {
	case codes.Unavailable:
		if why := c.shakes.notTrusted(); why != "" {
			code = exitNotAllowed
			text = fmt.Sprintf("%s; see --ca %s, --cert %s and --server-name %s", why, c.conn.ca, c.conn.cert, c.conn.serverName)
			break
		}
		text = fmt.Sprintf("no coordinator reached at %s: %s; check --coordinator (or %s), and that vipmove-coordinator runs there",
			c.conn.coordinator, cause(text), envCoordinator)
	case codes.DeadlineExceeded:
		text = fmt.Sprintf("no answer within %s (--timeout)", c.conn.timeout)
	case codes.Canceled:
		text = "interrupted"
	case codes.Unimplemented:
		text = fmt.Sprintf("the coordinator at %s is of another version: %s", c.conn.coordinator, text)
	}
	if text == "" {
		text = s.Code().String()
	}
	return &exitError{code: code, err: fmt.Errorf("%s: %s%s", doing, text, details(s))}
}

// codeOf maps a gRPC status to an exit code; an untrusted certificate is Unavailable to gRPC and told apart by explain.
func codeOf(code codes.Code) int {
	switch code {
	case codes.OK:
		return exitDone
	case codes.InvalidArgument:
		return exitUsage
	case codes.FailedPrecondition:
		return exitPreconditions
	case codes.PermissionDenied, codes.Unauthenticated:
		return exitNotAllowed
	case codes.DeadlineExceeded:
		return exitTimedOut
	}
	return exitFailure
}

// cause takes gRPC's wrapping off: connection error: desc = "transport: Error while dialing: dial tcp …".
func cause(text string) string {
	text = strings.TrimSpace(text)
	for _, prefix := range []string{
		"last connection error: ", "connection error: ", "desc = ", "transport: ", "Error while dialing: ", "authentication handshake failed: ",
		"error reading server preface: ",
	} {
		if _, after, found := strings.Cut(text, prefix); found {
			text = after
		}
	}
	return strings.Trim(text, `"`)
}

// details are the typed reasons that came with a status, a line each.
func details(s *status.Status) string {
	var b strings.Builder
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *vipmovev1.Refusal:
			fmt.Fprintf(&b, "\n  %s: %s", d.GetCode(), d.GetMessage())
			writeNext(&b, d.GetNextStep())
		case *vipmovev1.Finding:
			b.WriteString("\n  " + findingLine(d))
			writeNext(&b, d.GetNextStep())
		case *vipmovev1.Precondition:
			if !d.GetMet() {
				fmt.Fprintf(&b, "\n  %s: %s", d.GetName(), withCode(d.GetDetail(), d.GetCode()))
			}
		}
	}
	return b.String()
}

func writeNext(b *strings.Builder, next string) {
	if next != "" {
		b.WriteString("\n      next: " + next)
	}
}

// lost reports whether err may pass by itself while a run goes on: the coordinator restarts, or the network is away.
func (c *control) lost(err error) bool {
	return status.Code(err) == codes.Unavailable && c.shakes.notTrusted() == ""
}

// deadline reports whether ctx or the call ran out of time, as opposed to an interrupt.
func deadline(ctx context.Context, err error) bool {
	return errors.Is(ctx.Err(), context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
}
