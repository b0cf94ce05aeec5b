// SPDX-License-Identifier: Apache-2.0

//go:build linux

package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

// kind of a prediction.
type kind struct {
	would diagnose.Would
	cause diagnose.Cause
}

func (k kind) String() string { return fmt.Sprintf("%s: %s", k.would, k.cause) }

// tally counts draws, and predictions: each is of one request and one NIC.
type tally struct {
	draws  int
	by     map[kind]int
	caught map[string]int // draws of which a prediction without that would be wrong
}

func newTally() *tally { return &tally{by: map[kind]int{}, caught: map[string]int{}} }

func (c *tally) add(o *tally) {
	c.draws += o.draws
	for k, n := range o.by {
		c.by[k] += n
	}
	for k, n := range o.caught {
		c.caught[k] += n
	}
}

// take counts one draw.
func (c *tally) take(o outcome) {
	c.draws++
	for _, j := range o.judged {
		c.by[kind{j.predicted.Would, j.predicted.Cause}]++
	}
	for name, forget := range forgotten {
		k := *o.node.Kernel
		k.Links, k.Addresses, k.Routes = slices.Clone(k.Links), slices.Clone(k.Addresses), slices.Clone(k.Routes)
		forget(&k)
		less := o.node
		less.Kernel = &k
		for _, j := range o.judged {
			j.predicted = diagnose.WouldAnswer(less, j.hearer, j.vip, diagnose.From(j.sender))
			if j.wrong() {
				c.caught[name]++
				break
			}
		}
	}
}

func (c *tally) total() int {
	sum := 0
	for _, n := range c.by {
		sum += n
	}
	return sum
}

func (c *tally) String() string {
	return fmt.Sprintf("%d draws, %d predictions:\n%sdraws where one would be wrong without\n%s", c.draws, c.total(), listed(c.by), listed(c.caught))
}

func listed[K comparable](counts map[K]int) string {
	var lines []string
	for k, n := range counts {
		lines = append(lines, fmt.Sprintf("\t%6d %v\n", n, k))
	}
	slices.SortFunc(lines, func(a, b string) int { return cmp.Compare(b, a) })
	return strings.Join(lines, "")
}

// covers makes sure that the draws were of all kinds and few unknown, and that
// they would have shown a prediction that overlooks something.
func (c *tally) covers(t *testing.T) {
	t.Helper()
	for _, k := range []kind{
		{diagnose.AnswerYes, diagnose.CauseLocal}, {diagnose.AnswerYes, diagnose.CauseProxy}, {diagnose.AnswerNo, diagnose.CauseNotLocal},
		{diagnose.AnswerNo, diagnose.CauseArpIgnore}, {diagnose.AnswerNo, diagnose.CauseArpFilter}, {diagnose.AnswerNo, diagnose.CauseSource},
		{diagnose.AnswerNo, diagnose.CauseMartian}, {diagnose.AnswerNo, diagnose.CauseNIC},
	} {
		if c.by[k] == 0 {
			t.Errorf("no draw was %s", k)
		}
	}
	if unknown := c.by[kind{diagnose.AnswerUnknown, diagnose.CauseUnknown}]; unknown*30 > c.total() {
		t.Errorf("%d of %d predictions are unknown, more than one in thirty", unknown, c.total())
	}
	for name := range forgotten {
		if c.caught[name] == 0 && (c.draws >= 5000 || !slices.Contains(rare, name)) {
			t.Errorf("no draw shows a prediction that overlooks %s", name)
		}
	}
}
