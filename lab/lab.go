// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package lab builds a small cluster's network on one machine: nodes as
// network namespaces on one bridge, each with the stale addresses that an
// IPVS-mode kube-proxy leaves, an announcer in user space, and real processes
// inside. It needs root, or an unprivileged user namespace that Enter enters,
// and never touches the host's own network.
//
// The lab imports neither the agent nor the coordinator: it runs their
// executables.
package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/vipmove/vipmove/lab/namespace"
)

// Names of the links and hosts that every lab has. Nodes are n1, n2, …
const (
	Uplink      = "eth0"       // of every host
	Dummy       = "kube-ipvs0" // of every node
	ProbeNIC    = "probe0"     // of the client, for the independent prober alone
	Client      = "client"
	Coordinator = "coordinator"
	Switch      = "switch" // a namespace with the bridge and no address
)

// MaxNodes keeps node addresses below the default VIP.
const MaxNodes = 30

// Config says what to build. The zero value is a lab of seven nodes.
type Config struct {
	// Nodes is the number of nodes, 1 to MaxNodes; default 7.
	Nodes int
	// ClusterIPs is the number of other addresses on each node's kube-ipvs0,
	// 10.96.0.1 upwards; default 44, negative: none.
	ClusterIPs int
	// VIP is the LoadBalancer address, inside 192.0.2.0/24; default 192.0.2.50.
	VIP netip.Addr
	// Announcer is the node whose user-space announcer answers for the VIP:
	// the survivor. By default the one in the middle, so that neither counting
	// up nor counting down has it last by chance.
	Announcer string
	// NoAnnouncer leaves the announcer out: only kernels answer.
	NoAnnouncer bool
	// ServeNeedsAddress makes every node serve the VIP by holding it, so that
	// requests die with the address. By default nodes serve it without.
	ServeNeedsAddress bool

	// Dir holds logs, sockets and the processes' state. By default it is the
	// one that Enter made, else a temporary one; such a one is removed by
	// Close. A directory given here is made when missing and never removed.
	Dir string
	// KeepDir keeps a directory that Close would remove.
	KeepDir bool

	// VipmovePath is the executable that knows the hidden commands of
	// RunChild; default: the running one.
	VipmovePath string
	// AgentPath and CoordinatorPath are needed by StartAgents and
	// StartCoordinator only.
	AgentPath, CoordinatorPath string
	// Credentials says where the certificate of a host is: of a node, or of
	// Coordinator. By default DIR/pki/ca.crt, NAME.crt and NAME.key.
	Credentials func(host string) Credentials
	// AgentArgs and CoordinatorArgs, where not nil, change the argument lists
	// of the processes; node is a node's name.
	AgentArgs       func(node string, planned []string) []string
	CoordinatorArgs func(planned []string) []string

	// Log gets one line per state change; default: none.
	Log *slog.Logger
}

// Host is a machine of the lab.
type Host struct {
	Name    string
	Address netip.Prefix     // on Uplink
	MAC     net.HardwareAddr // of Uplink
	*namespace.Namespace
}

// Lab is a running lab. Its methods are safe for concurrent use once Up has
// returned.
type Lab struct {
	config  Config
	madeDir bool

	// Written by Up only.
	hosts     map[string]*Host
	nodes     []*Host
	bridge    *namespace.Namespace
	dummyKind string

	died chan *ExitError

	mu        sync.Mutex
	processes map[string]*Process // by name, the latest of each
	closed    bool
}

// New checks the configuration and fills in its defaults. It starts and makes
// nothing.
func New(config Config) (*Lab, error) {
	config.Nodes = cmp.Or(config.Nodes, 7)
	config.ClusterIPs = max(cmp.Or(config.ClusterIPs, 44), 0)
	config.VIP = cmp.Or(config.VIP, netip.MustParseAddr("192.0.2.50"))
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Nodes < 1 || config.Nodes > MaxNodes {
		return nil, fmt.Errorf("making a lab of %d nodes: between 1 and %d are possible", config.Nodes, MaxNodes)
	}
	if config.ClusterIPs > maxClusterIPs {
		return nil, fmt.Errorf("making a lab with %d ClusterIPs: at most %d are possible", config.ClusterIPs, maxClusterIPs)
	}
	if err := checkVIP(config.VIP, config.Nodes); err != nil {
		return nil, err
	}
	config.Announcer = cmp.Or(config.Announcer, nodeName(config.Nodes/2+1))
	if indexOf(config.Announcer, config.Nodes) == 0 {
		return nil, fmt.Errorf("placing the announcer on %q: the nodes are n1 to n%d", config.Announcer, config.Nodes)
	}
	return &Lab{
		config:    config,
		hosts:     make(map[string]*Host),
		died:      make(chan *ExitError, 64),
		processes: make(map[string]*Process),
	}, nil
}

