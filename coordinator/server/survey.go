// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/fleet"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// Windows and bounds of docs/design.md section 4.
const (
	defaultWindow         = 1200 * time.Millisecond // proxy ARP answers up to 0.8 s late
	defaultQuestionWindow = 500 * time.Millisecond  // announcers answer within milliseconds, the kernel never
	readTimeout           = 3 * time.Second
	answerSlack           = 5 * time.Second        // beyond a window, until an answer counts as lost
	captureLead           = 100 * time.Millisecond // for sockets to open before the first request leaves
	captureTail           = 300 * time.Millisecond // for rounds that begin late
	mostObservers         = 5
	stepObservers         = 3
	planRounds            = 3
	mostRounds            = 3
	nicRate               = 5 // ARP requests a second that a NIC's budget lets through
)

// surveyor collects snapshots from the fleet. It changes nothing anywhere, but for the mutes of a query that asks for them.
type surveyor struct {
	fleet          *fleet.Fleet
	ids            func() string
	fence          func(node string) (*vipmovev1.Fence, error) // of a mute
	now            func() time.Time
	window         time.Duration
	questionWindow time.Duration
}

// query says what to look at and how closely.
type query struct {
	VIP       netip.Addr
	Interface string
	Without   []string
	Rounds    int // 0: one, and up to three where observers disagree
	Window    time.Duration
	Step      string // node under the knife: not an observer, and its NIC's outgoing replies are evidence
	Survivor  string // with Step: the one node that is asked the announcer question …
	WhoElse   bool   // … unless it does not answer: then everybody is
	Mute      bool   // mute one responder's kernel after the other, and see who remains
	Heard     func(observer, nic string, h *vipmovev1.ReplyHeard)
	Progress  func(string)
}

// sight is a snapshot in both forms: as it travels, and as it is judged.
type sight struct {
	wire *vipmovev1.Snapshot
	snap diagnose.Snapshot
}

// look reads every node's kernel, asks the wire, and returns all of it.
func (s *surveyor) look(ctx context.Context, q query) (sight, error) {
	if q.Window <= 0 {
		q.Window = s.window
	}
	if q.Progress == nil {
		q.Progress = func(string) {}
	}
	wire := &vipmovev1.Snapshot{SchemaVersion: snapshot.SchemaVersion, TakenAt: timestamppb.New(s.now()), Vip: q.VIP.String(), Interface: q.Interface}
	q.Progress("reading what the kernels hold")
	wire.Nodes = s.readKernels(ctx, q.VIP)
	v, err := s.convert(wire, q)
	if err != nil {
		return v, err
	}
	seg, _ := diagnose.SegmentOf(v.snap)
	panel := choosePanel(v.snap, seg, q)
	if len(panel) > 0 {
		s.ask(ctx, q, seg, panel, &v)
	}
	if err := ctx.Err(); err != nil {
		return v, fmt.Errorf("looking who answers for %s: %w", q.VIP, err)
	}
	wire.Requests = s.fleet.Requests()
	return s.convert(wire, q)
}

func (s *surveyor) convert(wire *vipmovev1.Snapshot, q query) (sight, error) {
	snap, err := snapshot.FromProto(wire)
	if err != nil {
		return sight{wire: wire}, fmt.Errorf("reading the evidence about %s: %w", q.VIP, err)
	}
	snap.Without = q.Without
	return sight{wire: wire, snap: snap}, nil
}

// readKernels asks all connected observers at once. A node that does not answer in time stays without
// kernel state: unknown, never empty.
func (s *surveyor) readKernels(ctx context.Context, vip netip.Addr) []*vipmovev1.Node {
	nodes := s.fleet.Nodes()
	var wg sync.WaitGroup
	for _, n := range nodes {
		if n.Connected {
			wg.Go(func() { n.Kernel = s.readKernel(ctx, n.Name, vip) })
		}
	}
	wg.Wait()
	return nodes
}

func (s *surveyor) readKernel(ctx context.Context, node string, vip netip.Addr) *vipmovev1.KernelState {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	r, err := s.fleet.Do(ctx, node, &vipmovev1.Command{CommandId: s.ids(), Order: &vipmovev1.Command_ReadKernel{
		ReadKernel: &vipmovev1.ReadKernel{Vips: []string{vip.String()}}}}, nil)
	switch {
	case err != nil:
		return nil
	case r.GetKernel() == nil:
		return &vipmovev1.KernelState{Incomplete: []string{"reading the kernel's state: " + orText(r.GetError(), "the node gave none")}}
	}
	return r.GetKernel()
}

