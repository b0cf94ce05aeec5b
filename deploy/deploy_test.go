// SPDX-License-Identifier: Apache-2.0

// Package deploy_test holds the manifests to what they promise. It needs no cluster.
package deploy_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// levels of the agent: what it may do on its node.
var levels = map[string][]string{
	"observe": {"NET_RAW"},
	"act":     {"NET_RAW", "NET_ADMIN"},
}

func workloads(t *testing.T) map[string]workload {
	return map[string]workload{"agent, observe": agent(t, "observe"), "agent, act": agent(t, "act"), "coordinator": coordinator(t)}
}

func TestEveryManifestIsPartOfAKustomization(t *testing.T) {
	base, act := as[kustomization](t, read(t, "base/kustomization.yaml")[0]), as[kustomization](t, read(t, "act/kustomization.yaml")[0])
	used := map[string]bool{"base/kustomization.yaml": true, "act/kustomization.yaml": true}
	for _, r := range base.Resources {
		used["base/"+r] = true
	}
	for _, p := range act.Patches {
		used["act/"+p.Path] = true
	}
	files, err := filepath.Glob("*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !used[f] {
			t.Errorf("%s is in no kustomization", f)
		}
		delete(used, f)
	}
	for f := range used {
		t.Errorf("%s is named in a kustomization and not there", f)
	}
	if diff := cmp.Diff([]string{"../base"}, act.Resources); diff != "" {
		t.Error(diff)
	}
	if len(act.Patches) != 1 || act.Patches[0].Target["kind"] != "DaemonSet" || act.Patches[0].Target["name"] != "vipmove-agent" {
		t.Errorf("act patches %v, want the DaemonSet vipmove-agent alone", act.Patches)
	}
	if _, there := objects(t)["Namespace/"+base.Namespace]; !there {
		t.Errorf("the namespace %q is not among the objects", base.Namespace)
	}
}

func TestCapabilitiesAreExactlyThoseOfTheLevel(t *testing.T) {
	for level, want := range levels {
		got := agent(t, level).Spec.Template.Spec.Containers[0].SecurityContext.Capabilities
		if diff := cmp.Diff(want, got.Add); diff != "" {
			t.Errorf("%s: %s", level, diff)
		}
		if diff := cmp.Diff([]string{"ALL"}, got.Drop); diff != "" {
			t.Errorf("%s: %s", level, diff)
		}
	}
	if add := coordinator(t).Spec.Template.Spec.Containers[0].SecurityContext.Capabilities.Add; add != nil {
		t.Errorf("the coordinator has %v, wants none", add)
	}
}

func TestNoContainerCanGainRightsOrWriteItsOwnFiles(t *testing.T) {
	for name, w := range workloads(t) {
		pod := w.Spec.Template.Spec
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
			t.Errorf("%s: it would get a Kubernetes token", name)
		}
		if pod.SecurityContext.SeccompProfile["type"] != "RuntimeDefault" {
			t.Errorf("%s: seccomp profile %v, want RuntimeDefault", name, pod.SecurityContext.SeccompProfile)
		}
		if len(pod.Containers) != 1 {
			t.Errorf("%s: %d containers, want one", name, len(pod.Containers))
		}
		for _, c := range pod.Containers {
			s := c.SecurityContext
			if s.Privileged == nil || *s.Privileged {
				t.Errorf("%s: privileged is not false", name)
			}
			if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
				t.Errorf("%s: allowPrivilegeEscalation is not false", name)
			}
			if !s.ReadOnlyRootFilesystem {
				t.Errorf("%s: its root is writable", name)
			}
			if !slices.Contains(s.Capabilities.Drop, "ALL") {
				t.Errorf("%s: capabilities are not dropped", name)
			}
			if c.Resources.Limits["memory"] == "" || c.Resources.Requests["memory"] == "" || c.Resources.Requests["cpu"] == "" {
				t.Errorf("%s: resources %v are not complete", name, c.Resources)
			}
		}
	}
	if s := coordinator(t).Spec.Template.Spec.SecurityContext; !s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 {
		t.Error("the coordinator may run as root")
	}
}

func TestTheUndoDirectoryIsAllThatIsMountedFromANode(t *testing.T) {
	for name, w := range workloads(t) {
		pod := w.Spec.Template.Spec
		var paths []string
		for _, v := range pod.Volumes {
			if v.HostPath != nil {
				paths = append(paths, v.HostPath.Path)
			}
		}
		var want []string
		if strings.HasPrefix(name, "agent") {
			want = []string{"/var/lib/vipmove-agent"}
			if dir := flagsOf(pod.Containers[0])["state-dir"]; dir != want[0] {
				t.Errorf("%s: --state-dir %s is not the mounted directory", name, dir)
			}
		}
		if diff := cmp.Diff(want, paths); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		for _, m := range pod.Containers[0].VolumeMounts {
			i := slices.IndexFunc(pod.Volumes, func(v volume) bool { return v.Name == m.Name })
			if i < 0 {
				t.Errorf("%s: there is no volume %s", name, m.Name)
			} else if pod.Volumes[i].Secret != nil && !m.ReadOnly {
				t.Errorf("%s: the secret %s is mounted writable", name, m.Name)
			}
		}
		if w.Kind == "DaemonSet" && !pod.HostNetwork || w.Kind != "DaemonSet" && pod.HostNetwork {
			t.Errorf("%s: hostNetwork %v", name, pod.HostNetwork)
		}
	}
}

func TestAgentsRunOnEveryNodeAndTheCoordinatorRunsOnce(t *testing.T) {
	want := []map[string]any{{"operator": "Exists"}}
	if diff := cmp.Diff(want, agent(t, "observe").Spec.Template.Spec.Tolerations); diff != "" {
		t.Error(diff)
	}
	c := coordinator(t)
	if c.Spec.Replicas == nil || *c.Spec.Replicas != 1 || c.Spec.Strategy["type"] != "Recreate" {
		t.Errorf("the coordinator has replicas %v and strategy %v, want 1 and Recreate", c.Spec.Replicas, c.Spec.Strategy)
	}
	for name, w := range workloads(t) {
		for key, value := range w.Spec.Selector.MatchLabels {
			if w.Spec.Template.Metadata.Labels[key] != value {
				t.Errorf("%s: its selector does not match its pods", name)
			}
		}
	}
}

func TestWithoutTheActLevelAnAgentOnlyLooks(t *testing.T) {
	for level, acts := range map[string]bool{"observe": false, "act": true} {
		flags := flagsOf(agent(t, level).Spec.Template.Spec.Containers[0])
		for _, name := range []string{"act", "allow-prefix"} {
			if _, given := flags[name]; given != acts {
				t.Errorf("%s: --%s given: %v", level, name, given)
			}
		}
	}
}
