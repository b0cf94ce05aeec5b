// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/agent/host"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

const (
	testNode  = "n1"
	testRun   = "run1"
	testHash  = "hash1"
	journal   = "j1"
	removeID  = "run1/n1/1"
	morning   = 1000 * time.Second // boot clock at the start of a story
	testTTL   = 30 * time.Second
	testDummy = "kube-ipvs0"
)

var vip = netip.MustParseAddr("192.0.2.50")

// story is one node: its kernel, its disk, and the agent process on it.
type story struct {
	t       tester
	kernel  *host.Fake
	store   *memory
	policy  Policy
	steps   *Steps
	entry   host.Tuple
	term    uint64
	orders  int
	refused map[vipmovev1.Refusal_Code]int
	online  bool
}

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	Helper()
	Context() context.Context
	Error(...any)
	Errorf(string, ...any)
	Fatal(...any)
	Fatalf(string, ...any)
}

// newStory is n1 as in CASES.md C01: the VIP and 44 ClusterIPs on kube-ipvs0.
func newStory(t tester) *story {
	t.Helper()
	s := &story{t: t, kernel: host.NewFake(), store: newMemory(), term: 1, online: true, refused: map[vipmovev1.Refusal_Code]int{}}
	s.policy = Policy{Act: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, MaxChanges: 10}
	s.kernel.SetBootTime(morning)
	s.kernel.AddNIC("eth0", "02:00:00:00:00:0b")
	s.kernel.Hold("eth0", host.Address{Prefix: netip.MustParsePrefix("192.0.2.11/24")})
	s.kernel.AddRoute(host.Route{
		Prefix: netip.MustParsePrefix("0.0.0.0/0"), Type: "unicast", Table: 254, Link: "eth0",
		Gateways: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
	})
	s.kernel.AddDummy(testDummy)
	s.entry = s.kernel.HoldIP(testDummy, vip)
	for i := 1; i <= 44; i++ {
		s.kernel.HoldIP(testDummy, netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}))
	}
	s.start()
	return s
}

