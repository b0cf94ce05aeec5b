// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"slices"
	"strings"
)

// Where what may be imported. Folders include what lies below them.
var (
	kernelFolders  = []string{"agent/host", "lab"}
	kernelModules  = []string{"github.com/vishvananda/netlink", "github.com/vishvananda/netns", "github.com/mdlayher/netlink", "github.com/google/nftables", "github.com/cloudflare/ipvs"}
	clusterFolders = []string{"coordinator/cluster", "coordinator/journal", "cli"}
	clusterModules = []string{"k8s.io/client-go"}
	execFolders    = []string{"lab"}
	pureFolders    = []string{"coordinator/diagnose", "coordinator/handover"}
	// What a witness may use of the agent; nothing of the coordinator.
	witnessUses = []string{"agent/host", "agent/report", "agent/wire"}
)

// The standard library without a clock, a world, or a schedule. Folders include what lies below
// them, but net/netip is fine, and so is time as a value: pureCode forbids its clock.
var impure = []string{
	"context", "crypto/rand", "log", "math/rand", "net", "os", "plugin", "runtime", "sync", "syscall", "testing", "unsafe",
	"database/sql", "embed", "expvar", "io/fs", "io/ioutil", "path/filepath",
}

func agentAndCoordinatorApart(m Module) []Breach {
	return slices.Concat(
		m.unreachable([]string{"agent"}, within("coordinator")),
		m.unreachable([]string{"coordinator"}, within("agent")),
	)
}

func witnessObserves(m Module) []Breach {
	return m.unreachable([]string{"witness"}, func(path string) bool {
		dir, ours := folder(path)
		return ours && below(dir, "agent", "coordinator") && !below(dir, witnessUses...)
	})
}

func proberApart(m Module) []Breach {
	return m.unreachable([]string{"lab/prober"}, within("agent", "coordinator"))
}

func agentWithoutKubernetes(m Module) []Breach {
	return m.unreachable([]string{"agent"}, func(path string) bool {
		first, _, _ := strings.Cut(path, "/")
		return first == "k8s.io" || strings.HasSuffix(first, ".k8s.io")
	})
}

// unreachable: no package below roots leads to an unwanted one, by however many steps.
func (m Module) unreachable(roots []string, unwanted func(path string) bool) []Breach {
	var found []Breach
	for _, dir := range m.packages() {
		if !below(dir, roots...) {
			continue
		}
		if chain := m.chain(dir, unwanted); chain != nil {
			found = append(found, Breach{Where: dir, What: "imports " + strings.Join(chain[1:], " -> ")})
		}
	}
	return found
}

func within(roots ...string) func(path string) bool {
	return func(path string) bool {
		dir, ours := folder(path)
		return ours && below(dir, roots...)
	}
}

func pureImports(m Module) []Breach {
	return m.eachImport(func(f File, path string) bool {
		if f.Test() || !below(f.Dir(), pureFolders...) {
			return false
		}
		if dir, ours := folder(path); ours {
			return !below(dir, pureFolders...)
		}
		return !standard(path) || (below(path, impure...) && path != "net/netip")
	})
}

func kernelSeam(m Module) []Breach {
	return m.onlyIn(kernelFolders, kernelModules)
}

func clusterSeam(m Module) []Breach {
	return m.onlyIn(clusterFolders, clusterModules)
}

// onlyIn: files outside folders, tests too, import nothing of modules.
func (m Module) onlyIn(folders, modules []string) []Breach {
	return m.eachImport(func(f File, path string) bool {
		return below(path, modules...) && !below(f.Dir(), folders...)
	})
}

// eachImport reports every import of every file that is unwanted.
func (m Module) eachImport(unwanted func(f File, path string) bool) []Breach {
	var found []Breach
	for _, f := range m.Files {
		for _, path := range f.Imports() {
			if unwanted(f, path) {
				found = append(found, Breach{Where: f.Name, What: "imports " + path})
			}
		}
	}
	return found
}
