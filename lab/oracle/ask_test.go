// SPDX-License-Identifier: Apache-2.0

//go:build linux

package oracle

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/lab/prober"
)

// question is one ARP request.
type question struct {
	vip, sender netip.Addr
	nic         string // whose segment it is asked on, and whose MAC it is sent to unless
	broadcast   bool   // it is a broadcast
}

func (q question) String() string {
	to := "unicast to " + q.nic
	if q.broadcast {
		to = "broadcast on the segment of " + q.nic
	}
	return fmt.Sprintf("who has %s tell %s, %s", q.vip, q.sender, to)
}

// hearers are the NICs that the request reaches.
func (w *world) hearers(q question) []string {
	if q.broadcast && w.bridges == 1 {
		return nics
	}
	return []string{q.nic}
}

// ask sends the request and counts the replies of each NIC inside the window.
func (w *world) ask(ctx context.Context, q question, window time.Duration) (map[string]int, error) {
	r := prober.Request{Interface: "a0", Target: q.vip, Sender: q.sender}
	if w.bridges == 2 && q.nic == "eth1" {
		r.Interface = "a1"
	}
	if !q.broadcast {
		r.Destination = w.mac[q.nic]
	}
	var replies []prober.Reply
	err := w.asker.Do(func() (err error) {
		replies, err = prober.Ask(ctx, r, window)
		return err
	})
	heard := map[string]int{}
	for _, reply := range replies {
		for nic, mac := range w.mac {
			if mac.String() == reply.MAC.String() {
				heard[nic] += reply.Count
			}
		}
	}
	return heard, err
}

// judged is one prediction, and what the kernel did.
type judged struct {
	question
	hearer    string
	predicted diagnose.Answer
	heard     int // replies
}

func (j judged) String() string {
	return fmt.Sprintf("%s: %s was predicted: %s (%s: %s); it sent %d replies",
		j.question, j.hearer, j.predicted.Would, j.predicted.Cause, j.predicted.Reason, j.heard)
}

// wrong says whether the kernel did not do what was predicted. It answers once,
// or not at all. Nothing is wrong about an unknown prediction.
func (j judged) wrong() bool {
	switch j.predicted.Would {
	case diagnose.AnswerYes:
		return j.heard != 1
	case diagnose.AnswerNo:
		return j.heard != 0
	}
	return false
}

// outcome of one configuration.
type outcome struct {
	done   configuration
	node   diagnose.Node // what was read of it
	judged []judged
}

// put makes the configuration, asks all questions at once, and compares.
func (w *world) put(ctx context.Context, c configuration, questions []question, predict predictor) (outcome, error) {
	if err := w.node.reset(); err != nil {
		return outcome{}, err
	}
	for _, nic := range nics {
		if err := w.ready(nic); err != nil {
			return outcome{}, err
		}
	}
	done, err := c.apply(w.node)
	if err != nil {
		return outcome{}, err
	}
	var watched []netip.Addr
	for _, q := range questions {
		watched = append(watched, q.vip, q.sender)
	}
	node, err := w.read(ctx, watched)
	if err != nil {
		return outcome{}, err
	}
	results, errs := make([][]judged, len(questions)), make([]error, len(questions))
	var wait sync.WaitGroup
	for i, q := range questions {
		wait.Go(func() { results[i], errs[i] = w.compare(ctx, node, q, predict) })
	}
	wait.Wait()
	o := outcome{done: done, node: node}
	for i := range results {
		if errs[i] != nil {
			return outcome{}, errs[i]
		}
		o.judged = append(o.judged, results[i]...)
	}
	return o, nil
}

// predictor is diagnose.WouldAnswer, or something that is not as good.
type predictor func(n diagnose.Node, nic string, vip netip.Addr, sender diagnose.Sender) diagnose.Answer

// windows to listen in. A kernel answers in the softirq that takes the request,
// so the first is long; an answer that was predicted and did not come may be
// late on a busy machine, one that came was sent.
var windows = []time.Duration{60 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}

func (w *world) compare(ctx context.Context, n diagnose.Node, q question, predict predictor) ([]judged, error) {
	var all []judged
	for _, window := range windows {
		heard, err := w.ask(ctx, q, window)
		if err != nil {
			return nil, err
		}
		all = nil
		missing := false
		for _, nic := range w.hearers(q) {
			j := judged{question: q, hearer: nic, heard: heard[nic], predicted: predict(n, nic, q.vip, diagnose.From(q.sender))}
			missing = missing || j.predicted.Would == diagnose.AnswerYes && j.heard == 0
			all = append(all, j)
		}
		if !missing {
			break
		}
	}
	return all, nil
}
