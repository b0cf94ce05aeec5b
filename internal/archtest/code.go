// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

// The main packages: the only ones that end the process.
var mainFolders = []string{".", "agent", "coordinator"}

// maxLines is the length of the longest file allowed; near 120 is the aim.
const maxLines = 400

const licence = "// SPDX-License-Identifier: Apache-2.0"

var (
	clock = names{
		"time": {"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},
		"fmt":  {"Print", "Printf", "Println"},
	}
	exits = names{
		"os":      {"Exit"},
		"log":     {"Fatal", "Fatalf", "Fatalln"},
		"syscall": {"Exit"},

		"golang.org/x/sys/unix": {"Exit"},
	}
	starts = names{
		"os":      {"StartProcess"},
		"syscall": {"Exec", "ForkExec", "StartProcess"},

		"golang.org/x/sys/unix": {"Exec"},
	}
	sleeps = names{"time": {"Sleep"}}
)

var vagueNames = []string{"util", "utils", "common", "manager", "managers", "helper", "helpers", "misc", "shared", "base"}

// pureCode: no clock, no output, and nothing that a scheduler could order in two ways.
func pureCode(m Module) []Breach {
	return m.eachNode(
		func(f File) bool { return !f.Test() && below(f.Dir(), pureFolders...) },
		func(f File, node ast.Node) string {
			switch n := node.(type) {
			case *ast.GoStmt:
				return "starts a goroutine"
			case *ast.SelectStmt:
				return "has a select statement"
			case *ast.ChanType:
				return "has a channel"
			case *ast.SelectorExpr:
				return clock.used(f, n)
			}
			return ""
		})
}

func onlyMainExits(m Module) []Breach {
	return m.eachNode(
		func(f File) bool {
			return !f.Test() && !(f.Syntax.Name.Name == "main" && slices.Contains(mainFolders, f.Dir()))
		},
		exits.find)
}

func noShellingOut(m Module) []Breach {
	outside := func(f File) bool { return !f.Test() && !below(f.Dir(), execFolders...) }
	return slices.Concat(
		m.eachImport(func(f File, path string) bool { return outside(f) && path == "os/exec" }),
		m.eachNode(outside, starts.find))
}

func noSleepInTests(m Module) []Breach {
	return m.eachNode(File.Test, sleeps.find)
}

func packageNames(m Module) []Breach {
	var found []Breach
	for _, f := range m.Files {
		dir, name := f.Dir(), strings.TrimSuffix(f.Syntax.Name.Name, "_test")
		for _, vague := range vagueNames {
			if name == vague || path.Base(dir) == vague {
				found = append(found, Breach{Where: dir, What: "is called " + vague})
			}
		}
	}
	return found
}

func fileLength(m Module) []Breach {
	return m.eachWritten(func(f File) string {
		if f.Lines > maxLines {
			return fmt.Sprintf("has %d lines, above %d", f.Lines, maxLines)
		}
		return ""
	})
}

func licenceLine(m Module) []Breach {
	return m.eachWritten(func(f File) string {
		if f.FirstLine != licence {
			return fmt.Sprintf("starts with %q, not with %q", f.FirstLine, licence)
		}
		return ""
	})
}

// eachWritten reports what fault says of every file that a person wrote.
func (m Module) eachWritten(fault func(File) string) []Breach {
	var found []Breach
	for _, f := range m.Files {
		if f.Generated {
			continue
		}
		if what := fault(f); what != "" {
			found = append(found, Breach{Where: f.Name, What: what})
		}
	}
	return found
}

// eachNode reports what fault says of every syntax node of the files chosen.
func (m Module) eachNode(chosen func(File) bool, fault func(File, ast.Node) string) []Breach {
	var found []Breach
	for _, f := range m.Files {
		if !chosen(f) {
			continue
		}
		ast.Inspect(f.Syntax, func(node ast.Node) bool {
			if what := fault(f, node); what != "" {
				found = append(found, Breach{Where: f.Name, What: what})
			}
			return true
		})
	}
	return found
}

// names are exported names by the import path of their package.
type names map[string][]string

// find is used as a fault of eachNode.
func (n names) find(f File, node ast.Node) string {
	if selector, ok := node.(*ast.SelectorExpr); ok {
		return n.used(f, selector)
	}
	return ""
}

// used says which of the names selector stands for, under whatever name f imports the package.
func (n names) used(f File, selector *ast.SelectorExpr) string {
	qualifier, ok := selector.X.(*ast.Ident)
	if !ok {
		return ""
	}
	for _, spec := range f.Syntax.Imports {
		imported := strings.Trim(spec.Path.Value, `"`)
		if localName(spec, imported) == qualifier.Name && slices.Contains(n[imported], selector.Sel.Name) {
			return "uses " + imported + "." + selector.Sel.Name
		}
	}
	return ""
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// localName is what the file calls an imported package.
func localName(spec *ast.ImportSpec, imported string) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	if dir, last := path.Split(imported); majorVersion.MatchString(last) {
		return path.Base(dir)
	}
	return path.Base(imported)
}
