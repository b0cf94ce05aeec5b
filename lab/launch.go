// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// StartProcess starts the executable at path inside a host, with its output
// appended to DIR/logs/NAME.log. At most one process of a name runs at a time.
func (l *Lab) StartProcess(host, name, path string, args ...string) (*Process, error) {
	return l.start(context.Background(), spec{host: host, name: name, path: path, args: args})
}

// Process returns the latest process started under the name, nil for none.
func (l *Lab) Process(name string) *Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.processes[name]
}

// start starts a process; where it can tell, start returns once it is ready.
func (l *Lab) start(ctx context.Context, s spec) (*Process, error) {
	p, ready, err := l.launch(s)
	if err != nil {
		return nil, fmt.Errorf("starting %s in %s: %w", s.name, s.host, err)
	}
	l.config.Log.Info("process started", "process", s.name, "host", s.host, "pid", p.PID())
	if ready == nil {
		return p, nil
	}
	defer ready.Close()
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(0, 1)) })
	defer stop()
	if _, err := ready.Read(make([]byte, 1)); err == nil {
		return p, nil
	}
	err = ctx.Err()
	p.Kill()
	if err == nil {
		err = p.Wait(context.Background())
	}
	return nil, fmt.Errorf("waiting for %s in %s to be ready: %w", s.name, s.host, err)
}

// launch starts a process and the goroutine that waits for it; ready is the
// pipe that it tells its readiness by, nil where it does not.
func (l *Lab) launch(s spec) (p *Process, ready *os.File, err error) {
	host, err := l.Host(s.host)
	if err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, errors.New("the lab is closed")
	}
	if before := l.processes[s.name]; before != nil && before.Running() {
		return nil, nil, fmt.Errorf("it runs already, as process %d", before.PID())
	}
	p = &Process{lab: l, spec: s, log: filepath.Join(l.config.Dir, "logs", s.name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer out.Close()

	args := s.args
	var told *os.File
	if s.ready {
		if ready, told, err = os.Pipe(); err != nil {
			return nil, nil, err
		}
		defer told.Close()
		args = append(args[:len(args):len(args)], "--ready-fd", "3")
	}
	p.cmd = exec.Command(s.path, args...)
	p.cmd.Dir = l.config.Dir
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if told != nil {
		p.cmd.ExtraFiles = []*os.File{told}
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true, // Ctrl-C is for the program that owns the lab
		Pdeathsig: unix.SIGKILL,
	}
	started := make(chan error, 1)
	go p.run(host, started)
	if err := <-started; err != nil {
		if ready != nil {
			ready.Close()
		}
		return nil, nil, err
	}
	l.processes[s.name] = p
	return p, ready, nil
}

// stopGrace is how long Close waits for processes that were told to end.
const stopGrace = 2 * time.Second

// stopProcesses ends every process, all at once.
func (l *Lab) stopProcesses() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var group sync.WaitGroup
	for _, p := range l.processes {
		group.Go(func() { p.Stop(stopGrace) })
	}
	group.Wait()
	return nil
}

// Limits of the tail of a log in an ExitError.
const (
	tailBytes = 4096
	tailLines = 12
)

// tail returns the last lines of a file, "" where it cannot be read.
func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > tailBytes {
		if _, err := f.Seek(-tailBytes, io.SeekEnd); err != nil {
			return ""
		}
	}
	end, err := io.ReadAll(io.LimitReader(f, tailBytes))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(end)), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
