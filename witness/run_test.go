// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/agent/wire"
	"github.com/vipmove/vipmove/internal/session"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// coordinator is the other end of a witness's session.
type coordinator struct {
	vipmovev1.UnimplementedObserversServer
	hello    chan *vipmovev1.Hello
	commands chan *vipmovev1.Command
	results  chan *vipmovev1.CommandResult
	replies  chan *vipmovev1.ReplyHeard

	mu       sync.Mutex
	requests *vipmovev1.Requests // the last report
	reports  int
}

func (c *coordinator) Session(s grpc.BidiStreamingServer[vipmovev1.ObserverMessage, vipmovev1.CoordinatorMessage]) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	c.hello <- first.GetHello()
	welcome := &vipmovev1.Welcome{Protocol: session.Protocol, JournalId: "j1", Term: 1}
	if err := s.Send(&vipmovev1.CoordinatorMessage{Message: &vipmovev1.CoordinatorMessage_Welcome{Welcome: welcome}}); err != nil {
		return err
	}
	var sender sync.WaitGroup
	defer sender.Wait()
	sender.Go(func() {
		for {
			select {
			case <-s.Context().Done():
				return
			case command := <-c.commands:
				_ = s.Send(&vipmovev1.CoordinatorMessage{Message: &vipmovev1.CoordinatorMessage_Command{Command: command}})
			}
		}
	})
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		c.heard(m)
	}
}

func (c *coordinator) heard(m *vipmovev1.ObserverMessage) {
	switch {
	case m.GetResult() != nil:
		c.results <- m.GetResult()
	case m.GetReplyHeard() != nil:
		select {
		case c.replies <- m.GetReplyHeard():
		default:
		}
	case m.GetRequests() != nil:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.requests = m.GetRequests()
		c.reports++
	}
}

func (c *coordinator) last() (*vipmovev1.Requests, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests, c.reports
}

// ask sends an order and waits for its result.
func (c *coordinator) ask(t testing.TB, id string, command *vipmovev1.Command) *vipmovev1.CommandResult {
	t.Helper()
	command.CommandId = id
	c.commands <- command
	result := <-c.results
	if result.GetCommandId() != id {
		t.Fatalf("a result for %q came, asked was %q", result.GetCommandId(), id)
	}
	return result
}

// reported waits for a report of requests as wanted.
func (c *coordinator) reported(t testing.TB, what string, is func(*vipmovev1.Requests) bool) *vipmovev1.Requests {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		if r, n := c.last(); n > 0 && is(r) {
			return r
		}
		select {
		case <-late:
			r, n := c.last()
			t.Fatalf("no report of %s: %d reports, the last %v", what, n, r)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// witnessed runs a witness on the client of l with a coordinator outside.
func witnessed(t *testing.T, l *lan, change func(*Options)) *coordinator {
	t.Helper()
	// By path: loopback is down in the namespace of an ordinary user's tests.
	path := filepath.Join(t.TempDir(), "coordinator")
	listener, err := net.Listen("unix", path)
	must(t, err)
	c := &coordinator{
		hello:    make(chan *vipmovev1.Hello, 8),
		commands: make(chan *vipmovev1.Command),
		results:  make(chan *vipmovev1.CommandResult, 64),
		replies:  make(chan *vipmovev1.ReplyHeard, 64),
	}
	parameters, policy := session.ServerKeepalive()
	server := grpc.NewServer(grpc.KeepaliveParams(parameters), grpc.KeepaliveEnforcementPolicy(policy))
	vipmovev1.RegisterObserversServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-served })

	o := Options{
		Name: "client", Version: "v0", Coordinators: []string{"unix:" + path},
		Target: at(80), Rate: 50, Enter: l.client.Do,
	}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want context.Canceled", err)
		}
	})
	return c
}

