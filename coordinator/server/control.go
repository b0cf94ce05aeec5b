// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// control serves the operator's calls.
type control struct {
	vipmovev1.UnimplementedControlServer
	*Server
}

// ListNodes implements Control.
func (c *control) ListNodes(ctx context.Context, _ *vipmovev1.ListNodesRequest) (*vipmovev1.ListNodesResponse, error) {
	if _, err := operator(ctx); err != nil {
		return nil, err
	}
	return &vipmovev1.ListNodesResponse{Nodes: c.fleet.Nodes(), Requests: c.fleet.Requests()}, nil
}

// rowsWaiting bounds the rows that wait for a slow operator. What finds no place is not shown: the judgement
// at the end has all, and no agent waits for a terminal.
const rowsWaiting = 256

// Survey implements Control. Replies are streamed while they are heard.
func (c *control) Survey(req *vipmovev1.SurveyRequest, stream grpc.ServerStreamingServer[vipmovev1.SurveyEvent]) error {
	if _, err := operator(stream.Context()); err != nil {
		return err
	}
	q, err := c.query(req)
	if err != nil {
		return err
	}
	rows := make(chan *vipmovev1.SurveyEvent, rowsWaiting)
	show := func(e *vipmovev1.SurveyEvent) {
		select {
		case rows <- e:
		default:
		}
	}
	q.Heard = func(observer, nic string, h *vipmovev1.ReplyHeard) {
		show(&vipmovev1.SurveyEvent{Event: &vipmovev1.SurveyEvent_Heard{Heard: &vipmovev1.HeardEvent{Observer: observer, Interface: nic, Reply: h.GetReply(), Kind: h.GetKind()}}})
	}
	q.Progress = func(s string) {
		show(&vipmovev1.SurveyEvent{Event: &vipmovev1.SurveyEvent_Progress{Progress: s}})
	}
	ctx, cancel := context.WithCancel(stream.Context())
	sent := make(chan error, 1)
	go func() { sent <- sendRows(stream, rows, cancel) }()
	v, err := c.look(ctx, q)
	close(rows) // nothing is heard after the look
	if sendErr := <-sent; err == nil || sendErr != nil {
		err = sendErr
	}
	cancel()
	if err != nil {
		return err
	}
	judged := snapshot.ReportToProto(diagnose.Judge(v.snap), c.now())
	return stream.Send(&vipmovev1.SurveyEvent{Event: &vipmovev1.SurveyEvent_Judgement{Judgement: judged}})
}

// sendRows sends until rows is closed. When nobody reads any more, stop ends the look.
func sendRows(stream grpc.ServerStreamingServer[vipmovev1.SurveyEvent], rows <-chan *vipmovev1.SurveyEvent, stop func()) error {
	for e := range rows {
		if err := stream.Send(e); err != nil {
			stop()
			return err
		}
	}
	return nil
}

// look looks for an operator, one at a time: all of them together spend the probe budget of one, so that
// enough is left for a run, whose looks wait for nobody.
func (c *control) look(ctx context.Context, q query) (sight, error) {
	select {
	case c.turn <- struct{}{}:
	default:
		if q.Progress != nil {
			q.Progress("waiting for another operator's look")
		}
		select {
		case c.turn <- struct{}{}:
		case <-ctx.Done():
			return sight{}, status.FromContextError(ctx.Err()).Err()
		}
	}
	defer func() { <-c.turn }()
	return c.survey.look(ctx, q)
}

// Bounds of what an operator may ask of a look.
const (
	longestWindow = 30 * time.Second
	highestRounds = 10
)

func (c *control) query(req *vipmovev1.SurveyRequest) (query, error) {
	vip, err := address(req.GetVip())
	if err != nil {
		return query{}, err
	}
	window := req.GetWindow().AsDuration()
	switch {
	case req.GetRounds() > highestRounds:
		return query{}, status.Errorf(codes.InvalidArgument, "%d rounds are too many, at most %d", req.GetRounds(), highestRounds)
	case window < 0 || window > longestWindow:
		return query{}, status.Errorf(codes.InvalidArgument, "a window of %s: give a time up to %s", window, longestWindow)
	}
	if id := c.driver.active(); req.GetMute() && id != "" {
		return query{}, status.Errorf(codes.FailedPrecondition, "run %s is under way, and nothing is muted beside a run; look without --mute, or wait for its end", id)
	}
	return query{VIP: vip, Interface: req.GetInterface(), Rounds: int(req.GetRounds()), Window: window, Mute: req.GetMute()}, c.anyAgent()
}

func (c *control) anyAgent() error {
	for _, n := range c.fleet.Nodes() {
		if n.GetConnected() && n.GetRole() == vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT {
			return nil
		}
	}
	return status.Error(codes.FailedPrecondition, "no agent is connected, so nothing can be seen; start the agents (kubectl rollout status daemonset/vipmove-agent) and look at: vipmove nodes")
}

// TakeSnapshot implements Control.
func (c *control) TakeSnapshot(ctx context.Context, req *vipmovev1.TakeSnapshotRequest) (*vipmovev1.TakeSnapshotResponse, error) {
	if _, err := operator(ctx); err != nil {
		return nil, err
	}
	q, err := c.query(req.GetSurvey())
	if err != nil {
		return nil, err
	}
	v, err := c.look(ctx, q)
	if err != nil {
		return nil, err
	}
	return &vipmovev1.TakeSnapshotResponse{Snapshot: v.wire}, nil
}

// WatchRun implements Control: the run now, then at every change and twice a second while it lasts.
func (c *control) WatchRun(req *vipmovev1.WatchRunRequest, stream grpc.ServerStreamingServer[vipmovev1.WatchRunResponse]) error {
	if _, err := operator(stream.Context()); err != nil {
		return err
	}
	for {
		v, changed, ok := c.driver.view(req.GetRunId())
		if !ok {
			return c.noRun(req.GetRunId())
		}
		if err := stream.Send(&vipmovev1.WatchRunResponse{Run: runTo(v, c.fleet.Requests())}); err != nil {
			return err
		}
		if v.run.Ended() {
			return nil
		}
		ctx, cancel := context.WithTimeout(stream.Context(), watchEvery)
		select {
		case <-changed:
		case <-ctx.Done():
		}
		cancel()
		if err := stream.Context().Err(); err != nil {
			return status.FromContextError(err).Err()
		}
	}
}

func (c *control) noRun(id string) error {
	return status.Errorf(codes.NotFound, "no run %q; known runs: %s", id, orText(strings.Join(c.driver.ids(), " "), "none"))
}

// ListRuns implements Control, newest first and without their final judgements: WatchRun has those.
func (c *control) ListRuns(ctx context.Context, _ *vipmovev1.ListRunsRequest) (*vipmovev1.ListRunsResponse, error) {
	if _, err := operator(ctx); err != nil {
		return nil, err
	}
	out := &vipmovev1.ListRunsResponse{}
	ids := c.driver.ids()
	for i := len(ids) - 1; i >= 0; i-- {
		if v, _, ok := c.driver.view(ids[i]); ok {
			v.after = nil
			out.Runs = append(out.Runs, runTo(v, nil))
		}
	}
	return out, nil
}
