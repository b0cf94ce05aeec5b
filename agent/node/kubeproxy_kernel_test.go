// SPDX-License-Identifier: Apache-2.0

//go:build kernel && kubeproxy

package node

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/lab/namespace"
	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
	"github.com/vipmove/vipmove/lab/virtualserver"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// kubeProxyEnv names the program: make test-kube-proxy builds it.
const kubeProxyEnv = "KUBE_PROXY"

// kubeProxyConfig is that of a cluster in IPVS mode, less what needs the first
// network namespace.
const kubeProxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ipvs
hostnameOverride: n1
clusterCIDR: 198.18.0.0/16
clientConnection: {kubeconfig: %s, contentType: application/json}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
ipvs: {scheduler: rr, syncPeriod: 5s, minSyncPeriod: 0s}
`

const kubeConfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "%s"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

// proxied is n1 with a NIC and a real kube-proxy, whose API server it is.
type proxied struct {
	*dummyNode
	config string
	path   string
}

func newProxied(t *testing.T) *proxied {
	t.Helper()
	namespacetest.RequireTestKernel(t)
	p := &proxied{dummyNode: &dummyNode{t: t, ns: namespacetest.NewT(t, testNode)}, path: t.TempDir()}
	sw := namespacetest.NewT(t, "switch")
	for _, err := range []error{
		sw.AddBridge("br0"),
		namespace.Connect(p.ns, "eth0", nil, sw, "br0", "n1"),
		p.ns.AddAddress("eth0", netip.MustParsePrefix("192.0.2.11/24")),
		p.useLegacyTables(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig := p.file("kubeconfig", fmt.Sprintf(kubeConfig, serveAPI(t, p.ns)))
	p.config = p.file("config.yaml", fmt.Sprintf(kubeProxyConfig, kubeconfig))
	return p
}

func (p *proxied) file(name, content string) string {
	p.t.Helper()
	path := filepath.Join(p.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// useLegacyTables: this kernel has ip_tables, and no nf_tables for IPv4.
func (p *proxied) useLegacyTables() error {
	legacy, err := exec.LookPath("xtables-legacy-multi")
	if err != nil {
		return err
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, what := range []string{"", "-save", "-restore"} {
			if err := os.Symlink(legacy, filepath.Join(p.path, family+what)); err != nil {
				return err
			}
		}
	}
	return nil
}

// run starts kube-proxy; what it returns kills it.
func (p *proxied) run() (kill func()) {
	p.t.Helper()
	cmd := exec.Command(os.Getenv(kubeProxyEnv), "--config", p.config, "--v", "2")
	cmd.Env = append(os.Environ(), "PATH="+p.path+":"+os.Getenv("PATH"))
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := p.ns.Start(cmd); err != nil {
		p.t.Fatal(err)
	}
	kill = func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	p.t.Cleanup(func() {
		kill()
		if p.t.Failed() {
			p.t.Logf("kube-proxy:\n%s", &log)
		}
	})
	return kill
}

// until waits for a state of the node.
func (p *proxied) until(what string, holds func(host.State) bool) host.State {
	p.t.Helper()
	deadline := time.After(90 * time.Second)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		st := p.state()
		if holds(st) {
			return st
		}
		select {
		case <-tick.C:
		case <-deadline:
			p.t.Fatalf("waited for %s; kube-proxy %+v, IPVS %+v, addresses %v", what, st.KubeProxy, st.IPVS, st.Addresses)
		}
	}
}

func (p *proxied) state() host.State {
	p.t.Helper()
	st, err := p.kernel().State(p.t.Context(), []netip.Addr{vip})
	if err != nil {
		p.t.Fatal(err)
	}
	return st
}

// onDummy are the addresses of kube-ipvs0, without the link-local one.
func onDummy(st host.State) []string {
	var list []string
	for _, a := range st.Addresses {
		if a.Link == testDummy && a.Prefix.Addr().Is4() {
			list = append(list, a.Prefix.String())
		}
	}
	slices.Sort(list)
	return list
}

var all = []string{"10.96.0.10/32", "10.96.0.20/32", "192.0.2.50/32"}

// The whole fault of the story, made by the real thing.
func TestARealKubeProxyLeavesTheFaultAndTheAgentCleansExactlyTheVIP(t *testing.T) {
	p := newProxied(t)
	kill := p.run()
	st := p.until("kube-proxy's addresses and services", func(st host.State) bool {
		return slices.Equal(onDummy(st), all) && st.IPVS.Serves(vip) && st.KubeProxy.State == host.KubeProxyRunning
	})
	i := slices.IndexFunc(st.Links, func(l host.Link) bool { return l.Name == testDummy })
	if l := st.Links[i]; l.Kind != "dummy" || l.Up {
		t.Errorf("kube-proxy made %+v", l)
	}
	if st.KubeProxy.Mode != "ipvs" || st.IPVS.Source != "netlink and proc" || len(st.Incomplete) > 0 {
		t.Errorf("%+v, IPVS from %q, incomplete %q", st.KubeProxy, st.IPVS.Source, st.Incomplete)
	}
	for _, a := range st.Addresses {
		if a.Link == testDummy && a.Prefix.Addr() == vip {
			p.entry = a.Tuple()
		}
	}
	p.begin()
	p.refuses(prepareOrder(p.fence(), p.entry), vipmovev1.Refusal_LIVE_IPVS_SERVICE)

	kill() // everything stays: it is live, without a manager
	st = p.until("the end of kube-proxy", func(st host.State) bool { return st.KubeProxy.State == host.KubeProxyAbsent })
	if !slices.Equal(onDummy(st), all) || !st.IPVS.Serves(vip) {
		t.Fatalf("after the kill: %v, %+v", onDummy(st), st.IPVS)
	}
	p.refuses(prepareOrder(p.fence(), p.entry), vipmovev1.Refusal_LIVE_IPVS_SERVICE)

	p.flush(st.IPVS) // the trap: addresses without services
	if st = p.state(); st.IPVS.State != host.IPVSNone || !slices.Equal(onDummy(st), all) {
		t.Fatalf("after the flush: %v, %+v", onDummy(st), st.IPVS)
	}
	p.expect(prepareOrder(p.fence(), p.entry), prepared)
	p.expect(removeOrder(p.fence(), removeID), removed)
	p.expect(confirmOrder(p.fence(), removeID), confirmed)
	if got := onDummy(p.state()); !slices.Equal(got, all[:2]) {
		t.Errorf("left on %s: %v, want %v", testDummy, got, all[:2])
	}

	p.run() // and it comes back, with a cause that can be named
	st = p.until("kube-proxy to put the VIP back", func(st host.State) bool {
		return slices.Equal(onDummy(st), all) && st.KubeProxy.State == host.KubeProxyRunning
	})
	if st.KubeProxy.Mode != "ipvs" {
		t.Errorf("%+v, want the cause named", st.KubeProxy)
	}
	r := p.send(inquireOrder(p.fence(), removeID))
	if r.GetStep().GetState() != confirmed || !r.GetStep().GetPresentAgain() {
		t.Errorf("answer %v hides that it came back", r)
	}
	p.until("its services", func(st host.State) bool { return st.IPVS.Serves(vip) })
	again := p.fence()
	again.RunId = "run2"
	p.refuses(prepareOrder(again, p.entry), vipmovev1.Refusal_LIVE_IPVS_SERVICE)
}

// flush takes every service away, as `ipvsadm -C` does.
func (p *proxied) flush(table host.IPVS) {
	p.t.Helper()
	for _, s := range table.Services {
		switch strings.ToLower(s.Protocol) {
		case "tcp":
			p.unserve(virtualserver.TCP(s.Address.String(), s.Port))
		case "udp":
			p.unserve(virtualserver.UDP(s.Address.String(), s.Port))
		default:
			p.t.Fatalf("a service that kube-proxy was not told of: %+v", s)
		}
	}
}
