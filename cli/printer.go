// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// printer draws messages as text: pure, no clock, no I/O.
type printer struct {
	*bytes.Buffer
	style style
	zone  *time.Location
}

func (p *printer) line(format string, args ...any) {
	fmt.Fprintf(p, strings.TrimRight(format, "\n")+"\n", args...)
}

// title starts a section.
func (p *printer) title(text string) {
	if p.Len() > 0 {
		p.WriteByte('\n')
	}
	p.line("%s", p.style.paint(sgrBold, text))
}

// field writes one labelled value, nothing where the value is empty.
func (p *printer) field(label, value string) {
	if value != "" {
		p.line("%-10s %s", label, value)
	}
}

func (p *printer) table(t *table) {
	for _, l := range t.lines(p.style) {
		p.line("%s", l)
	}
}

// clock shows a time of day with milliseconds; "" where there is none.
func (p *printer) clock(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().In(p.zone).Format("15:04:05.000")
}

// date shows day and time to the second.
func (p *printer) date(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().In(p.zone).Format("2006-01-02 15:04:05")
}

// span shows a duration to three digits or so: 1.2ms, 340ms, 12.3s, 4m10s.
func span(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func spanOf(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	return span(d.AsDuration())
}

// count writes a number with its noun: 1 node, 7 nodes.
func count[N ~int | ~uint32 | ~uint64](n N, noun string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", noun)
	}
	if strings.HasSuffix(noun, "s") {
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// withReason puts a reason behind a value: "n3 (its announcer answers)".
func withReason(value, reason string) string {
	if reason == "" {
		return value
	}
	return value + " (" + reason + ")"
}

// withCode puts a finding's code behind a sentence.
func withCode(text, code string) string {
	switch {
	case code == "":
		return text
	case text == "":
		return code
	}
	return text + " [" + code + "]"
}

func orText(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
