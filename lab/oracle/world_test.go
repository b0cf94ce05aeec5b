// SPDX-License-Identifier: Apache-2.0

//go:build linux

package oracle

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/agent/report"
	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	"github.com/vipmove/vipmove/lab/namespace"
	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// world is one node and one asker. The asker has no address, so its kernel
// takes no part.
type world struct {
	node   *node
	asker  *namespace.Namespace
	sw     *namespace.Namespace
	kernel *host.Linux
	mac    map[string]net.HardwareAddr // of the node's NICs

	bridges int // 1: both NICs of the node are on the asker's a0; 2: eth1 is on its a1
	// localRoutes: a local route was once added by hand. The kernel keeps that
	// in mind for good (fib_has_custom_local_routes), and tells nobody.
	localRoutes bool
	// rules: there is a policy rule beside the kernel's own three, for marked
	// packets only, as Cilium has it. The local and the main table are no longer
	// one since it came.
	rules bool
}

// nics are those of the node that can be asked.
var nics = []string{"eth0", "eth1"}

func newWorld(t *testing.T, bridges int, localRoutes, rules bool) *world {
	t.Helper()
	w := &world{
		asker: namespacetest.NewT(t, "asker"), sw: namespacetest.NewT(t, "switch"), bridges: bridges, localRoutes: localRoutes, rules: rules,
		mac: map[string]net.HardwareAddr{"eth0": {2, 0, 0, 0, 0, 0x11}, "eth1": {2, 0, 0, 0, 1, 0x11}},
	}
	ns := namespacetest.NewT(t, "node")
	for i, nic := range nics {
		bridge := fmt.Sprintf("br%d", i)
		check(t, w.sw.AddBridge(bridge))
		check(t, namespace.Connect(w.asker, fmt.Sprintf("a%d", i), net.HardwareAddr{2, 0, 0, 0, byte(i), 1}, w.sw, bridge, fmt.Sprintf("asker%d", i)))
		if bridges == 1 {
			bridge = "br0"
		}
		check(t, namespace.Connect(ns, nic, w.mac[nic], w.sw, bridge, "node"+nic))
	}
	_, err := ns.AddDummy("kube-ipvs0")
	check(t, err)
	w.node, err = newNode(ns)
	check(t, err)
	t.Cleanup(w.node.netlink.Close)
	if localRoutes {
		once := route{verb: "add", kind: "local", prefix: netip.MustParsePrefix("192.0.2.50/32"), links: []string{"lo"}, table: tableLocal}
		check(t, once.apply(w.node))
		check(t, w.node.reset())
	}
	if rules {
		mask := uint32(0xf00)
		marked := netlink.NewRule()
		marked.Priority, marked.Mark, marked.Mask, marked.Table = 9, 0x200, &mask, 2004
		check(t, w.node.netlink.RuleAdd(marked))
	}
	w.kernel, err = host.New(host.Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, syscall.ECONNREFUSED // no kube-proxy, whatever becomes of 127.0.0.1 here
	}})
	check(t, err)
	return w
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ready waits until frames pass to and from the NIC: one that was down is late.
func (w *world) ready(nic string) error {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); <-time.After(time.Millisecond) {
		l, err := w.node.netlink.LinkByName(nic)
		if err != nil {
			return err
		}
		var port netlink.Link
		err = w.sw.Do(func() (err error) {
			port, err = netlink.LinkByName("node" + nic)
			return err
		})
		if err != nil {
			return err
		}
		if l.Attrs().OperState == netlink.OperUp && port.Attrs().OperState == netlink.OperUp {
			return nil
		}
	}
	return fmt.Errorf("waiting for the carrier of %s: still none", nic)
}

// read takes the product's own way from the kernel to what a judgement reads.
func (w *world) read(ctx context.Context, watched []netip.Addr) (diagnose.Node, error) {
	var state host.State
	err := w.node.Do(func() (err error) {
		state, err = w.kernel.State(ctx, watched)
		return err
	})
	if err != nil {
		return diagnose.Node{}, err
	}
	// No ordinary user may look for BPF programs. Here is none, nor anything else.
	if slices.ContainsFunc(state.ARPPath.Hooks, func(h host.ARPHook) bool { return !h.Unread }) {
		return diagnose.Node{}, fmt.Errorf("reading the node: something is on its ARP path: %q", state.ARPPath.Reasons)
	}
	state.ARPPath = host.ARPPath{}
	message := &vipmovev1.Snapshot{
		SchemaVersion: snapshot.SchemaVersion, Vip: watched[0].String(),
		Nodes: []*vipmovev1.Node{{
			Name: "n1", Role: vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT, Connected: true, Kernel: report.KernelState(state),
		}},
	}
	s, err := snapshot.FromProto(message)
	if err != nil {
		return diagnose.Node{}, err
	}
	return s.Nodes[0], nil
}
