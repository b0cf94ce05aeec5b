// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lab

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
	"github.com/vipmove/vipmove/lab/prober"
)

// counts is replies per node.
func counts(l *Lab, replies []prober.Reply) map[string]int {
	byNode := make(map[string]int)
	for _, r := range replies {
		byNode[l.NodeOf(r.MAC)] += r.Count
	}
	return byNode
}

func TestSevenAnswerThenOnlyTheAnnouncerAndRequestsGoOn(t *testing.T) {
	namespacetest.Require(t)
	running := goleak.IgnoreCurrent()
	l := up(t, Config{})
	client := l.HTTPClient(5 * time.Second)

	before, err := l.Responders(t.Context(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"n1": 1, "n2": 1, "n3": 1, "n4": 2, "n5": 1, "n6": 1, "n7": 1}
	if diff := cmp.Diff(want, counts(l, before)); diff != "" {
		t.Errorf("replies per node before (-want +got):\n%s", diff)
	}
	if len(before) != 7 {
		t.Errorf("%d distinct MACs answer before, want 7", len(before))
	}
	if _, ok, err := l.FirstReply(t.Context(), 5*time.Second); err != nil || !ok {
		t.Errorf("first reply: %v, %v", ok, err)
	}
	get(t, client, l)

	for _, n := range l.Nodes() {
		if err := n.RemoveAddress(Dummy, l.HostVIP()); err != nil {
			t.Fatal(err)
		}
		get(t, client, l) // requests do not need the address
	}
	after, err := l.Responders(t.Context(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"n4": 1}, counts(l, after)); diff != "" {
		t.Errorf("replies per node after (-want +got):\n%s", diff)
	}
	left, err := l.StaleAddresses()
	if err != nil {
		t.Fatal(err)
	}
	for node, prefixes := range left {
		if len(prefixes) != 44 || slices.Contains(prefixes, l.HostVIP()) {
			t.Errorf("%s has %d addresses left on %s: %v", node, len(prefixes), Dummy, prefixes)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	goleak.VerifyNone(t, running)
}

// get makes one request through the VIP and returns the node that answered.
func get(t *testing.T, client *http.Client, l *Lab) string {
	t.Helper()
	response, err := client.Get("http://" + l.VIP().String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	node := strings.TrimSpace(string(body))
	if response.StatusCode != http.StatusOK || indexOf(node, len(l.Nodes())) == 0 {
		t.Fatalf("answer through the VIP: %s, %q", response.Status, body)
	}
	return node
}

func TestServeNeedsAddressDiesWithTheAddress(t *testing.T) {
	l := up(t, Config{Nodes: 2, ClusterIPs: -1, ServeNeedsAddress: true})
	get(t, l.HTTPClient(5*time.Second), l)
	for _, n := range l.Nodes() {
		if err := n.RemoveAddress(Dummy, l.HostVIP()); err != nil {
			t.Fatal(err)
		}
	}
	if replies, err := l.Responders(t.Context(), 300*time.Millisecond); err != nil || len(replies) != 1 {
		t.Fatalf("the announcer alone should answer: %v, %v", replies, err)
	}
	response, err := l.HTTPClient(300 * time.Millisecond).Get("http://" + l.VIP().String() + "/")
	if err == nil {
		response.Body.Close()
		t.Errorf("a request was served without the address: %s", response.Status)
	}
	for _, n := range l.Nodes() {
		if err := n.AddAddress(Dummy, l.HostVIP()); err != nil {
			t.Fatal(err)
		}
	}
	get(t, l.HTTPClient(5*time.Second), l) // and lives again with it
}

func TestAnyNodeServesTheVIPWithoutHoldingIt(t *testing.T) {
	// The announcer moves from node to node, no kernel holds the address, and the
	// client forgets its neighbour entry by being a new one: another lab's.
	for _, node := range []string{"n1", "n2"} {
		t.Run(node, func(t *testing.T) {
			l := up(t, Config{Nodes: 2, ClusterIPs: -1, Announcer: node})
			for _, n := range l.Nodes() {
				if err := n.RemoveAddress(Dummy, l.HostVIP()); err != nil {
					t.Fatal(err)
				}
			}
			if got := get(t, l.HTTPClient(5*time.Second), l); got != node {
				t.Errorf("%s served, want %s", got, node)
			}
		})
	}
}

func TestWithoutAnnouncerAndAddressNobodyAnswers(t *testing.T) {
	l := up(t, Config{Nodes: 1, ClusterIPs: -1, NoAnnouncer: true})
	if l.Announcer() != "" {
		t.Errorf("the announcer is %q", l.Announcer())
	}
	replies, err := l.Responders(t.Context(), 300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"n1": 1}, counts(l, replies)); diff != "" {
		t.Errorf("replies per node (-want +got):\n%s", diff)
	}
	if err := l.Nodes()[0].RemoveAddress(Dummy, l.HostVIP()); err != nil {
		t.Fatal(err)
	}
	if replies, err := l.Responders(t.Context(), 300*time.Millisecond); err != nil || len(replies) != 0 {
		t.Errorf("replies: %v, %v, want none", replies, err)
	}
}

func TestTwoAnnouncersCanBePlanted(t *testing.T) {
	l := up(t, Config{Nodes: 2, ClusterIPs: -1, Announcer: "n1"})
	if _, err := l.StartAnnouncer(t.Context(), "n2"); err != nil {
		t.Fatal(err)
	}
	replies, err := l.Responders(t.Context(), 300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"n1": 2, "n2": 2}, counts(l, replies)); diff != "" {
		t.Errorf("replies per node (-want +got):\n%s", diff)
	}
}

func TestEveryNodeHasWhatKubeProxyLeaves(t *testing.T) {
	l := wired(t, Config{Nodes: 2, ClusterIPs: 3})
	left, err := l.StaleAddresses()
	if err != nil {
		t.Fatal(err)
	}
	var want []netip.Prefix
	for _, p := range []string{"192.0.2.50/32", "10.96.0.1/32", "10.96.0.2/32", "10.96.0.3/32"} {
		want = append(want, netip.MustParsePrefix(p))
	}
	compare := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if diff := cmp.Diff(map[string][]netip.Prefix{"n1": want, "n2": want}, left, compare); diff != "" {
		t.Errorf("addresses on %s (-want +got):\n%s", Dummy, diff)
	}
	if kind := l.DummyKind(); kind != "dummy" && kind != "ifb" {
		t.Errorf("kind of %s is %q", Dummy, kind)
	}
}

func TestNewRefusesWhatCannotBeBuilt(t *testing.T) {
	cases := []struct {
		name   string
		config Config
		want   string
	}{
		{"too many nodes", Config{Nodes: 31}, "30"},
		{"no node at all", Config{Nodes: -1}, "between 1 and 30"},
		{"too many ClusterIPs", Config{ClusterIPs: 5000}, "4094"},
		{"a VIP of another segment", Config{VIP: netip.MustParseAddr("198.51.100.1")}, "192.0.2.0/24"},
		{"an IPv6 VIP", Config{VIP: netip.MustParseAddr("2001:db8::50")}, "192.0.2.0/24"},
		{"the broadcast address", Config{VIP: netip.MustParseAddr("192.0.2.255")}, "no host address"},
		{"the VIP of the client", Config{VIP: netip.MustParseAddr("192.0.2.1")}, "client"},
		{"the VIP of a node", Config{VIP: netip.MustParseAddr("192.0.2.13")}, "own address of n3"},
		{"an announcer that is no node", Config{Announcer: "n8"}, "n1 to n7"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(c.config)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestTheAnnouncerIsNeitherFirstNorLastByDefault(t *testing.T) {
	for nodes, want := range map[int]string{1: "n1", 2: "n2", 3: "n2", 5: "n3", 7: "n4", 10: "n6"} {
		l, err := New(Config{Nodes: nodes})
		if err != nil {
			t.Fatal(err)
		}
		if l.Announcer() != want {
			t.Errorf("of %d nodes %s announces, want %s", nodes, l.Announcer(), want)
		}
	}
}

func TestMACsAndAddressesReadLikeTheNodesNumber(t *testing.T) {
	for i, want := range map[int]string{
		1:  "n1 192.0.2.11 02:00:00:00:00:01",
		7:  "n7 192.0.2.17 02:00:00:00:00:07",
		10: "n10 192.0.2.20 02:00:00:00:00:10",
		30: "n30 192.0.2.40 02:00:00:00:00:30",
	} {
		got := nodeName(i) + " " + nodeAddress(i).String() + " " + nodeMAC(i).String()
		if got != want {
			t.Errorf("node %d is %s, want %s", i, got, want)
		}
	}
}

func TestADirectoryGivenIsKeptAndAMadeOneIsRemoved(t *testing.T) {
	given, tmp := scratch(t), []string{scratch(t), scratch(t), scratch(t)}
	for i, c := range []struct {
		config Config
		keeps  bool
	}{
		{Config{Dir: given}, true},
		{Config{}, false},
		{Config{KeepDir: true}, true},
	} {
		c.config.Nodes, c.config.ClusterIPs = 1, -1
		t.Setenv("TMPDIR", tmp[i])
		l := wired(t, c.config)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(filepath.Join(l.Dir(), "logs"))
		if kept := err == nil; kept != c.keeps {
			t.Errorf("with %q, KeepDir %v: kept %v, want %v", c.config.Dir, c.config.KeepDir, kept, c.keeps)
		}
	}
}

func TestADirectoryTooDeepForASocketIsRefused(t *testing.T) {
	l := planned(t, Config{Dir: filepath.Join(t.TempDir(), strings.Repeat("d", 100))})
	if err := l.Up(t.Context()); err == nil || !strings.Contains(err.Error(), "shorter directory") {
		t.Errorf("error is %v", err)
	}
}

func TestUpThatFailsLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", scratch(t))
	l := planned(t, Config{Nodes: 1, ClusterIPs: -1, VipmovePath: "/nonexistent/vipmove"})
	err := l.Up(t.Context())
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "server-n1") {
		t.Fatalf("error is %v", err)
	}
	if _, err := os.Stat(l.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there (%v)", l.Dir(), err)
	}
	if err := l.Nodes()[0].Do(func() error { return nil }); err == nil {
		t.Error("the node's namespace is still open")
	}
}