func TestAWitnessSaysWhoItIsAndStreamsItsRequests(t *testing.T) {
	l := newLAN(t)
	stop := l.n1.serve(t, 80, says(ok("x")))
	c := witnessed(t, l, nil)
	hello := <-c.hello
	if hello.GetNode() != "client" || hello.GetRole() != vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS || hello.GetBootId() == "" ||
		hello.GetCanAct() || hello.GetCannotActReason() != neverActs || hello.GetProtocol() != session.Protocol {
		t.Errorf("hello = %v", hello)
	}
	got := c.reported(t, "20 successes", func(r *vipmovev1.Requests) bool { return r.GetSucceeded() >= 20 })
	if got.GetWitness() != "client" || got.GetTarget() != "http://192.0.2.50:80/" || got.GetFailed() != 0 || got.GetLastError() != "" ||
		got.GetNeighbourMac() != l.n1.nic.MAC.String() || got.GetLastSuccess() == nil || got.GetAt() == nil {
		t.Errorf("report = %v", got)
	}
	stop()
	got = c.reported(t, "failures", func(r *vipmovev1.Requests) bool { return r.GetFailedByType()["refused"] >= 3 })
	if got.GetSent() < got.GetSucceeded()+got.GetFailed() || !strings.HasPrefix(got.GetLastError(), "refused: ") {
		t.Errorf("report = %v", got)
	}
}

func TestAFailureIsReportedAtOnceAndNotWithTheNextTick(t *testing.T) {
	l := newLAN(t) // nobody serves: every request fails
	c := witnessed(t, l, nil)
	c.reported(t, "a failure", func(r *vipmovev1.Requests) bool { return r.GetFailed() > 0 })
	_, before := c.last()
	began := time.Now()
	c.reported(t, "30 failures more", func(*vipmovev1.Requests) bool { _, n := c.last(); return n >= before+30 })
	if took := time.Since(began); took > 20*reportEvery {
		t.Errorf("30 reports in %s at 50 failures a second", took)
	}
}

func TestAWitnessObeysTheOrdersThatLook(t *testing.T) {
	l := newLAN(t)
	for _, n := range []*machine{l.n1, l.n2} {
		n.serve(t, 80, says(ok(n.Name())))
	}
	c := witnessed(t, l, nil)
	<-c.hello
	c.reported(t, "a success", func(r *vipmovev1.Requests) bool { return r.GetSucceeded() > 0 })

	t.Run("read the kernel", func(t *testing.T) {
		r := c.ask(t, "k1", &vipmovev1.Command{Order: &vipmovev1.Command_ReadKernel{ReadKernel: &vipmovev1.ReadKernel{Vips: []string{vip.String()}}}})
		k := r.GetKernel()
		isEntry := func(n *vipmovev1.Neighbour) bool {
			return n.GetIp() == vip.String() && n.GetMac() == l.n1.nic.MAC.String() && n.GetLink() == "eth0"
		}
		isLink := func(l *vipmovev1.Link) bool { return l.GetName() == "eth0" }
		if r.GetError() != "" || !slices.ContainsFunc(k.GetNeighbours(), isEntry) || !slices.ContainsFunc(k.GetLinks(), isLink) {
			t.Errorf("result = %v", r)
		}
	})
	t.Run("probe", func(t *testing.T) {
		r := c.ask(t, "p1", &vipmovev1.Command{Order: &vipmovev1.Command_Probe{Probe: &vipmovev1.Probe{
			Interface: "eth0", Vip: vip.String(), Window: durationpb.New(200 * time.Millisecond),
			Requests: []*vipmovev1.ProbeRequest{{Kind: vipmovev1.ProbeKind_PROBE_KIND_BROADCAST}},
		}}})
		rounds := r.GetProbe().GetRounds()
		if len(rounds) != 1 || rounds[0].GetObserver() != "client" || len(rounds[0].GetReplies()) != 1 ||
			rounds[0].GetReplies()[0].GetSenderMac() != l.n1.nic.MAC.String() {
			t.Fatalf("result = %v", r)
		}
		if heard := <-c.replies; heard.GetCommandId() != "p1" || heard.GetReply().GetSenderMac() != l.n1.nic.MAC.String() {
			t.Errorf("heard while it ran: %v", heard)
		}
	})
	t.Run("capture", func(t *testing.T) {
		r := c.ask(t, "c1", &vipmovev1.Command{Order: &vipmovev1.Command_Capture{Capture: &vipmovev1.Capture{
			Interface: "eth0", Vip: vip.String(), Duration: durationpb.New(50 * time.Millisecond),
		}}})
		if out := r.GetCapture().GetOutgoing(); !out.GetCaptured() || out.GetNode() != "client" || len(out.GetReplies()) != 0 {
			t.Errorf("result = %v", r)
		}
	})
	t.Run("watch", func(t *testing.T) {
		if r := c.ask(t, "w1", &vipmovev1.Command{Order: &vipmovev1.Command_Watch{Watch: &vipmovev1.Watch{}}}); r.GetError() != "" {
			t.Errorf("result = %v", r)
		}
	})
}