// ask runs the rounds and, after them, the announcer question; outgoing replies are captured meanwhile.
func (s *surveyor) ask(ctx context.Context, q query, seg diagnose.Segment, panel []observer, v *sight) {
	rounds := max(q.Rounds, 1)
	length := captureLead + time.Duration(rounds)*q.Window + captureTail
	if q.Step == "" || q.WhoElse {
		length += time.Duration(rounds) * s.questionWindow
	}
	captured := s.capture(ctx, q, seg, v, length)
	pause(ctx, captureLead)
	for n := 1; n <= rounds && ctx.Err() == nil; n++ {
		q.Progress(fmt.Sprintf("asking the wire, round %d of %d, %d observers", n, rounds, len(panel)))
		v.wire.Rounds = append(v.wire.Rounds, s.round(ctx, q, panel, n, survivorQuestions(q, panel, v.snap, seg))...)
		if q.Rounds == 0 && n == rounds && n < mostRounds && s.disagree(v, q) {
			rounds++
		}
	}
	s.askAnnouncers(ctx, q, panel, v)
	v.wire.Outgoing = captured()
	s.muteEach(ctx, q, seg, panel, v)
}

// askAnnouncers puts the announcer question to every responder. At a step the survivor was asked within the
// round; everybody else is asked only to find out who took its place.
func (s *surveyor) askAnnouncers(ctx context.Context, q query, panel []observer, v *sight) {
	if q.Step != "" && !q.WhoElse {
		return
	}
	again, err := s.convert(v.wire, q)
	if err != nil || q.Step != "" && announces(again.snap, q.Survivor) {
		return // an error comes up again at the end of the look
	}
	duty := shareQuestions(again.snap, panel)
	rounds := max(q.Rounds, 1)
	for n := 1; n <= rounds && ctx.Err() == nil; n++ {
		q.Progress(fmt.Sprintf("asking every responder the announcer question, round %d of %d", n, rounds))
		v.wire.Rounds = append(v.wire.Rounds, s.questions(ctx, q, panel, n, duty)...)
	}
}

// announces: this node answered the announcer question.
func announces(snap diagnose.Snapshot, node string) bool {
	return slices.ContainsFunc(diagnose.Judge(snap).Responders, func(r diagnose.Responder) bool { return r.Node == node && r.AnswersQuestion })
}

func (s *surveyor) disagree(v *sight, q query) bool {
	again, err := s.convert(v.wire, q)
	if err != nil {
		return false
	}
	verdict := diagnose.Judge(again.snap).Verdict
	return verdict == diagnose.VerdictSplit || verdict == diagnose.VerdictUnknown
}

// capture opens sockets on all protocols for outgoing replies, for as long as the rounds take. The
// returned function waits for them and returns what they saw, by node.
func (s *surveyor) capture(ctx context.Context, q query, seg diagnose.Segment, v *sight, length time.Duration) func() []*vipmovev1.Outgoing {
	ctx, cancel := context.WithTimeout(ctx, length+answerSlack)
	var mu sync.Mutex
	var wg sync.WaitGroup
	var all []*vipmovev1.Outgoing
	for node, nic := range seg.Interfaces {
		if n := findNode(v.snap, node); n == nil || !n.Connected || n.Role != diagnose.RoleAgent || q.Step != "" && node != q.Step && node != q.Survivor {
			continue
		}
		wg.Go(func() {
			out := s.captureOn(ctx, node, nic, q.VIP, length)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, out)
		})
	}
	return func() []*vipmovev1.Outgoing {
		wg.Wait()
		cancel()
		slices.SortFunc(all, func(a, b *vipmovev1.Outgoing) int { return strings.Compare(a.Node, b.Node) })
		return all
	}
}

// captureOn: a capture that was not made, or whose answer is lost, says why and proves nothing.
func (s *surveyor) captureOn(ctx context.Context, node, nic string, vip netip.Addr, length time.Duration) *vipmovev1.Outgoing {
	r, err := s.fleet.Do(ctx, node, &vipmovev1.Command{CommandId: s.ids(), Order: &vipmovev1.Command_Capture{
		Capture: &vipmovev1.Capture{Interface: nic, Vip: vip.String(), Duration: durationpb.New(length)}}}, nil)
	switch out := r.GetCapture().GetOutgoing(); {
	case err != nil:
		return &vipmovev1.Outgoing{Node: node, Interface: nic, Vip: vip.String(), Error: err.Error()}
	case out == nil:
		return &vipmovev1.Outgoing{Node: node, Interface: nic, Vip: vip.String(), Error: orText(r.GetError(), "it gave no answer about its capture")}
	default:
		out.Node = node // by its certificate, whatever it says
		return out
	}
}
