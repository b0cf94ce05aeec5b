// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A strict reader for the part of YAML that the manifests use: block maps, block lists, plain and double-quoted scalars,
// comments, several documents. What means different things to different readers (tabs, flow style, anchors, folded text,
// yes and no, octal numbers) is an error. So what the tests below see is what Kubernetes sees, without a dependency.

// line is one line with something on it. indent is in blanks.
type line struct {
	number, indent int
	text           string
}

type yamlReader struct {
	lines []line
}

// parseYAML returns the documents: map[string]any, []any, string, bool and float64, as encoding/json has them.
func parseYAML(text string) ([]any, error) {
	var docs []any
	var r yamlReader
	end := func() error {
		if len(r.lines) == 0 {
			return nil
		}
		doc, err := r.block(r.lines[0].indent)
		if err == nil && len(r.lines) > 0 {
			err = r.lines[0].errorf("indented like nothing above it")
		}
		docs = append(docs, doc)
		r.lines = nil
		return err
	}
	for i, raw := range strings.Split(text, "\n") {
		if raw == "---" {
			if err := end(); err != nil {
				return nil, err
			}
			continue
		}
		l := line{number: i + 1, text: strings.TrimRight(withoutComment(raw), " ")}
		if strings.Contains(l.text, "\t") {
			return nil, l.errorf("a tab")
		}
		l.indent = len(l.text) - len(strings.TrimLeft(l.text, " "))
		if l.text = strings.TrimLeft(l.text, " "); l.text != "" {
			r.lines = append(r.lines, l)
		}
	}
	return docs, end()
}

func (l line) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: %s: %q", l.number, fmt.Sprintf(format, args...), l.text)
}

// withoutComment cuts from a # that begins the line or follows a blank, outside double quotes.
func withoutComment(s string) string {
	quoted := false
	for i, c := range s {
		switch {
		case c == '"':
			quoted = !quoted
		case c == '#' && !quoted && (i == 0 || s[i-1] == ' '):
			return s[:i]
		}
	}
	return s
}

var entry = regexp.MustCompile(`^([A-Za-z0-9_./-]+):(?: +(.*))?$`)

func (r *yamlReader) block(indent int) (any, error) {
	if strings.HasPrefix(r.lines[0].text, "- ") {
		return r.list(indent)
	}
	return r.mapping(indent)
}

func (r *yamlReader) list(indent int) (any, error) {
	list := []any{}
	for len(r.lines) > 0 && r.lines[0].indent == indent && strings.HasPrefix(r.lines[0].text, "- ") {
		l := &r.lines[0]
		l.text, l.indent = strings.TrimPrefix(l.text, "- "), indent+2
		var item any
		var err error
		if entry.MatchString(l.text) {
			item, err = r.mapping(indent + 2)
		} else {
			item, err = l.scalar(l.text)
			r.lines = r.lines[1:]
		}
		if err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	return list, nil
}

func (r *yamlReader) mapping(indent int) (any, error) {
	m := map[string]any{}
	for len(r.lines) > 0 && r.lines[0].indent == indent {
		l := r.lines[0]
		found := entry.FindStringSubmatch(l.text)
		if found == nil {
			return nil, l.errorf("want key: value")
		}
		key, text := found[1], found[2]
		if _, twice := m[key]; twice {
			return nil, l.errorf("%s is there a second time", key)
		}
		r.lines = r.lines[1:]
		var value any
		var err error
		switch {
		case text != "":
			value, err = l.scalar(text)
		case len(r.lines) > 0 && r.lines[0].indent > indent:
			value, err = r.block(r.lines[0].indent)
		default:
			err = l.errorf("%s has no value", key)
		}
		if err != nil {
			return nil, err
		}
		m[key] = value
	}
	if len(r.lines) > 0 && r.lines[0].indent > indent {
		return nil, r.lines[0].errorf("indented like nothing above it")
	}
	return m, nil
}

var (
	plain     = regexp.MustCompile(`^[A-Za-z0-9/$.(-][^"'{}\[\]]*$`)
	number    = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)
	ambiguous = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|null|[-+.]?[0-9][0-9_.:xob]*(e[-+]?[0-9]+)?)$`)
)

func (l line) scalar(s string) (any, error) {
	switch {
	case strings.HasPrefix(s, `"`):
		text, err := strconv.Unquote(s)
		if err != nil {
			return nil, l.errorf("a quoted text that does not end, or has more behind it")
		}
		return text, nil
	case s == "true" || s == "false":
		return s == "true", nil
	case number.MatchString(s):
		n, err := strconv.Atoi(s)
		return float64(n), err
	case ambiguous.MatchString(s):
		return nil, l.errorf("readers differ about it: quote it")
	case !plain.MatchString(s) || strings.Contains(s, ": ") || strings.HasSuffix(s, ":"):
		return nil, l.errorf("more of YAML than this reader knows")
	}
	return s, nil
}

func TestReaderReadsWhatTheManifestsUse(t *testing.T) {
	got, err := parseYAML("# c\na: 1\nb:\n  c.d/e: \"9\" # c\n  f:\n    - --x=:9\n    - g: true\n      h: p-0\n---\n- i: ../j\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []any{
		map[string]any{"a": 1.0, "b": map[string]any{"c.d/e": "9", "f": []any{"--x=:9", map[string]any{"g": true, "h": "p-0"}}}},
		[]any{map[string]any{"i": "../j"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReaderRefusesWhatReadersDifferAbout(t *testing.T) {
	for _, text := range []string{
		"a: yes", "a: 0400", "a: 1.5", "a: 0x10", "a: 1e3", "a: null", "a: ~", "a: [b]", "a: {b: c}", "a: &b c", "a: *b", "a: !!str b", "a: |", "a: >-",
		"a: 'b'", "a: \"b", "a: \"b\" c", "a:\tb", "a: b: c", "a: 1\na: 2", "a:", "a:\nb: c", "a: b\n  c: d", "- a\nb: c", "a:\n  b: c\n d: e", "just text",
		"  a: b\nc: d", "a: 12:30",
	} {
		if got, err := parseYAML(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}
