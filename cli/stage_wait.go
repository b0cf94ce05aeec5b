// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vipmove/vipmove/lab"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// Waiting for the processes to connect.
const (
	connectPatience = time.Minute
	connectPoll     = 200 * time.Millisecond
)

// awaitEverybody waits until every agent is connected and the witness's requests go through.
func (a *app) awaitEverybody(ctx context.Context, s *stage) error {
	c, err := a.dial(&s.conn)
	if err != nil {
		return err
	}
	defer c.Close()
	deadline, told := a.now().Add(connectPatience), ""
	for {
		missing, err := s.missing(ctx, c)
		switch {
		case err == nil && missing == "":
			a.note("%s and the witness are connected, requests go through", count(s.options.nodes, "agent"))
			return nil
		case err != nil && !c.lost(err):
			return c.explain("waiting for the lab's agents", err)
		case err == nil && missing != told:
			told = missing
			a.note("waiting for %s", missing)
		case a.now().After(deadline):
			return fmt.Errorf("waiting for the lab to be ready: still without %s after %s; its logs are in %s", orText(missing, "the coordinator"), connectPatience, s.Dir())
		}
		select {
		case <-time.After(connectPoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// missing names what is not there yet; "" when everything is.
func (s *stage) missing(ctx context.Context, c *control) (string, error) {
	r, err := c.ListNodes(ctx, &vipmovev1.ListNodesRequest{})
	if err != nil {
		return "", err
	}
	agents, witness := 0, false
	for _, n := range r.GetNodes() {
		switch {
		case !n.GetConnected():
		case n.GetRole() == vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT:
			agents++
		case n.GetRole() == vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS:
			witness = true
		}
	}
	switch {
	case agents < s.options.nodes:
		return fmt.Sprintf("agents: %d of %d are connected", agents, s.options.nodes), nil
	case !witness:
		return "the witness", nil
	}
	for _, q := range r.GetRequests() {
		if q.GetSucceeded() > 0 {
			return "", nil
		}
	}
	return "the first answer to the witness", nil
}

// guarded ends ctx when a process of the lab dies: nothing that is shown after that would be worth anything. The caller
// calls stop.
func (s *stage) guarded(ctx context.Context) (guarded context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case exit := <-s.Died():
			cancel(exit)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil); <-ended }
}

// why names what really ended ctx, where that is the reason for err: a process that died, or an interrupt.
func why(ctx context.Context, err error) error {
	var exit *lab.ExitError
	switch {
	case err == nil || ctx.Err() == nil:
		return err
	case errors.As(context.Cause(ctx), &exit):
		return exit
	}
	return errors.New("interrupted")
}

// untilInterrupted waits for Ctrl-C, or for a process of the lab to die, which is an error.
func untilInterrupted(ctx context.Context) error {
	<-ctx.Done()
	var exit *lab.ExitError
	if errors.As(context.Cause(ctx), &exit) {
		return exit
	}
	return nil
}
