// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// table lays out columns; unlike text/tabwriter it measures before it colours.
type table struct {
	header []string
	rows   [][]string
	indent string
}

func newTable(header ...string) *table { return &table{header: header} }

// row adds one row. An empty cell prints as "-", so that columns can be cut by blanks.
func (t *table) row(cells ...string) {
	for i, cell := range cells {
		if cell == "" && i < len(cells)-1 {
			cells[i] = "-"
		}
	}
	t.rows = append(t.rows, cells)
}

// lines returns header and rows, no blanks at a line's end. Words that style knows are coloured, but in the last column,
// which holds sentences.
func (t *table) lines(s style) []string {
	all := append([][]string{t.header}, t.rows...)
	width := make([]int, len(t.header))
	for _, row := range all {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var out []string
	for n, row := range all {
		var b strings.Builder
		b.WriteString(t.indent)
		for i, cell := range row {
			switch {
			case n == 0:
				b.WriteString(s.paint(sgrDim, cell))
			case i == len(row)-1:
				b.WriteString(cell)
			default:
				b.WriteString(s.word(cell))
			}
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		out = append(out, strings.TrimRight(b.String(), " "))
	}
	return out
}

// compareNames orders node names as people count: n2 before n10.
func compareNames(a, b string) int {
	for a != "" && b != "" {
		na, ra := leadingDigits(a)
		nb, rb := leadingDigits(b)
		if na != "" && nb != "" {
			ta, tb := strings.TrimLeft(na, "0"), strings.TrimLeft(nb, "0")
			if c := cmp.Or(cmp.Compare(len(ta), len(tb)), cmp.Compare(ta, tb)); c != 0 {
				return c
			}
			a, b = ra, rb
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func leadingDigits(s string) (digits, rest string) {
	end := 0
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	return s[:end], s[end:]
}

// sortedNames returns the keys of a map by name.
func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(compareNames(a, b), cmp.Compare(a, b)) })
	return names
}
