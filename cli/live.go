// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// screen redraws a few lines in place (ECMA-48 cursor control). Not safe for concurrent use.
type screen struct {
	w     io.Writer
	width func() int
	drawn int // lines on the terminal now
}

// draw replaces what was drawn before. Every line is cut to the terminal's width: a wrapped one would be miscounted.
func (s *screen) draw(lines []string) {
	var b strings.Builder
	s.rewind(&b)
	width := s.width()
	for _, line := range lines {
		b.WriteString(cut(line, width-1) + "\x1b[K\n")
	}
	s.drawn = len(lines)
	_, _ = io.WriteString(s.w, b.String()) // a terminal that went away is no reason to stop watching
}

// clear takes away what was drawn.
func (s *screen) clear() { s.draw(nil) }

func (s *screen) rewind(b *strings.Builder) {
	if s.drawn > 0 {
		fmt.Fprintf(b, "\x1b[%dA\r", s.drawn)
	}
	b.WriteString("\x1b[J")
}

// cut shortens text to width visible characters; colour sequences count for nothing and are closed.
func cut(text string, width int) string {
	visible, coloured := 0, false
	for i := 0; i < len(text); {
		if strings.HasPrefix(text[i:], "\x1b[") {
			end := strings.IndexByte(text[i:], 'm')
			if end < 0 {
				return text[:i]
			}
			coloured = text[i:i+end+1] != "\x1b[0m"
			i += end + 1
			continue
		}
		if visible == width {
			if coloured {
				return text[:i] + "\x1b[0m"
			}
			return text[:i]
		}
		_, size := utf8.DecodeRuneInString(text[i:])
		visible++
		i += size
	}
	return text
}

// follower shows a run as it goes: redrawn on a terminal, plain lines elsewhere. Both on stderr.
type follower struct {
	a       *app
	screen  *screen // nil: plain lines
	current *vipmovev1.Run
}

func (a *app) follow() *follower {
	f := &follower{a: a}
	if isTerminal(a.env.Stderr) && a.env.Getenv("TERM") != "dumb" {
		f.screen = &screen{w: a.env.Stderr, width: func() int { return columns(a.env.Stderr) }}
	}
	return f
}

// show takes a new state of the run.
func (f *follower) show(r *vipmovev1.Run) {
	before := f.current
	f.current = r
	if f.screen != nil {
		f.redraw()
		return
	}
	for _, line := range runChanges(before, r) {
		f.a.note("%s %s", f.a.now().In(f.a.zone).Format("15:04:05.000"), line)
	}
}

// redraw lets the times go on between two states.
func (f *follower) redraw() {
	if f.screen != nil && f.current != nil {
		f.screen.draw(liveRun(f.current, f.a.now(), f.a.styleFor(f.a.env.Stderr), f.a.zone))
	}
}

// say puts a line above the view.
func (f *follower) say(format string, args ...any) {
	if f.screen != nil {
		f.screen.clear()
	}
	f.a.note(format, args...)
	f.redraw()
}

// end leaves the terminal clean for what comes next.
func (f *follower) end() {
	if f.screen != nil {
		f.screen.clear()
	}
}

// redrawEvery is how often the view's own times move.
const redrawEvery = time.Second
