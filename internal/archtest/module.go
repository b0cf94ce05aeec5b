// SPDX-License-Identifier: Apache-2.0

// Package archtest holds the rules of docs/design.md section 3: who may import whom, what the pure
// packages may not touch, and the house's limits on files and names. The rules are functions over a
// Module, so that a planted breach can be shown to every one of them; the tests read the real one.
package archtest

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

// ModulePath is the import path of the root package.
const ModulePath = "github.com/vipmove/vipmove"

// Module is what the rules look at.
type Module struct {
	// Files are the Go files of the module, tests and generated ones too, without testdata.
	Files []File
	// Imports maps an import path to what its non-test files import, for the packages of the module
	// and for all that they pull in. A path that is missing imports nothing that anyone knows of.
	Imports map[string][]string
}

// File is one Go file.
type File struct {
	Name      string // slash-separated, from the module's root: agent/host/links.go
	Lines     int
	FirstLine string
	Generated bool // by its "Code generated … DO NOT EDIT." line
	Syntax    *ast.File
}

// Dir is the folder of f from the module's root, "." for the root itself.
func (f File) Dir() string { return path.Dir(f.Name) }

// Test reports whether f is compiled into tests only.
func (f File) Test() bool { return strings.HasSuffix(f.Name, "_test.go") }

// Imports are the import paths that f names.
func (f File) Imports() []string {
	var paths []string
	for _, spec := range f.Syntax.Imports {
		paths = append(paths, strings.Trim(spec.Path.Value, `"`))
	}
	return paths
}

// Breach is one place where a rule does not hold.
type Breach struct {
	Rule  string // its name in Rules
	Where string // file or package
	What  string
}

func (b Breach) String() string { return fmt.Sprintf("%s: %s: %s", b.Rule, b.Where, b.What) }

// Has reports whether dir, from the module's root, holds a Go file that is not a test.
func (m Module) Has(dir string) bool {
	return slices.ContainsFunc(m.Files, func(f File) bool { return f.Dir() == dir && !f.Test() })
}

// packages are the folders of the module that hold Go files other than tests, sorted.
func (m Module) packages() []string {
	var dirs []string
	for _, f := range m.Files {
		if !f.Test() {
			dirs = append(dirs, f.Dir())
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// chain is the shortest way by imports from the package in dir to one whose import path satisfies
// want, both ends included; nil when there is none. The start itself is not asked.
func (m Module) chain(dir string, want func(path string) bool) []string {
	start := importPath(dir)
	from := map[string]string{start: ""}
	for queue := []string{start}; len(queue) > 0; queue = queue[1:] {
		for _, next := range m.Imports[queue[0]] {
			if _, seen := from[next]; seen {
				continue
			}
			from[next] = queue[0]
			if want(next) {
				return walkBack(from, next)
			}
			queue = append(queue, next)
		}
	}
	return nil
}

func walkBack(from map[string]string, end string) []string {
	var path []string
	for at := end; at != ""; at = from[at] {
		path = append(path, at)
	}
	slices.Reverse(path)
	return path
}

// importPath is the import path of a folder of the module.
func importPath(dir string) string {
	if dir == "." {
		return ModulePath
	}
	return ModulePath + "/" + dir
}

// folder is the folder of a package of the module, and false for any other import path.
func folder(path string) (string, bool) {
	if path == ModulePath {
		return ".", true
	}
	return strings.CutPrefix(path, ModulePath+"/")
}

// below reports whether path is one of roots or lies under one of them.
func below(path string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return path == root || strings.HasPrefix(path, root+"/")
	})
}

// standard reports whether path is of the standard library: no dot in its first element.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}
