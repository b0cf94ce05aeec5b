// SPDX-License-Identifier: Apache-2.0

//go:build linux

package story

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/lab"
)

// addresses are all addresses of all links of a node, as its kernel lists them now, one line each.
func (s *stage) addresses(node string) []string {
	s.t.Helper()
	var lines []string
	for _, a := range s.listed(node) {
		lines = append(lines, fmt.Sprintf("%+v", a))
	}
	slices.Sort(lines)
	return lines
}

// listed is a full and clean listing of a node's addresses.
func (s *stage) listed(node string) []host.Address {
	s.t.Helper()
	h, err := s.Host(node)
	if err != nil {
		s.t.Fatal(err)
	}
	var list []host.Address
	err = h.Do(func() error {
		k, err := host.New(host.Options{})
		if err != nil {
			return err
		}
		state, err := k.State(context.Background(), []netip.Addr{s.VIP()})
		if err == nil && len(state.Incomplete) > 0 {
			err = fmt.Errorf("listing %s: %v", node, state.Incomplete)
		}
		list = state.Addresses
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}

// tentative counts addresses that duplicate address detection still looks at.
func (s *stage) tentative() int {
	n := 0
	for _, node := range s.Nodes() {
		for _, a := range s.listed(node.Name) {
			if a.Flags&unix.IFA_F_TENTATIVE != 0 {
				n++
			}
		}
	}
	return n
}

// all lists every node's addresses by node.
func (s *stage) all() map[string][]string {
	out := map[string][]string{}
	for _, n := range s.Nodes() {
		out[n.Name] = s.addresses(n.Name)
	}
	return out
}

// withoutVIP is the listing less the VIP's own line.
func (s *stage) withoutVIP(in map[string][]string) map[string][]string {
	out := map[string][]string{}
	for node, lines := range in {
		out[node] = slices.DeleteFunc(slices.Clone(lines), func(l string) bool {
			return strings.Contains(l, s.HostVIP().String()) && strings.Contains(l, lab.Dummy)
		})
	}
	return out
}

// holders are the nodes whose kube-ipvs0 has the VIP now.
func (s *stage) holders() []string {
	s.t.Helper()
	left, err := s.StaleAddresses()
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, n := range s.Nodes() {
		if slices.Contains(left[n.Name], s.HostVIP()) {
			out = append(out, n.Name)
		}
	}
	return out
}

func (s *stage) holds(node string) bool { return slices.Contains(s.holders(), node) }

// answering is who answers by the independent prober: node -> replies to one request.
func (s *stage) answering() map[string]int {
	s.t.Helper()
	replies, err := s.Responders(context.Background(), 1200*time.Millisecond)
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]int{}
	for _, r := range replies {
		out[s.NodeOf(r.MAC)] += r.Count
	}
	return out
}

// The parts of the product's JSON that the tests read.
type (
	plan struct {
		Hash, Canary, Survivor string
		Runnable               bool
		Steps                  []struct{ Node, Role string }
		Preconditions          []struct {
			Code string
			Met  bool
		}
	}
	run struct {
		RunID, State, ReasonCode, Reason string
		RequestsSent, RequestsFailed     json.Number
		Steps                            []struct {
			Node, State, Detail string
			RemovedAt           *time.Time
			ConfirmedAt         *time.Time
		}
	}
)

func (r run) states() string {
	var out []string
	for _, s := range r.Steps {
		out = append(out, s.Node+"="+s.State)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// plan makes a plan and returns it; it need not be runnable.
func (s *stage) plan(flags ...string) plan {
	s.t.Helper()
	r := s.vipmove(slices.Concat([]string{"plan", s.VIP().String(), "-o", "json"}, quick, flags)...)
	var p plan
	if err := json.Unmarshal([]byte(r.stdout), &p); err != nil {
		s.t.Fatalf("vipmove plan: exit %d: %v\n%s%s", r.code, err, r.stdout, r.stderr)
	}
	return p
}

// start plans and starts a run that goes on in the background; wait gives the end of the command that watches it.
func (s *stage) start(flags ...string) (wait func() result) {
	s.t.Helper()
	p := s.plan(flags...)
	if !p.Runnable {
		s.t.Fatalf("the plan is not runnable: %+v", p)
	}
	done := make(chan result, 1)
	args := slices.Concat([]string{"run", s.VIP().String(), "--plan", p.Hash, "-o", "json"}, quick, flags)
	go func() { done <- s.vipmove(args...) }()
	return func() result { return <-done }
}

// latest is the newest run as the coordinator lists it.
func (s *stage) latest() run {
	s.t.Helper()
	runs, err := s.runs()
	if err != nil {
		s.t.Fatal(err)
	}
	if len(runs) == 0 {
		return run{}
	}
	return runs[0]
}

func (s *stage) runs() ([]run, error) {
	r := s.command(context.Background(), "status", "-o", "json")
	if r.code != 0 {
		return nil, fmt.Errorf("vipmove status: exit %d: %s", r.code, r.stderr)
	}
	var list struct{ Runs []run }
	return list.Runs, json.Unmarshal([]byte(r.stdout), &list)
}

// ended waits until the newest run has ended and returns it.
func (s *stage) ended() run {
	s.t.Helper()
	var last run
	s.until("the run has ended", func() bool {
		runs, err := s.runs()
		if err != nil || len(runs) == 0 {
			return false
		}
		last = runs[0]
		return slices.Contains([]string{"done", "rolled-back", "needs-decision", "paused"}, last.State)
	})
	return last
}