func TestAWitnessSendsRequestsThroughTheMACItIsGiven(t *testing.T) {
	l := newLAN(t)
	for _, n := range []*machine{l.n1, l.n2} {
		n.serve(t, 80, says(ok("this is "+n.Name())))
	}
	c := witnessed(t, l, func(o *Options) { o.Target.Marker = "this is n" })
	order := func(mac string, change func(*vipmovev1.SendRequests)) *vipmovev1.CommandResult {
		s := &vipmovev1.SendRequests{Interface: "eth0", Vip: vip.String(), TargetMac: mac, Count: 3, Timeout: durationpb.New(10 * time.Second)}
		if change != nil {
			change(s)
		}
		return c.ask(t, "s1", &vipmovev1.Command{Order: &vipmovev1.Command_SendRequests{SendRequests: s}})
	}
	for _, n := range []*machine{l.n2, l.n1} {
		if r := order(n.nic.MAC.String(), nil); r.GetError() != "" || r.GetSendRequests().GetSent() != 3 || r.GetSendRequests().GetSucceeded() != 3 {
			t.Errorf("through %s: %v", n.Name(), r)
		}
	}
	nobody := wire.MAC{2, 0, 0, 0, 0, 99}.String()
	short := func(s *vipmovev1.SendRequests) { s.Timeout = durationpb.New(300 * time.Millisecond) }
	if a := order(nobody, short).GetSendRequests(); a.GetFailedByType()["connect-timeout"] != 3 || !strings.HasPrefix(a.GetLastError(), "connect-timeout: ") {
		t.Errorf("through a MAC of nobody: %v", a)
	}
	for want, r := range map[string]*vipmovev1.CommandResult{
		"requesting 192.0.2.50 through x: reading the MAC: ":                        order("x", nil),
		"requesting nonsense through " + nobody + ": reading the VIP: ":             order(nobody, func(s *vipmovev1.SendRequests) { s.Vip = "nonsense" }),
		"requesting 192.0.2.50 through " + nobody + ": finding eth9: ":              order(nobody, func(s *vipmovev1.SendRequests) { s.Interface = "eth9" }),
		"requesting 192.0.2.50 through " + nobody + ": looking at lo: ":             order(nobody, func(s *vipmovev1.SendRequests) { s.Interface = "lo" }),
		"requesting through a MAC: 0 requests are not between 1 and 32":             order(nobody, func(s *vipmovev1.SendRequests) { s.Count = 0 }),
		"requesting through a MAC: ff:ff:ff:ff:ff:ff is not the MAC of one machine": order("ff:ff:ff:ff:ff:ff", nil),
	} {
		if !strings.HasPrefix(r.GetError(), want) || r.GetSendRequests().GetSent() != 0 {
			t.Errorf("result = %v\nwant  %s", r, want)
		}
	}
}