// Up builds the topology and starts every node's server and the announcer; it
// returns once they serve. After an error the lab is closed already.
func (l *Lab) Up(ctx context.Context) error {
	for _, step := range []func(context.Context) error{l.prepareDir, l.build, l.startServing} {
		err := ctx.Err()
		if err == nil {
			err = step(ctx)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("building the lab: %w", err), l.Close())
		}
	}
	l.config.Log.Info("lab is up", "nodes", l.config.Nodes, "vip", l.config.VIP,
		"announcer", l.Announcer(), "dummy", l.dummyKind, "dir", l.config.Dir)
	return nil
}

// Close ends every process, then gives the namespaces up, and removes the
// directory where the lab made it. Closing twice is fine.
func (l *Lab) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()

	errs := []error{l.stopProcesses()}
	for _, h := range l.hosts {
		errs = append(errs, h.Close())
	}
	if l.bridge != nil {
		errs = append(errs, l.bridge.Close())
	}
	if l.madeDir && !l.config.KeepDir {
		errs = append(errs, os.RemoveAll(l.config.Dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("closing the lab: %w", err)
	}
	return nil
}

// prepareDir makes the directory and those below it.
func (l *Lab) prepareDir(context.Context) error {
	if l.config.Dir == "" {
		l.config.Dir = os.Getenv(dirEnv) // removed with all else by the outer process or Down
		l.madeDir = true
	}
	if l.config.Dir == "" {
		dir, err := os.MkdirTemp("", "vipmove-lab-")
		if err != nil {
			return fmt.Errorf("making the lab's directory: %w", err)
		}
		l.config.Dir = dir
	}
	dir, err := filepath.Abs(l.config.Dir)
	if err != nil {
		return fmt.Errorf("finding the lab's directory: %w", err)
	}
	l.config.Dir = dir
	if path := l.Socket(); len(path) > maxSocketPath {
		return fmt.Errorf("using %s: the path of a socket has at most %d characters, choose a shorter directory", path, maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o700); err != nil {
		return fmt.Errorf("making the lab's directory: %w", err)
	}
	return nil
}

// maxSocketPath is sun_path of unix(7) without its terminating zero.
const maxSocketPath = 107

// Dir is where logs, sockets and state are, an absolute path; set by Up.
func (l *Lab) Dir() string { return l.config.Dir }

// VIP is the LoadBalancer address.
func (l *Lab) VIP() netip.Addr { return l.config.VIP }

// Announcer is the name of the node that announces the VIP, "" for none.
func (l *Lab) Announcer() string {
	if l.config.NoAnnouncer {
		return ""
	}
	return l.config.Announcer
}

// DummyKind is the kind of every node's kube-ipvs0: dummy, or ifb where this
// kernel has no dummy; set by Up.
func (l *Lab) DummyKind() string { return l.dummyKind }

// Nodes returns the nodes, n1 first.
func (l *Lab) Nodes() []*Host { return append([]*Host(nil), l.nodes...) }

// Host returns a node, Client or Coordinator; an error names what there is.
func (l *Lab) Host(name string) (*Host, error) {
	if h := l.hosts[name]; h != nil {
		return h, nil
	}
	return nil, fmt.Errorf("finding host %q in the lab: there are %s, %s and n1 to n%d", name, Client, Coordinator, l.config.Nodes)
}

// Died delivers every process that ended without being told to by Signal,
// Kill, Stop or Close.
func (l *Lab) Died() <-chan *ExitError { return l.died }
