// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// findings draws every finding with its evidence and what to do about it.
func (p *printer) findings(findings []*vipmovev1.Finding) {
	if len(findings) == 0 {
		return
	}
	p.title("Findings")
	for _, f := range findings {
		p.line("%s%s %s", p.style.word(f.GetSeverity()), strings.Repeat(" ", max(0, 6-len(f.GetSeverity()))), findingText(f))
		for _, e := range f.GetEvidence() {
			p.line("         %s", p.style.paint(sgrDim, e))
		}
		if f.GetNextStep() != "" {
			p.line("         next: %s", f.GetNextStep())
		}
	}
}

// findingText is code, subject and message in one line.
func findingText(f *vipmovev1.Finding) string {
	text := f.GetCode()
	if f.GetOverridden() {
		text += " (overridden)"
	}
	if nodes := strings.Join(f.GetNodes(), ","); nodes != "" && nodes != f.GetSubject() {
		text += " " + nodes
	}
	if f.GetSubject() != "" {
		text += " " + f.GetSubject()
	}
	return text + ": " + f.GetMessage()
}

// findingLine also names the severity, for error texts.
func findingLine(f *vipmovev1.Finding) string {
	if f.GetSeverity() == "" {
		return findingText(f)
	}
	return f.GetSeverity() + " " + findingText(f)
}
