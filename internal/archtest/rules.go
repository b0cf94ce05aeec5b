// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"cmp"
	"slices"
)

// Rule is one thing that must hold everywhere in the module.
type Rule struct {
	Name string
	// Why is what a breach costs, for the one who meets it.
	Why   string
	check func(Module) []Breach
}

// Breaches are the places in m where r does not hold, sorted.
func (r Rule) Breaches(m Module) []Breach {
	found := r.check(m)
	for i := range found {
		found[i].Rule = r.Name
	}
	slices.SortFunc(found, func(a, b Breach) int {
		return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.What, b.What))
	})
	return slices.Compact(found)
}

// Rules are all of them.
func Rules() []Rule {
	return []Rule{
		{"agent-and-coordinator-apart", "either must be deployable and understandable without the other; they meet in proto/ alone", agentAndCoordinatorApart},
		{"witness-observes", "a witness has no right to change anything, so it holds no code that could", witnessObserves},
		{"prober-apart", "the lab's own count of who answers is worth something only while it shares no code with the product's", proberApart},
		{"pure-imports", "a judgement that can be replayed from a snapshot sees no clock, no world and no wire format", pureImports},
		{"pure-code", "a judgement that can be replayed from a snapshot has one outcome, whenever it runs", pureCode},
		{"kernel-seam", "one folder speaks to the kernel, so that one fake can stand for it", kernelSeam},
		{"cluster-seam", "one folder speaks to Kubernetes, so that all else runs without a cluster", clusterSeam},
		{"agent-without-kubernetes", "an agent has no Kubernetes rights and no Kubernetes client", agentWithoutKubernetes},
		{"no-shelling-out", "what a node does is what this code says, not what some binary on it says", noShellingOut},
		{"only-main-exits", "a package that exits skips the undo of all others", onlyMainExits},
		{"package-names", "a package is a noun that a network engineer knows", packageNames},
		{"file-length", "a file that needs scrolling hides things; split by concept", fileLength},
		{"licence-line", "every file says its licence", licenceLine},
		{"no-sleep-in-tests", "a sleep is slow where the machine is fast and wrong where it is slow", noSleepInTests},
	}
}

// Layout are the packages that docs/design.md section 3 names and this version has.
var Layout = []string{
	".",
	"agent", "agent/host", "agent/node", "agent/wire",
	"cli",
	"coordinator", "coordinator/diagnose", "coordinator/fleet", "coordinator/handover", "coordinator/journal", "coordinator/server",
	"lab",
	"proto/vipmove/v1",
	"witness",
}

// Missing are the packages of Layout that m does not have.
func Missing(m Module) []string {
	var missing []string
	for _, dir := range Layout {
		if !m.Has(dir) {
			missing = append(missing, dir)
		}
	}
	return missing
}
