// SPDX-License-Identifier: Apache-2.0

//go:build linux

package namespace_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vipmove/vipmove/lab/namespace"
	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
)

func TestNewNamespaceHasOnlyALoopbackAndItIsUp(t *testing.T) {
	n := namespacetest.NewT(t, "n1")
	var names []string
	err := n.Do(func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			// Kernels with tunnel modules loaded put their fallback links into every namespace.
			if l.Attrs().Flags&net.FlagUp != 0 {
				names = append(names, l.Attrs().Name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"lo"}, names); diff != "" {
		t.Errorf("links that are up (-want +got):\n%s", diff)
	}
}

func TestDoNeverLeavesAThreadInsideTheNamespace(t *testing.T) {
	n := namespacetest.NewT(t, "n1")
	home := readlink(t, "/proc/self/ns/net")
	var group sync.WaitGroup
	for range 32 {
		group.Go(func() {
			if err := n.Do(func() error { return nil }); err != nil {
				t.Error(err)
			}
		})
		group.Go(func() {
			if err := n.Do(func() error { return errors.New("on purpose") }); err == nil {
				t.Error("the function's error was lost")
			}
		})
		group.Go(func() { // what t.Fatal inside Do does
			err := n.Do(func() error { runtime.Goexit(); return nil })
			if err == nil {
				t.Error("a function that ended its goroutine passed for success")
			}
		})
	}
	group.Wait()

	tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(tasks) == 0 {
		t.Fatalf("listing this process's threads: %v, %d found", err, len(tasks))
	}
	for _, task := range tasks {
		got, err := os.Readlink(task)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		if got != home {
			// A thread locked by Goexit may be about to end; it must not survive.
			waitGone(t, filepath.Dir(filepath.Dir(task)))
		}
	}
}

func TestDoRunsInsideAndTheProcessStaysOutside(t *testing.T) {
	n := namespacetest.NewT(t, "n1")
	before := readlink(t, "/proc/self/ns/net")
	var in, leader string
	var tid int
	err := n.Do(func() (err error) {
		tid = unix.Gettid()
		if in, err = os.Readlink("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		leader, err = os.Readlink("/proc/self/ns/net")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if in == before {
		t.Errorf("the function ran in the namespace of the process, %s", in)
	}
	if leader != before {
		t.Errorf("the thread group leader moved to %s", leader)
	}
	if tid == os.Getpid() {
		t.Error("the function ran on the thread group leader")
	}
}

func TestEveryNamespaceIsItsOwn(t *testing.T) {
	a, b := namespacetest.NewT(t, "n1"), namespacetest.NewT(t, "n2")
	if x, y := identity(t, a), identity(t, b); x == y {
		t.Errorf("n1 and n2 are one namespace: %s", x)
	}
}

func TestStartPutsTheCommandInside(t *testing.T) {
	n := namespacetest.NewT(t, "n1")
	var out bytes.Buffer
	cmd := exec.Command("readlink", "/proc/self/ns/net")
	cmd.Stdout = &out
	if err := n.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.TrimSpace(out.String()), identity(t, n); got != want {
		t.Errorf("command ran in %s, want %s", got, want)
	}
}

func TestClosedNamespaceRefusesEverythingAndSaysSo(t *testing.T) {
	n := namespacetest.NewT(t, "n1")
	other := namespacetest.NewT(t, "switch")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	_, dummyErr := n.AddDummy("kube-ipvs0")
	for name, err := range map[string]error{
		"Do":         n.Do(func() error { t.Error("function ran"); return nil }),
		"Start":      n.Start(exec.Command("true")),
		"AddBridge":  n.AddBridge("br0"),
		"AddAddress": n.AddAddress("lo", netip.MustParsePrefix("192.0.2.1/32")),
		"AddDummy":   dummyErr,
		"SetSysctl":  n.SetSysctl("net/ipv4/ip_forward", "1"),
		"Connect":    namespace.Connect(n, "eth0", nil, other, "br0", "port1"),
	} {
		if !errors.Is(err, namespace.ErrClosed) {
			t.Errorf("%s after Close: %v, want ErrClosed", name, err)
		}
	}
}

func TestCloseWaitsForNobodyAndTakesNothingAwayFromWhoIsInside(t *testing.T) {
	n := namespacetest.NewT(t, "n1")
	err := n.Do(func() error {
		if err := n.Close(); err != nil {
			return err
		}
		if err := n.Do(func() error { return nil }); !errors.Is(err, namespace.ErrClosed) {
			t.Errorf("entering after Close: %v, want ErrClosed", err)
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0") // still inside
		if err != nil {
			return err
		}
		return listener.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestErrorsNameTheNamespaceAndTheThing(t *testing.T) {
	n, sw := namespacetest.NewT(t, "n1"), namespacetest.NewT(t, "switch")
	cases := []struct {
		err  error
		want []string
	}{
		{n.AddAddress("eth7", netip.MustParsePrefix("192.0.2.1/32")), []string{"n1", "eth7"}},
		{n.AddAddress("lo", netip.MustParsePrefix("127.0.0.1/8")), []string{"n1", "lo", "127.0.0.1/8", "file exists"}},
		{n.SetSysctl("net/ipv4/conf/eth7/arp_ignore", "1"), []string{"net/ipv4/conf/eth7/arp_ignore"}},
		{namespace.Connect(n, "eth0", nil, sw, "br7", "port1"), []string{"n1", "eth0", "switch", "br7"}},
	}
	for _, c := range cases {
		if c.err == nil {
			t.Errorf("no error, want one with %q", c.want)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(c.err.Error(), want) {
				t.Errorf("error %q does not say %q", c.err, want)
			}
		}
	}
}

func readlink(t *testing.T, path string) string {
	t.Helper()
	target, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func identity(t *testing.T, n *namespace.Namespace) string {
	t.Helper()
	var id string
	err := n.Do(func() (err error) {
		id, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		t.Fatal(fmt.Errorf("reading the identity of %s: %w", n.Name(), err))
	}
	return id
}
