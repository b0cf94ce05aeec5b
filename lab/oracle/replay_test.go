// SPDX-License-Identifier: Apache-2.0

//go:build linux

package oracle

import (
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
)

// What is printed is for a person to type: the commands make the very node that
// was asked.
func TestThePrintedCommandsMakeTheSameNode(t *testing.T) {
	namespacetest.Require(t)
	for _, tool := range []string{"ip", "sysctl", "sh"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%v is needed under CI=true (.ci/run installs it)", err)
			}
			t.Skip(err)
		}
	}
	w := newWorld(t, 1, true, false)
	for number := range uint64(40) {
		c, _ := newDice(1, number).draw(w)
		check(t, w.node.reset())
		done, err := c.apply(w.node)
		check(t, err)
		want, err := w.node.listing()
		check(t, err)
		check(t, w.node.reset())
		script := exec.Command("sh", "-e", "-c", done.String())
		var said strings.Builder
		script.Stderr = &said
		check(t, w.node.Start(script))
		if err := script.Wait(); err != nil {
			t.Fatalf("draw %d: %v: %s\n%s", number, err, &said, done)
		}
		got, err := w.node.listing()
		check(t, err)
		if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
			t.Errorf("draw %d: by hand it is another node (-want +got):\n%s%s", number, diff, done)
		}
	}
}

func TestTheSameSeedDrawsTheSame(t *testing.T) {
	w := &world{localRoutes: true}
	c, q := newDice(7, 3).draw(w)
	again, asked := newDice(7, 3).draw(w)
	if c.String() != again.String() || !cmp.Equal(q, asked, cmp.AllowUnexported(question{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) {
		t.Errorf("drawn twice:\n%s%v\n%s%v", c, q, again, asked)
	}
	if other, _ := newDice(7, 4).draw(w); other.String() == c.String() {
		t.Errorf("draws 3 and 4 are the same:\n%s", c)
	}
}

// A prediction that knows of no address is wrong here, and of all that was set up
// the address alone is to blame.
func TestADifferenceIsFoundAndShrunk(t *testing.T) {
	namespacetest.Require(t)
	w := newWorld(t, 2, false, false)
	held := address{verb: "add", link: "kube-ipvs0", prefix: netip.MustParsePrefix("192.0.2.50/32")}
	c := configuration{
		setting{"eth0", "rp_filter", 2}, setting{"eth1", "arp_ignore", 1}, setting{"all", "accept_local", 1},
		address{verb: "add", link: "eth0", prefix: netip.MustParsePrefix("192.0.2.11/24")},
		held, link{"kube-ipvs0", "up"},
	}
	q := question{vip: netip.MustParseAddr("192.0.2.50"), sender: netip.MustParseAddr("192.0.2.1"), nic: "eth0", broadcast: true}
	blind := func(n diagnose.Node, nic string, vip netip.Addr, s diagnose.Sender) diagnose.Answer {
		k := *n.Kernel
		k.Addresses, k.Routes = nil, nil
		n.Kernel = &k
		return diagnose.WouldAnswer(n, nic, vip, s)
	}
	o, err := w.put(t.Context(), c, []question{q}, blind)
	check(t, err)
	if len(o.judged) != 1 || !o.judged[0].wrong() || len(o.done) != len(c) {
		t.Fatalf("no difference: %v\n%s", o.judged, o.done)
	}
	less, j := w.shrink(t.Context(), o.done, o.judged[0], blind)
	if diff := cmp.Diff("\t"+held.String()+"\n", less.String()); diff != "" {
		t.Errorf("shrunk to (-want +got):\n%s", diff)
	}
	if want := "who has 192.0.2.50 tell 192.0.2.1, broadcast on the segment of eth0: eth0 was predicted: no"; !strings.HasPrefix(j.String(), want) {
		t.Errorf("it says %q, want %q first", j, want)
	}
}

// What a step leaves behind would be a part of the next draw that no one sees.
func TestResetSaysWhatIsLeft(t *testing.T) {
	namespacetest.Require(t)
	w := newWorld(t, 1, false, false)
	w.node.made += "route that is gone\n"
	if err := w.node.reset(); err == nil || !strings.Contains(err.Error(), "route that is gone") {
		t.Errorf("reset: %v, want an error with the route", err)
	}
}

func TestAStepThatTheKernelRefusesIsNoPartOfIt(t *testing.T) {
	namespacetest.Require(t)
	w := newWorld(t, 1, false, false)
	held := address{verb: "add", link: "eth0", prefix: netip.MustParsePrefix("192.0.2.50/32")}
	byDown := route{verb: "add", kind: "unicast", prefix: netip.MustParsePrefix("192.0.2.50/32"), links: []string{"kube-ipvs0"}, table: tableMain}
	done, err := configuration{held, held, byDown}.apply(w.node)
	check(t, err)
	if diff := cmp.Diff(configuration{held}.String(), done.String()); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
	if _, err := (configuration{setting{"eth9", "rp_filter", 1}}).apply(w.node); err == nil {
		t.Error("a link that does not exist is no error")
	}
}
