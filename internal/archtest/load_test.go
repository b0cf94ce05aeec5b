// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/txtar"
)

// parse reads one Go file; name is from the module's root.
func parse(name string, text []byte) (File, error) {
	syntax, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return File{}, fmt.Errorf("parsing %s: %w", name, err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return File{
		Name:      name,
		Lines:     bytes.Count(text, []byte("\n")),
		FirstLine: first,
		Generated: ast.IsGenerated(syntax),
		Syntax:    syntax,
	}, nil
}

// checkout reads the module that this test stands in, once.
var checkout = sync.OnceValues(func() (Module, error) {
	root, err := moduleRoot()
	if err != nil {
		return Module{}, err
	}
	files, err := goFiles(root)
	if err != nil {
		return Module{}, err
	}
	imports, err := goList(root)
	return Module{Files: files, Imports: imports}, err
})

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(text, []byte("module "+ModulePath+"\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("looking for the go.mod of " + ModulePath + ": none above this folder")
		}
	}
}

// goFiles parses every Go file of the module whatever its build constraints, but not those that the
// go command leaves out by folder, nor those of a module inside (tools).
func goFiles(root string) ([]File, error) {
	var files []File
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		if entry.IsDir() {
			if leftOut(name) {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		f, err := parse(filepath.ToSlash(rel), text)
		files = append(files, f)
		return err
	})
	return files, err
}

func leftOut(dir string) bool {
	base := filepath.Base(dir)
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "vendor" {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// goList asks the go command what every package and dependency imports in the binaries that are shipped.
func goList(root string) (map[string][]string, error) {
	cmd := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Imports", "./...")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running go list: %w\n%s", err, stderr.String())
	}
	imports := map[string][]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return imports, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading the output of go list: %w", err)
		}
		imports[p.ImportPath] = p.Imports
	}
}

// planted is the module in a txtar archive, and what the lines of its comment say:
//
//	want RULE: WHERE: WHAT   a breach that the rules must find
//	pad FILE LINES           the file is filled up to that many lines
//
// Files under external/ are packages of other modules.
func planted(t *testing.T, name string) (m Module, want []string) {
	t.Helper()
	archive, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	length := map[string]int{}
	for line := range strings.Lines(string(archive.Comment)) {
		if breach, ok := strings.CutPrefix(line, "want "); ok {
			want = append(want, strings.TrimSuffix(breach, "\n"))
		}
		if pad, ok := strings.CutPrefix(line, "pad "); ok {
			var file string
			var lines int
			if _, err := fmt.Sscan(pad, &file, &lines); err != nil {
				t.Fatalf("%s: reading %q: %v", name, line, err)
			}
			length[file] = lines
		}
	}
	m.Imports = map[string][]string{}
	for _, file := range archive.Files {
		missing := max(0, length[file.Name]-bytes.Count(file.Data, []byte("\n")))
		f, err := parse(file.Name, slices.Concat(file.Data, bytes.Repeat([]byte("\n"), missing)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		path, external := strings.CutPrefix(f.Dir(), "external/")
		if !external {
			m.Files = append(m.Files, f)
			path = importPath(f.Dir())
		}
		if !f.Test() {
			m.Imports[path] = append(m.Imports[path], f.Imports()...)
		}
	}
	return m, want
}