func TestAWitnessRefusesEveryOrderThatChangesANode(t *testing.T) {
	l := newLAN(t)
	c := witnessed(t, l, nil)
	for i, command := range []*vipmovev1.Command{
		{Order: &vipmovev1.Command_Prepare{Prepare: &vipmovev1.Prepare{}}},
		{Order: &vipmovev1.Command_Remove{Remove: &vipmovev1.Remove{}}},
		{Order: &vipmovev1.Command_Extend{Extend: &vipmovev1.Extend{}}},
		{Order: &vipmovev1.Command_Confirm{Confirm: &vipmovev1.Confirm{}}},
		{Order: &vipmovev1.Command_Restore{Restore: &vipmovev1.Restore{}}},
		{Order: &vipmovev1.Command_Inquire{Inquire: &vipmovev1.Inquire{}}},
		{Order: &vipmovev1.Command_Mute{Mute: &vipmovev1.Mute{}}},
		{Order: &vipmovev1.Command_Announce{Announce: &vipmovev1.Announce{}}},
	} {
		if r := c.ask(t, fmt.Sprint(i), command); r.GetRefusal().GetCode() != vipmovev1.Refusal_OBSERVE_ONLY || r.GetAnswer() != nil {
			t.Errorf("%T: %v, want OBSERVE_ONLY", command.GetOrder(), r)
		}
	}
	if r := c.ask(t, "new", &vipmovev1.Command{}); !strings.Contains(r.GetError(), "does not know that order") {
		t.Errorf("an order of a newer coordinator: %v", r)
	}
}

func TestOrdersBeyondTheBoundAreRefusedAndNotQueued(t *testing.T) {
	l := newLAN(t)
	c := witnessed(t, l, nil)
	for i := range maxOrders + 2 {
		c.commands <- &vipmovev1.Command{CommandId: fmt.Sprint(i), Order: &vipmovev1.Command_Capture{Capture: &vipmovev1.Capture{
			Interface: "eth0", Vip: vip.String(), Duration: durationpb.New(time.Minute),
		}}}
	}
	for range 2 {
		if r := <-c.results; r.GetError() != errBusy.Error() {
			t.Errorf("result = %v, want it refused: %v", r, errBusy)
		}
	}
}

func TestAWitnessThatCannotWorkSaysWhy(t *testing.T) {
	for want, o := range map[string]Options{
		"starting witness : it has no name":                  {Target: at(80)},
		"starting witness w: preparing requests: target ":    {Name: "w"},
		"starting witness w: preparing requests: rate -1 ":   {Name: "w", Target: at(80), Rate: -1},
		"starting the session: no coordinator address given": {Name: "w", Target: at(80)},
	} {
		if err := Run(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("err = %v\nwant  %s", err, want)
		}
	}
}

func TestTheSourceIsAnAddressThatTheVIPsSegmentKnows(t *testing.T) {
	address := func(link int, prefix string) host.Address {
		return host.Address{LinkIndex: link, Prefix: netip.MustParsePrefix(prefix)}
	}
	links := []host.Link{
		{Name: "eth0", Index: 2, Type: "ether", MAC: "02:00:00:00:00:01"},
		{Name: "lo", Index: 1, Type: "loopback"},
	}
	tests := []struct {
		name      string
		addresses []host.Address
		nic, want string // want empty: an error
	}{
		{"on-link before others", []host.Address{address(2, "198.51.100.1/24"), address(2, "192.0.2.1/24")}, "eth0", "192.0.2.1"},
		{"the first where none is on-link", []host.Address{address(2, "198.51.100.1/24"), address(2, "198.51.100.2/24")}, "eth0", "198.51.100.1"},
		{"never another NIC's", []host.Address{address(1, "192.0.2.1/24"), address(2, "198.51.100.1/24")}, "eth0", "198.51.100.1"},
		{"never the VIP", []host.Address{address(2, "192.0.2.50/32"), address(2, "192.0.2.1/24")}, "eth0", "192.0.2.1"},
		{"never IPv6", []host.Address{address(2, "fe80::1/64")}, "eth0", ""},
		{"no such NIC", nil, "eth1", ""},
		{"not Ethernet", []host.Address{address(1, "192.0.2.1/24")}, "lo", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, got, err := leaving(host.State{Links: links, Addresses: tt.addresses}, tt.nic, vip)
			if tt.want == "" && err == nil || tt.want != "" && (err != nil || got.String() != tt.want) {
				t.Errorf("source = %v, %v, want %s", got, err, tt.want)
			}
		})
	}
	if _, _, err := leaving(host.State{Incomplete: []string{"links were not listed"}}, "eth0", vip); err == nil || !strings.Contains(err.Error(), "not listed") {
		t.Errorf("a listing that failed: %v, want it not taken for a missing NIC", err)
	}
}
