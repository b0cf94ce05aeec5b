// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a process inside one of the lab's hosts. It is killed with the
// process that started it, however that one dies.
type Process struct {
	lab  *Lab
	spec spec
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed once it has been waited for

	mu     sync.Mutex
	told   bool // to end, by Signal, Kill, Stop or Close
	result error
}

// spec is how a process is started, and started again.
type spec struct {
	host, name, path string
	args             []string
	ready            bool // it has the flag --ready-fd
}

// ExitError says how a process of the lab ended, with the end of its log.
type ExitError struct {
	Name  string // of the process
	State string // "exit status 2", "signal: killed"
	Log   string // path
	Tail  string // last lines of the log
}

func (e *ExitError) Error() string {
	if e.Tail == "" {
		return fmt.Sprintf("process %s ended: %s (its log %s is empty)", e.Name, e.State, e.Log)
	}
	return fmt.Sprintf("process %s ended: %s; the end of its log %s:\n%s", e.Name, e.State, e.Log, e.Tail)
}

// run starts the process and waits for it, on one thread all the while: the
// thread that forks is the parent that Pdeathsig is about.
func (p *Process) run(host *Host, started chan<- error) {
	var state error
	err := host.Do(func() error {
		if err := p.cmd.Start(); err != nil {
			return err
		}
		started <- nil
		state = p.cmd.Wait()
		return nil
	})
	if p.cmd.Process == nil {
		started <- err
		return
	}
	p.end(state)
}

// end records how the process ended, and tells Died where nobody asked for it.
func (p *Process) end(state error) {
	p.mu.Lock()
	told := p.told
	text := "exit status 0"
	if state != nil {
		text = state.Error()
	}
	exit := &ExitError{Name: p.spec.name, State: text, Log: p.log, Tail: tail(p.log)}
	if state != nil {
		p.result = exit
	}
	p.mu.Unlock()
	close(p.done)
	if told {
		p.lab.config.Log.Info("process ended", "process", p.spec.name, "state", text)
		return
	}
	p.lab.config.Log.Error("process ended unasked", "process", p.spec.name, "state", text)
	select {
	case p.lab.died <- exit:
	default: // nobody listens, and 64 are waiting
	}
}

// Name is the name it was started under.
func (p *Process) Name() string { return p.spec.name }

// PID is its process id, as seen from this process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log is the path of its log.
func (p *Process) Log() string { return p.log }

// Done is closed once the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether it has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Wait waits for the end of the process, or of ctx. It returns nil for exit
// code 0 and an *ExitError for everything else.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the end of %s: %w", p.spec.name, ctx.Err())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.result
}

// Signal sends a signal. After one that ends a process its end is expected,
// and not delivered by Died.
func (p *Process) Signal(s syscall.Signal) error {
	switch s {
	case unix.SIGTERM, unix.SIGKILL, unix.SIGINT, unix.SIGQUIT, unix.SIGHUP:
		p.mu.Lock()
		p.told = true
		p.mu.Unlock()
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("sending %s to %s: %w", s, p.spec.name, err)
	}
	return nil
}

// Kill sends SIGKILL and waits for the end. A process that has ended is fine.
func (p *Process) Kill() {
	_ = p.Signal(unix.SIGKILL) // it can only fail where it has ended
	<-p.done
}

// Stop sends SIGTERM, waits for at most grace, then kills.
func (p *Process) Stop(grace time.Duration) {
	_ = p.Signal(unix.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.Kill()
	}
}

// Restart starts it once more with the same arguments, after killing it where
// it still runs. The new process takes the name.
func (p *Process) Restart(ctx context.Context) (*Process, error) {
	p.Kill()
	return p.lab.start(ctx, p.spec)
}
