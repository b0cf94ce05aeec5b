// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Credentials are the paths of PEM files.
type Credentials struct{ CA, Cert, Key string }

// Programs are the paths of the product's executables.
type Programs struct{ Vipmove, Agent, Coordinator string }

// FindPrograms finds the agent and the coordinator beside the running
// executable, and says which is missing and where it was looked for.
func FindPrograms() (Programs, error) {
	self, err := os.Executable()
	if err != nil {
		return Programs{}, fmt.Errorf("finding this executable: %w", err)
	}
	return programsBeside(self)
}

func programsBeside(self string) (Programs, error) {
	dir := filepath.Dir(self)
	found := Programs{
		Vipmove:     self,
		Agent:       filepath.Join(dir, "vipmove-agent"),
		Coordinator: filepath.Join(dir, "vipmove-coordinator"),
	}
	var missing []string
	for _, path := range []string{found.Agent, found.Coordinator} {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && (info.IsDir() || info.Mode()&0o111 == 0):
			missing = append(missing, filepath.Base(path))
		case err != nil:
			return Programs{}, fmt.Errorf("finding %s: %w", path, err)
		}
	}
	if missing != nil {
		return Programs{}, fmt.Errorf("finding %s beside %s: no such executable in %s (make build puts them there)",
			strings.Join(missing, " and "), filepath.Base(self), dir)
	}
	return found, nil
}

// Socket is the path of the coordinator's unix socket, which reaches it from
// outside the lab's network namespaces.
func (l *Lab) Socket() string { return filepath.Join(l.config.Dir, "coordinator.sock") }

// Names under which the lab's processes run: their logs, and Lab.Process.
func AgentProcess(node string) string     { return "agent-" + node }
func ServerProcess(node string) string    { return "server-" + node }
func AnnouncerProcess(node string) string { return "announcer-" + node }

// CoordinatorProcess is the name the coordinator runs under.
const CoordinatorProcess = "coordinator"

// StartCoordinator starts the coordinator in its host. It does not wait until
// it serves.
func (l *Lab) StartCoordinator(context.Context) (*Process, error) {
	if l.config.CoordinatorPath == "" {
		return nil, errors.New("starting the coordinator: the lab was given no CoordinatorPath")
	}
	args := l.coordinatorArgs()
	if l.config.CoordinatorArgs != nil {
		args = l.config.CoordinatorArgs(args)
	}
	return l.StartProcess(Coordinator, CoordinatorProcess, l.config.CoordinatorPath, args...)
}

// StartAgents starts an agent in every node. It does not wait until they have
// connected.
func (l *Lab) StartAgents(ctx context.Context) error {
	for _, node := range l.nodes {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("starting the agents: %w", err)
		}
		if _, err := l.StartAgent(ctx, node.Name); err != nil {
			return err
		}
	}
	return nil
}

// StartAgent starts the agent of one node.
func (l *Lab) StartAgent(_ context.Context, node string) (*Process, error) {
	if l.config.AgentPath == "" {
		return nil, fmt.Errorf("starting the agent of %s: the lab was given no AgentPath", node)
	}
	state := filepath.Join(l.config.Dir, "agents", node)
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, fmt.Errorf("making the state directory of the agent of %s: %w", node, err)
	}
	args := l.agentArgs(node, state)
	if l.config.AgentArgs != nil {
		args = l.config.AgentArgs(node, args)
	}
	return l.StartProcess(node, AgentProcess(node), l.config.AgentPath, args...)
}

func (l *Lab) agentArgs(node, state string) []string {
	c := l.credentials(node)
	return []string{
		"--node", node,
		"--coordinator", coordinatorAddress.String() + ":7443",
		"--server-name", Coordinator,
		"--ca", c.CA, "--cert", c.Cert, "--key", c.Key,
		"--state-dir", state,
		"--listen", "127.0.0.1:9742",
		"--allow-prefix", Subnet.String(),
		"--allow-link", Dummy,
		"--act",
	}
}

func (l *Lab) coordinatorArgs() []string {
	c := l.credentials(Coordinator)
	return []string{
		"--listen", coordinatorAddress.String() + ":7443",
		"--listen", "unix:" + l.Socket(),
		"--http", "127.0.0.1:9743",
		"--journal", filepath.Join(l.config.Dir, "journal.db"),
		"--ca", c.CA, "--cert", c.Cert, "--key", c.Key,
	}
}

func (l *Lab) credentials(host string) Credentials {
	if l.config.Credentials != nil {
		return l.config.Credentials(host)
	}
	pki := filepath.Join(l.config.Dir, "pki")
	return Credentials{
		CA:   filepath.Join(pki, "ca.crt"),
		Cert: filepath.Join(pki, host+".crt"),
		Key:  filepath.Join(pki, host+".key"),
	}
}

// startServing starts every node's server and the announcer.
func (l *Lab) startServing(ctx context.Context) error {
	if l.config.VipmovePath == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("finding this executable: %w", err)
		}
		l.config.VipmovePath = self
	}
	for _, node := range l.nodes {
		if _, err := l.StartServer(ctx, node.Name); err != nil {
			return err
		}
	}
	if l.config.NoAnnouncer {
		return nil
	}
	_, err := l.StartAnnouncer(ctx, l.config.Announcer)
	return err
}

// StartServer starts a node's HTTP server, and returns once it serves.
func (l *Lab) StartServer(ctx context.Context, node string) (*Process, error) {
	host, err := l.Host(node)
	if err != nil {
		return nil, err
	}
	listen := host.server().String()
	if l.config.ServeNeedsAddress {
		listen = fmt.Sprintf("0.0.0.0:%d", servicePort)
	}
	return l.start(ctx, spec{
		host: node, name: ServerProcess(node), path: l.config.VipmovePath, ready: true,
		args: []string{ServerCommand, "--node", node, "--listen", listen},
	})
}

// StartAnnouncer starts an announcer on a node, and returns once it answers.
// Up starts the one of Config.Announcer; more are a fault to plant.
func (l *Lab) StartAnnouncer(ctx context.Context, node string) (*Process, error) {
	return l.start(ctx, spec{
		host: node, name: AnnouncerProcess(node), path: l.config.VipmovePath, ready: true,
		args: []string{AnnouncerCommand, "--interface", Uplink, "--vip", l.config.VIP.String()},
	})
}
