// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"maps"
	"time"
)

// Ledger counts requests and measures the gaps between successes. It is pure:
// times are passed in, in the order in which they happened, with the monotonic
// reading that time.Now gives. Its memory does not grow. The zero value is an
// empty ledger; it is for one goroutine at a time.
type Ledger struct {
	counts  Counts
	first   time.Time // when the first request was sent
	longest time.Duration
}

// Counts is a ledger at one moment.
type Counts struct {
	// Sent counts requests begun; those that are neither succeeded nor failed
	// are under way.
	Sent, Succeeded, Failed uint64
	// ByType splits Failed. A type without failures has no entry.
	ByType map[Failure]uint64
	// LongestGap is the longest time between two successes that followed each
	// other. It does not cover the time before the first success, nor OpenGap.
	LongestGap time.Duration
	// OpenGap is the time since the last success, or since the first request
	// was sent while there is no success yet.
	OpenGap time.Duration
	// LastSuccess is when the last good answer was complete; zero: never.
	LastSuccess time.Time
	// LastError is the type and reason of the last failure.
	LastError string
}

// Sent notes that a request begins.
func (l *Ledger) Sent(at time.Time) {
	if l.counts.Sent == 0 {
		l.first = at
	}
	l.counts.Sent++
}

// Succeeded notes a good answer, complete at the given time.
func (l *Ledger) Succeeded(at time.Time) {
	l.counts.Succeeded++
	if last := l.counts.LastSuccess; !last.IsZero() {
		l.longest = max(l.longest, at.Sub(last))
		if at.Before(last) {
			return
		}
	}
	l.counts.LastSuccess = at
}

// Failed notes a failed request.
func (l *Ledger) Failed(err *RequestError) {
	l.counts.Failed++
	if l.counts.ByType == nil {
		l.counts.ByType = make(map[Failure]uint64, len(Failures))
	}
	l.counts.ByType[err.Failure]++
	l.counts.LastError = err.Error()
}

// Counts returns a copy of the ledger as it stands at the given time.
func (l *Ledger) Counts(at time.Time) Counts {
	c := l.counts
	c.ByType = maps.Clone(c.ByType)
	c.LongestGap = l.longest
	switch {
	case !c.LastSuccess.IsZero():
		c.OpenGap = max(0, at.Sub(c.LastSuccess))
	case c.Sent > 0:
		c.OpenGap = max(0, at.Sub(l.first))
	}
	return c
}
