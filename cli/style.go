// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// style colours text, or not.
type style struct{ on bool }

// SGR parameters, ECMA-48 section 8.3.117.
const (
	sgrBold   = "1"
	sgrDim    = "2"
	sgrRed    = "31"
	sgrGreen  = "32"
	sgrYellow = "33"
)

func (s style) paint(sgr, text string) string {
	if !s.on || sgr == "" || text == "" {
		return text
	}
	return "\x1b[" + sgr + "m" + text + "\x1b[0m"
}

// styleFor colours only on a terminal that can, and not where NO_COLOR (no-color.org) is set to anything.
func (a *app) styleFor(w io.Writer) style {
	return style{on: isTerminal(w) && a.env.Getenv("NO_COLOR") == "" && a.env.Getenv("TERM") != "dumb"}
}

// isTerminal reports whether w is a terminal that a person looks at.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// columns is the width of the terminal behind w, 80 where it cannot be told.
func columns(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

// Colours by word. A word that is not listed stays plain.
var wordColour = map[string]string{
	// verdicts
	"single": sgrGreen, "contested": sgrRed, "foreign": sgrRed, "none": sgrRed, "flux": sgrYellow, "split": sgrYellow, "unknown": sgrYellow,
	// runs
	"done": sgrGreen, "rolled-back": sgrYellow, "needs-decision": sgrRed, "paused": sgrYellow, "aborting": sgrYellow, "running": sgrBold,
	// steps
	"confirmed": sgrGreen, "verified": sgrGreen, "restored": sgrYellow, "refused": sgrRed, "applied": sgrBold, "recorded": sgrBold,
	// findings, preconditions, observers
	"refuse": sgrRed, "warn": sgrYellow, "info": sgrDim, "ok": sgrGreen, "NOT MET": sgrRed,
	"blind": sgrYellow, "cannot-probe": sgrYellow, "away": sgrYellow, "stale": sgrRed, "latent": sgrYellow,
}

func (s style) word(w string) string { return s.paint(wordColour[w], w) }
