// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// welcomeTimeout bounds the wait from dialling to the coordinator's Welcome.
const welcomeTimeout = 10 * time.Second

var (
	errQueueFull = errors.New("too many messages wait to be sent")
	errNoWelcome = errors.New("no welcome within " + welcomeTimeout.String())
)

// stream is one attempt's line. Run's goroutine reads it, write's goroutine
// writes it, anyone may enqueue.
type stream struct {
	rpc    grpc.BidiStreamingClient[vipmovev1.ObserverMessage, vipmovev1.CoordinatorMessage]
	queue  chan *vipmovev1.ObserverMessage
	cancel context.CancelCauseFunc
}

// attempt dials one coordinator and holds the session with it to its end.
// welcomed reports whether the handler accepted its Welcome; the error is
// never nil and names the address.
func (s *Session) attempt(ctx context.Context, address string) (welcomed bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	dial := &dialer{dial: s.cfg.dial}
	conn, err := s.cfg.connection(address, dial)
	if err != nil {
		return false, fmt.Errorf("preparing the connection to coordinator %s: %w", address, err)
	}
	defer conn.Close()
	st := &stream{queue: make(chan *vipmovev1.ObserverMessage, queueLength), cancel: cancel}

	welcome, err := s.hello(ctx, conn, st)
	if err != nil {
		return false, fmt.Errorf("connecting to coordinator %s: %w", address, cause(ctx, dial, err))
	}
	s.open(st)
	defer s.close()
	if err := s.accept(welcome); err != nil {
		return false, fmt.Errorf("joining coordinator %s: %w", address, err)
	}
	s.cfg.Log.Info("connected to coordinator", "address", address,
		"journal", welcome.GetJournalId(), "term", welcome.GetTerm(), "version", welcome.GetVersion())

	var writer sync.WaitGroup
	writer.Go(func() { st.write(ctx, s.cfg.Boottime) })
	err = s.serve(ctx, st)
	err = fmt.Errorf("session with coordinator %s: %w", address, cause(ctx, dial, err))
	s.close()
	cancel(nil)
	writer.Wait()
	s.handler.Disconnected(err)
	return true, err
}

// hello opens the stream, says hello and waits for the coordinator's Welcome.
func (s *Session) hello(ctx context.Context, conn *grpc.ClientConn, st *stream) (*vipmovev1.Welcome, error) {
	late := time.AfterFunc(welcomeTimeout, func() { st.cancel(errNoWelcome) })
	defer late.Stop()
	rpc, err := vipmovev1.NewObserversClient(conn).Session(ctx)
	if err != nil {
		return nil, err
	}
	st.rpc = rpc
	hello := s.cfg.Hello()
	hello.Protocol = Protocol
	message := &vipmovev1.ObserverMessage{
		Message:  &vipmovev1.ObserverMessage_Hello{Hello: hello},
		Boottime: durationpb.New(s.cfg.Boottime()),
	}
	// io.EOF here means that the stream has ended; Recv says how.
	if err := rpc.Send(message); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	first, err := rpc.Recv()
	if err != nil {
		return nil, err
	}
	welcome := first.GetWelcome()
	if welcome == nil {
		return nil, errors.New("its first message is no welcome")
	}
	return welcome, nil
}

// accept compares protocols and asks the handler.
func (s *Session) accept(w *vipmovev1.Welcome) error {
	if w.GetProtocol() != Protocol {
		return fmt.Errorf("it speaks protocol %d (version %s) and this program speaks protocol %d: install matching versions",
			w.GetProtocol(), w.GetVersion(), Protocol)
	}
	if err := s.handler.Welcome(w); err != nil {
		return err
	}
	s.mu.Lock()
	s.connected, s.lastErr = true, ""
	s.mu.Unlock()
	return nil
}

// serve passes commands on until the stream ends; its error is never nil.
func (s *Session) serve(ctx context.Context, st *stream) error {
	for {
		message, err := st.rpc.Recv()
		if err != nil {
			return err
		}
		command := message.GetCommand()
		if command == nil {
			continue // a newer coordinator's message: not for us
		}
		s.handler.Command(ctx, command, st.reply)
	}
}

// reply queues a result. A result that finds the queue full ends the session:
// the coordinator then knows that it must ask again, and waits for nothing.
func (st *stream) reply(r *vipmovev1.CommandResult) {
	m := &vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_Result{Result: r}}
	if !st.enqueue(m) {
		st.cancel(errQueueFull)
	}
}

func (st *stream) enqueue(m *vipmovev1.ObserverMessage) bool {
	select {
	case st.queue <- m:
		return true
	default:
		return false
	}
}

// write sends what is queued until ctx ends or the stream does.
func (st *stream) write(ctx context.Context, boottime func() time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-st.queue:
			stamped := &vipmovev1.ObserverMessage{Message: m.GetMessage(), Boottime: durationpb.New(boottime())}
			if err := st.rpc.Send(stamped); err != nil {
				if !errors.Is(err, io.EOF) { // io.EOF: Recv says how the stream ended
					st.cancel(err)
				}
				return
			}
		}
	}
}

// open makes st the stream that Send uses.
func (s *Session) open(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = st
}

// close takes the current stream away; Send then reports false.
func (s *Session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.connected = nil, false
}

// cause picks the reason that says most: why we ended it, why the network
// could not be reached, else what the coordinator or gRPC said.
func cause(ctx context.Context, d *dialer, err error) error {
	if own := context.Cause(ctx); own != nil {
		return own
	}
	if network := d.reason(); network != nil {
		return network
	}
	if errors.Is(err, io.EOF) {
		return errors.New("the coordinator ended it")
	}
	if s, ok := status.FromError(err); ok {
		return &statusError{s}
	}
	return err
}

// statusError prints a gRPC status without gRPC's own prefix and keeps its code
// for status.Code.
type statusError struct{ status *status.Status }

func (e *statusError) Error() string              { return e.status.Message() }
func (e *statusError) GRPCStatus() *status.Status { return e.status }
