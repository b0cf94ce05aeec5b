// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// read returns the documents of one manifest.
func read(t *testing.T, path string) []any {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := parseYAML(string(b))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return docs
}

// as puts a document into a type that has every one of its fields.
func as[T any](t *testing.T, doc any) T {
	t.Helper()
	var out T
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%v: %v", kindAndName(doc), err)
	}
	return out
}

// objects of the base by kind/name.
func objects(t *testing.T) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, file := range as[kustomization](t, read(t, "base/kustomization.yaml")[0]).Resources {
		for _, doc := range read(t, filepath.Join("base", file)) {
			out[kindAndName(doc)] = doc
		}
	}
	return out
}

func kindAndName(doc any) string {
	m, _ := doc.(map[string]any)
	metadata, _ := m["metadata"].(map[string]any)
	return fmt.Sprint(m["kind"], "/", metadata["name"])
}

// agent is the DaemonSet at a level: as the base has it, or with the patch of ../act.
func agent(t *testing.T, level string) workload {
	t.Helper()
	doc := objects(t)["DaemonSet/vipmove-agent"]
	if level == "act" {
		for _, p := range as[[]patch](t, read(t, "act/agent.yaml")[0]) {
			if p.Op != "add" || !strings.HasSuffix(p.Path, "/-") {
				t.Fatalf("act/agent.yaml: %s %s: this test applies only an add to the end of a list", p.Op, p.Path)
			}
			doc = appended(t, doc, strings.Split(strings.Trim(strings.TrimSuffix(p.Path, "/-"), "/"), "/"), p.Value)
		}
	}
	return as[workload](t, doc)
}

// appended returns doc with value at the end of the list at path (RFC 6902 section 4.1).
func appended(t *testing.T, doc any, path []string, value string) any {
	t.Helper()
	switch d := doc.(type) {
	case map[string]any:
		if len(path) > 0 {
			d[path[0]] = appended(t, d[path[0]], path[1:], value)
			return d
		}
	case []any:
		if len(path) == 0 {
			return append(d, value)
		}
		if path[0] == "0" && len(d) > 0 {
			d[0] = appended(t, d[0], path[1:], value)
			return d
		}
	}
	t.Fatalf("act/agent.yaml: no list at the path of an add (at %v)", path)
	return nil
}

func coordinator(t *testing.T) workload {
	t.Helper()
	return as[workload](t, objects(t)["Deployment/vipmove-coordinator"])
}
