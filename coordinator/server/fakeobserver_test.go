// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/internal/identity"
	"github.com/vipmove/vipmove/internal/session"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// fault is how an order goes wrong.
type fault string

const (
	fine      fault = ""
	notDone   fault = "not done, error"
	doneError fault = "done, error"
	cutBefore fault = "session cut before"
	cutAfter  fault = "session cut after"
	dumb      fault = "done, no answer" // the session stays, and nothing is said
	deaf      fault = "not done, no answer"
)

// observer is a fake agent or witness: a session over real TLS and gRPC, its orders answered from the lan.
type fakeObserver struct {
	world *world
	name  string
	role  vipmovev1.ObserverRole
	carry func(ctx context.Context, c *vipmovev1.Command, say func(*vipmovev1.ReplyHeard)) *vipmovev1.CommandResult
	hello func() *vipmovev1.Hello

	mu      sync.Mutex
	fault   func(*vipmovev1.Command) fault
	instead func(*vipmovev1.Command) *vipmovev1.CommandResult // answers in place of carry, unless nil
	away    bool
	cut     context.CancelFunc // ends the session that is open
	send    func(*vipmovev1.ObserverMessage)
	heard   []string // kinds of orders, as they came in
	turned  error    // how the last session ended
	clients sync.WaitGroup
}

// reconnect is how soon a fake comes back; a real one within two seconds.
const reconnect = 200 * time.Millisecond

// run keeps a session until ctx ends.
func (o *fakeObserver) run(ctx context.Context) {
	for ctx.Err() == nil {
		if !o.isAway() {
			err := o.session(ctx)
			o.mu.Lock()
			o.turned, o.cut, o.send = err, nil, nil
			o.mu.Unlock()
		}
		pause(ctx, reconnect)
	}
}

func (o *fakeObserver) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer o.clients.Wait()
	defer cancel()
	conn := o.world.connect(identity.Identity{Role: roleName(o.role), Name: o.name})
	defer conn.Close()
	stream, err := vipmovev1.NewObserversClient(conn).Session(ctx)
	if err != nil {
		return err
	}
	var sending sync.Mutex
	send := func(m *vipmovev1.ObserverMessage) {
		sending.Lock()
		defer sending.Unlock()
		m.Boottime = durationpb.New(o.boottime())
		_ = stream.Send(m) // a broken stream says so in Recv
	}
	send(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_Hello{Hello: o.hello()}})
	if m, err := stream.Recv(); err != nil || m.GetWelcome() == nil {
		return fmt.Errorf("no welcome: %w", err)
	}
	o.mu.Lock()
	o.cut, o.send = cancel, send
	o.mu.Unlock()
	return o.obey(ctx, stream, send)
}

func (o *fakeObserver) obey(ctx context.Context, stream grpc.BidiStreamingClient[vipmovev1.ObserverMessage, vipmovev1.CoordinatorMessage], send func(*vipmovev1.ObserverMessage)) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		c := m.GetCommand()
		o.clients.Go(func() { o.handle(ctx, c, send) })
	}
}

// handle carries one order out, or fails in the way that the test wants.
func (o *fakeObserver) handle(ctx context.Context, c *vipmovev1.Command, send func(*vipmovev1.ObserverMessage)) {
	how, result := o.expects(c)
	switch {
	case how == notDone:
		result = &vipmovev1.CommandResult{Error: "the fake did not do it"}
	case how == cutBefore:
		o.hangUp()
		return
	case how == deaf:
		return
	case result == nil:
		result = o.carry(ctx, c, func(h *vipmovev1.ReplyHeard) {
			h.CommandId = c.GetCommandId()
			send(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_ReplyHeard{ReplyHeard: h}})
		})
	}
	switch how {
	case doneError:
		result = &vipmovev1.CommandResult{Error: "the fake did it and lost the answer"}
	case cutAfter:
		o.hangUp()
		return
	case dumb:
		return
	}
	result.CommandId = c.GetCommandId()
	send(&vipmovev1.ObserverMessage{Message: &vipmovev1.ObserverMessage_Result{Result: result}})
}