// start is a new agent process on the same kernel and disk.
func (s *story) start() {
	s.t.Helper()
	steps, err := NewSteps(StepsConfig{
		Node: testNode, Policy: s.policy, Kernel: s.kernel, Store: s.store,
		Connected: func() bool { return s.online },
		OnRefusal: func(c vipmovev1.Refusal_Code) { s.refused[c]++ },
		Log:       slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.steps = steps
	steps.Recover(s.t.Context())
}

func (s *story) fence() *vipmovev1.Fence {
	boot, err := s.kernel.BootID()
	if err != nil {
		s.t.Fatal(err)
	}
	return &vipmovev1.Fence{
		JournalId: journal, Term: s.term, RunId: testRun, PlanHash: testHash, Step: testNode, Node: testNode,
		BootId: boot, DeadlineBoottime: durationpb.New(s.kernel.BootTime() + 5*time.Second),
	}
}

// change edits a fence before it is sent.
type change func(*vipmovev1.Fence)

func (s *story) send(c *vipmovev1.Command) *vipmovev1.CommandResult {
	s.orders++
	if c.CommandId == "" {
		c.CommandId = fmt.Sprintf("order%d", s.orders)
	}
	return s.steps.Order(s.t.Context(), c)
}

func (s *story) fenced(changes []change) *vipmovev1.Fence {
	f := s.fence()
	for _, c := range changes {
		c(f)
	}
	return f
}

func (s *story) prepare(changes ...change) *vipmovev1.CommandResult {
	return s.send(prepareOrder(s.fenced(changes), s.entry))
}

func (s *story) prepareEntry(entry *vipmovev1.Address, overrides []string, changes ...change) *vipmovev1.CommandResult {
	c := prepareOrder(s.fenced(changes), s.entry)
	c.GetPrepare().Entry, c.GetPrepare().Overrides = entry, overrides
	return s.send(c)
}

func (s *story) remove(id string, changes ...change) *vipmovev1.CommandResult {
	return s.send(removeOrder(s.fenced(changes), id))
}

func (s *story) extend(changes ...change) *vipmovev1.CommandResult {
	return s.send(extendOrder(s.fenced(changes), removeID))
}

func (s *story) confirm(changes ...change) *vipmovev1.CommandResult {
	return s.send(confirmOrder(s.fenced(changes), removeID))
}

func (s *story) restore(rollback bool, changes ...change) *vipmovev1.CommandResult {
	return s.send(restoreOrder(s.fenced(changes), removeID, rollback))
}

func (s *story) inquire(changes ...change) *vipmovev1.CommandResult {
	return s.send(inquireOrder(s.fenced(changes), removeID))
}

// The states, as the stories call them.
const (
	prepared      = vipmovev1.StepAnswer_STATE_PREPARED
	notSeenBefore = vipmovev1.StepAnswer_STATE_NOT_SEEN
	removed       = vipmovev1.StepAnswer_STATE_REMOVED
	alreadyAbsent = vipmovev1.StepAnswer_STATE_ALREADY_ABSENT
	confirmed     = vipmovev1.StepAnswer_STATE_CONFIRMED
	restored      = vipmovev1.StepAnswer_STATE_RESTORED
	stillPresent  = vipmovev1.StepAnswer_STATE_STILL_PRESENT
	unknown       = vipmovev1.StepAnswer_STATE_UNKNOWN
	cancelled     = vipmovev1.StepAnswer_STATE_CANCELLED
)

// expect holds an answer to its state and returns it.
func (s *story) expect(r *vipmovev1.CommandResult, want vipmovev1.StepAnswer_State) *vipmovev1.StepAnswer {
	s.t.Helper()
	if r.GetStep().GetState() != want || r.GetRefusal() != nil || r.GetError() != "" {
		s.t.Fatalf("answer is %v, want state %v", r, want)
	}
	return r.GetStep()
}

// refuses holds an answer to its refusal, with a message and a next step.
func (s *story) refuses(r *vipmovev1.CommandResult, want vipmovev1.Refusal_Code) *vipmovev1.Refusal {
	s.t.Helper()
	got := r.GetRefusal()
	if got.GetCode() != want || r.GetStep().GetState() != vipmovev1.StepAnswer_STATE_REFUSED {
		s.t.Fatalf("answer is %v, want refusal %v", r, want)
	}
	if got.GetMessage() == "" || got.GetNextStep() == "" {
		s.t.Errorf("refusal %v does not say why and what next: %v", want, got)
	}
	return got
}

// held reports whether kube-ipvs0 has the VIP.
func (s *story) held() bool {
	s.t.Helper()
	list, err := s.kernel.ListLink(s.t.Context(), s.entry.LinkIndex)
	if err != nil {
		s.t.Fatal(err)
	}
	_, ok := listed(s.entry, list)
	return ok
}

func (s *story) wantHeld(want bool) {
	s.t.Helper()
	if got := s.held(); got != want {
		s.t.Fatalf("%s held: %v, want %v", s.entry, got, want)
	}
}

// wantDeletes is how often the kernel was asked to delete anything.
func (s *story) wantDeletes(want int) {
	s.t.Helper()
	if got := s.kernel.Deletes(); len(got) != want {
		s.t.Fatalf("the kernel was asked for %d deletes, want %d: %v", len(got), want, got)
	}
}

// removedOnce is the story up to an answered removal.
func removedOnce(t *testing.T) *story {
	t.Helper()
	s := newStory(t)
	s.expect(s.prepare(), prepared)
	s.expect(s.remove(removeID), removed)
	s.wantHeld(false)
	return s
}

// pass lets time go by and the timer fire.
func (s *story) pass(d time.Duration) {
	s.kernel.Advance(d)
	s.steps.Tick(s.t.Context())
}
