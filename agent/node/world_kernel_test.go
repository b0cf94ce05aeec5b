// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package node

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/lab/namespace"
	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
	"github.com/vipmove/vipmove/lab/virtualserver"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// dummyNode is n1 of the story on the kernel that hack/vmexec starts: a real
// dummy kube-ipvs0 with 45 addresses, a real IPVS table, and the step machine.
type dummyNode struct {
	t     *testing.T
	ns    *namespace.Namespace
	entry host.Tuple
	steps *Steps
	sent  int
}

// inside is the kernel of a namespace, wherever it is called from.
type inside struct {
	*host.Linux
	ns *namespace.Namespace
}

func (k inside) State(ctx context.Context, watched []netip.Addr) (st host.State, err error) {
	err = k.ns.Do(func() error { st, err = k.Linux.State(ctx, watched); return err })
	return st, err
}

func (k inside) ListLink(ctx context.Context, index int) (list []host.Address, err error) {
	err = k.ns.Do(func() error { list, err = k.Linux.ListLink(ctx, index); return err })
	return list, err
}

func (k inside) Remove(ctx context.Context, t host.Tuple) (out host.Outcome, err error) {
	err = k.ns.Do(func() error { out, err = k.Linux.Remove(ctx, t); return err })
	return out, err
}

func (k inside) Restore(ctx context.Context, t host.Tuple) (out host.Outcome, err error) {
	err = k.ns.Do(func() error { out, err = k.Linux.Restore(ctx, t); return err })
	return out, err
}

func newDummyNode(t *testing.T, services ...virtualserver.Service) *dummyNode {
	t.Helper()
	namespacetest.RequireTestKernel(t)
	d := &dummyNode{t: t, ns: namespacetest.NewT(t, testNode)}
	if kind, err := d.ns.AddDummy(testDummy); err != nil || kind != "dummy" {
		t.Fatalf("%s is a %q, %v", testDummy, kind, err)
	}
	for i := 0; i <= 44; i++ {
		ip := netip.AddrFrom4([4]byte{10, 96, 0, byte(i)})
		if i == 0 {
			ip = vip
		}
		if err := d.ns.AddAddress(testDummy, netip.PrefixFrom(ip, 32)); err != nil {
			t.Fatal(err)
		}
	}
	d.serve(services...)
	st, err := d.kernel().State(t.Context(), []netip.Addr{vip})
	if err != nil || len(st.Incomplete) > 0 {
		t.Fatalf("reading the kernel: %v, incomplete %q", err, st.Incomplete)
	}
	for _, a := range st.Addresses {
		if a.Prefix.Addr() == vip {
			d.entry = a.Tuple()
		}
	}
	d.begin()
	return d
}

func (d *dummyNode) kernel() host.Kernel {
	d.t.Helper()
	linux, err := host.New(host.Options{})
	if err != nil {
		d.t.Fatal(err)
	}
	return inside{linux, d.ns}
}

// begin starts the step machine, with nothing on its disk.
func (d *dummyNode) begin() {
	d.t.Helper()
	var err error
	d.steps, err = NewSteps(StepsConfig{
		Node: testNode, Kernel: d.kernel(), Store: newMemory(),
		Policy: Policy{Act: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, MaxChanges: 10},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	d.steps.Recover(d.t.Context())
}

func (d *dummyNode) serve(services ...virtualserver.Service) {
	d.t.Helper()
	for _, s := range services {
		if err := virtualserver.Add(d.ns, s); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *dummyNode) unserve(s virtualserver.Service) {
	d.t.Helper()
	if err := virtualserver.Remove(d.ns, s); err != nil {
		d.t.Fatal(err)
	}
}

func (d *dummyNode) fence() *vipmovev1.Fence {
	d.t.Helper()
	boot, err := d.steps.cfg.Kernel.BootID()
	if err != nil {
		d.t.Fatal(err)
	}
	return &vipmovev1.Fence{
		JournalId: journal, Term: 1, RunId: testRun, PlanHash: testHash, Step: testNode, Node: testNode,
		BootId: boot, DeadlineBoottime: durationpb.New(d.steps.cfg.Kernel.BootTime() + time.Minute),
	}
}

func (d *dummyNode) send(c *vipmovev1.Command) *vipmovev1.CommandResult {
	if d.sent++; c.CommandId == "" {
		c.CommandId = fmt.Sprintf("order%d", d.sent)
	}
	return d.steps.Order(d.t.Context(), c)
}

// expect sends an order that has to end in a state.
func (d *dummyNode) expect(c *vipmovev1.Command, want vipmovev1.StepAnswer_State) {
	d.t.Helper()
	if r := d.send(c); r.GetStep().GetState() != want || r.GetRefusal() != nil || r.GetError() != "" {
		d.t.Fatalf("answer is %v, want %v", r, want)
	}
}

// refuses sends an order that has to be refused, and returns the message.
func (d *dummyNode) refuses(c *vipmovev1.Command, want vipmovev1.Refusal_Code) string {
	d.t.Helper()
	r := d.send(c)
	if r.GetRefusal().GetCode() != want || r.GetRefusal().GetNextStep() == "" {
		d.t.Fatalf("answer is %v, want refusal %v", r, want)
	}
	return r.GetRefusal().GetMessage()
}

// addresses are those of kube-ipvs0, told by the lab and not by the agent.
func (d *dummyNode) addresses() []netip.Prefix {
	d.t.Helper()
	list, err := d.ns.Addresses(testDummy)
	if err != nil {
		d.t.Fatal(err)
	}
	return list
}