// expects says what the test wants of an order: that it goes wrong, or another answer.
func (o *fakeObserver) expects(c *vipmovev1.Command) (how fault, instead *vipmovev1.CommandResult) {
	o.mu.Lock()
	o.heard = append(o.heard, kindOf(c))
	if o.fault != nil {
		how = o.fault(c)
	}
	answer := o.instead
	o.mu.Unlock()
	if answer != nil {
		instead = answer(c)
	}
	return how, instead
}

// answering sets what answers orders in place of the lan; where it returns nil, the lan does. f may be
// called by several goroutines.
func (o *fakeObserver) answering(f func(*vipmovev1.Command) *vipmovev1.CommandResult) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.instead = f
}

// hangUp breaks the session; it comes back by itself unless leave was called.
func (o *fakeObserver) hangUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cut != nil {
		o.cut()
	}
}

// leave ends the session and keeps it ended until comeBack.
func (o *fakeObserver) leave() {
	o.setAway(true)
	o.hangUp()
}

func (o *fakeObserver) comeBack() { o.setAway(false) }

func (o *fakeObserver) setAway(away bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.away = away
}

func (o *fakeObserver) isAway() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.away
}

func (o *fakeObserver) tell(m *vipmovev1.ObserverMessage) {
	o.mu.Lock()
	send := o.send
	o.mu.Unlock()
	if send != nil {
		send(m)
	}
}

// failing sets how orders go wrong from now on.
func (o *fakeObserver) failing(f func(*vipmovev1.Command) fault) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fault = f
}

// orders counts the orders of a kind that came in.
func (o *fakeObserver) orders(kind string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, k := range o.heard {
		if k == kind {
			n++
		}
	}
	return n
}

// once makes the nth order of a kind go wrong (from 1), and no other.
func once(kind string, n int, how fault) func(*vipmovev1.Command) fault {
	seen := 0
	return func(c *vipmovev1.Command) fault {
		if kindOf(c) != kind {
			return fine
		}
		if seen++; seen == n {
			return how
		}
		return fine
	}
}

// inRun lets f judge the orders from the first prepare on: those of a run, not of its plan.
func inRun(f func(*vipmovev1.Command) fault) func(*vipmovev1.Command) fault {
	began := false
	return func(c *vipmovev1.Command) fault {
		if began = began || kindOf(c) == "prepare"; began {
			return f(c)
		}
		return fine
	}
}

func always(kind string, how fault) func(*vipmovev1.Command) fault {
	return func(c *vipmovev1.Command) fault {
		if kindOf(c) == kind {
			return how
		}
		return fine
	}
}

func (o *fakeObserver) boottime() time.Duration {
	h := o.world.lan.host(o.name)
	return time.Since(h.bootedAt)
}

// probe answers a round at the end of its window, as a real one does.
func (o *fakeObserver) probe(ctx context.Context, p *vipmovev1.Probe, say func(*vipmovev1.ReplyHeard)) *vipmovev1.CommandResult {
	rounds := o.world.lan.probe(o.name, p)
	for _, r := range rounds {
		for _, reply := range r.GetReplies() {
			say(&vipmovev1.ReplyHeard{Interface: r.GetInterface(), Kind: r.GetKind(), Reply: reply})
		}
	}
	pause(ctx, p.GetWindow().AsDuration())
	return &vipmovev1.CommandResult{Answer: &vipmovev1.CommandResult_Probe{Probe: &vipmovev1.ProbeAnswer{Rounds: rounds}}}
}

func kindOf(c *vipmovev1.Command) string {
	m := c.ProtoReflect()
	f := m.WhichOneof(m.Descriptor().Oneofs().ByName("order"))
	if f == nil {
		return ""
	}
	return string(f.Name())
}

func roleName(r vipmovev1.ObserverRole) string {
	if r == vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS {
		return identity.RoleWitness
	}
	return identity.RoleAgent
}

func helloOf(name string, role vipmovev1.ObserverRole, boot string) *vipmovev1.Hello {
	return &vipmovev1.Hello{Node: name, Role: role, Version: "test", BootId: boot, Protocol: session.Protocol}
}
