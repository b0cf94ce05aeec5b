// SPDX-License-Identifier: Apache-2.0

package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root of the repository, from this folder.
const root = "../.."

// documents that are held to the code, by their path from root.
var documents = []string{"README.md", "docs/runbook.md", "docs/snapshot.md", "deploy/README.md", "CONTRIBUTING.md"}

// text reads a file of the repository.
func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// passage is a piece of a document and the line it begins on.
type passage struct {
	line int
	text string
}

var span = regexp.MustCompile("`([^`]+)`")

// shell gives each line of the sh blocks, comments cut off, and each code span of the prose.
func shell(document string) (lines, spans []passage) {
	fence := ""
	for i, l := range strings.Split(document, "\n") {
		switch {
		case strings.HasPrefix(l, "```") && fence == "":
			fence = l
		case strings.HasPrefix(l, "```"):
			fence = ""
		case fence == "```sh":
			if code, _, _ := strings.Cut(" "+l, " #"); strings.TrimSpace(code) != "" {
				lines = append(lines, passage{i + 1, strings.TrimSpace(code)})
			}
		case fence == "":
			for _, m := range span.FindAllStringSubmatch(l, -1) {
				spans = append(spans, passage{i + 1, m[1]})
			}
		}
	}
	return lines, spans
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// brokenLinks of a document that lies in dir: files that are not there and headings that are not there. exists and read
// see paths from root.
func brokenLinks(document, dir string, exists func(string) bool, read func(string) string) []string {
	var broken []string
	for _, m := range link.FindAllStringSubmatch(document, -1) {
		path, anchor, hasAnchor := strings.Cut(m[1], "#")
		if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
			continue // not in this repository; nobody asks the network here
		}
		target := document
		if path != "" {
			path = filepath.Join(dir, path)
			if !exists(path) {
				broken = append(broken, m[1]+": no such file")
				continue
			}
			if hasAnchor {
				target = read(path)
			}
		}
		if hasAnchor && !headings(target)[anchor] {
			broken = append(broken, m[1]+": no such heading")
		}
	}
	return broken
}

// headings are the anchors of a document, as forges make them.
func headings(document string) map[string]bool {
	anchors, fenced := map[string]bool{}, false
	for l := range strings.SplitSeq(document, "\n") {
		if strings.HasPrefix(l, "```") {
			fenced = !fenced
		}
		if fenced || !strings.HasPrefix(l, "#") {
			continue
		}
		title := strings.ToLower(strings.TrimSpace(strings.TrimLeft(l, "#")))
		title = regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(title, "")
		anchors[strings.ReplaceAll(title, " ", "-")] = true
	}
	return anchors
}

func TestLinksToFilesOfTheRepositoryExist(t *testing.T) {
	exists := func(path string) bool { _, err := os.Stat(filepath.Join(root, path)); return err == nil }
	read := func(path string) string { return text(t, path) }
	for _, d := range append([]string{"proto/vipmove/v1/README.md", "CHANGELOG.md"}, documents...) {
		for _, b := range brokenLinks(text(t, d), filepath.Dir(d), exists, read) {
			t.Errorf("%s: %s", d, b)
		}
	}
}

func TestBrokenLinksAreFound(t *testing.T) {
	document := "# Top of it\n[a](there.md) [b](gone.md) [c](#top-of-it) [d](#bottom) [e](there.md#x) [f](there.md#y) [g](https://example.org/)\n"
	got := brokenLinks(document, "docs", func(p string) bool { return p == "docs/there.md" }, func(string) string { return "## x\n" })
	want := "gone.md: no such file, #bottom: no such heading, there.md#y: no such heading"
	if strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
