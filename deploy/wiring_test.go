// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPortsProbesAndScrapingAgree(t *testing.T) {
	for name, w := range workloads(t) {
		c := w.Spec.Template.Spec.Containers[0]
		flag := map[string]string{"DaemonSet": "listen", "Deployment": "http"}[w.Kind]
		number := 0
		for _, p := range c.Ports {
			if p.Name == "http" {
				number = p.ContainerPort
			}
			if w.Spec.Template.Spec.HostNetwork && p.HostPort != p.ContainerPort {
				t.Errorf("%s: hostPort %d, on the host network it is %d", name, p.HostPort, p.ContainerPort)
			}
		}
		if got, want := flagsOf(c)[flag], fmt.Sprintf(":%d", number); got != want {
			t.Errorf("%s: --%s %s, the port named http is %s", name, flag, got, want)
		}
		want := map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": fmt.Sprint(number), "prometheus.io/path": "/metrics"}
		if diff := cmp.Diff(want, w.Spec.Template.Metadata.Annotations); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		for path, p := range map[string]probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
			if p.HTTPGet.Path != path || p.HTTPGet.Port != "http" {
				t.Errorf("%s: a probe asks %v, want %s on http", name, p.HTTPGet, path)
			}
		}
	}
}

func TestAgentsReachTheCoordinatorByItsService(t *testing.T) {
	s, c := as[service](t, objects(t)["Service/vipmove-coordinator"]), coordinator(t)
	namespace := as[kustomization](t, read(t, "base/kustomization.yaml")[0]).Namespace
	if len(s.Spec.Ports) != 1 {
		t.Fatalf("the service has ports %v, want one", s.Spec.Ports)
	}
	want := fmt.Sprintf("%s.%s.svc:%d", s.Metadata.Name, namespace, s.Spec.Ports[0].Port)
	if got := flagsOf(agent(t, "observe").Spec.Template.Spec.Containers[0])["coordinator"]; got != want {
		t.Errorf("--coordinator is %s, the service is %s", got, want)
	}
	for key, value := range s.Spec.Selector {
		if c.Spec.Template.Metadata.Labels[key] != value {
			t.Errorf("the service selects %s=%s, which the coordinator has not", key, value)
		}
	}
	container := c.Spec.Template.Spec.Containers[0]
	i := slices.IndexFunc(container.Ports, func(p port) bool { return p.Name == s.Spec.Ports[0].TargetPort })
	if i < 0 || flagsOf(container)["listen"] != fmt.Sprintf(":%d", container.Ports[i].ContainerPort) {
		t.Errorf("the service's target port is not where the coordinator listens")
	}
}

func TestImagesHaveATagOfTheirOwnAndATargetInTheDockerfile(t *testing.T) {
	dockerfile, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	tags := map[string]string{}
	for _, set := range as[kustomization](t, read(t, "base/kustomization.yaml")[0]).Images {
		tags[set.Name] = set.NewTag
	}
	for name, w := range workloads(t) {
		image, tag, _ := strings.Cut(w.Spec.Template.Spec.Containers[0].Image, ":")
		if tag == "" || tag == "latest" {
			t.Errorf("%s: image %s has no tag, or the tag latest", name, image)
		}
		if newTag := tags[image]; newTag == "" || newTag == "latest" {
			t.Errorf("%s: the kustomization sets no tag for %s, or the tag latest", name, image)
		}
		stage := fmt.Sprintf("FROM scratch AS %s\nCOPY bin/%s /%s\n", w.Spec.Template.Spec.Containers[0].Name, image, image)
		if !strings.Contains(string(dockerfile), stage) || !strings.Contains(string(dockerfile), fmt.Sprintf("ENTRYPOINT [\"/%s\"]\n", image)) {
			t.Errorf("%s: Dockerfile has no stage %q with that entry point", name, stage)
		}
	}
	for _, from := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(string(dockerfile), -1) {
		if from[1] != "scratch" {
			t.Errorf("Dockerfile builds on %s, want scratch", from[1])
		}
	}
	if regexp.MustCompile(`(?m)^(RUN|ADD|SHELL|CMD) `).Match(dockerfile) {
		t.Error("Dockerfile does more than copy a binary")
	}
}

// The runbook makes every Secret that the manifests mount, with every file that they name in it.
func TestTheRunbookMakesTheSecretsThatAreMounted(t *testing.T) {
	b, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, w := range workloads(t) {
		pod := w.Spec.Template.Spec
		i := slices.IndexFunc(pod.Volumes, func(v volume) bool { return v.Secret != nil })
		if i < 0 {
			t.Errorf("%s: no secret is mounted", name)
			continue
		}
		secret := pod.Volumes[i].Secret.SecretName
		command := regexp.MustCompile(`(?m)^kubectl -n vipmove create secret generic ` + secret + ` .*$`).FindString(string(b))
		if command == "" {
			t.Errorf("%s: docs/runbook.md does not make the secret %s", name, secret)
		}
		for _, flag := range []string{"ca", "cert", "key"} {
			file := filepath.Base(flagsOf(pod.Containers[0])[flag])
			if each, _, ofNode := strings.Cut(file, "$(NODE_NAME)"); ofNode {
				file = each + "*" // agent-*: certificates and keys of all nodes
			}
			if !strings.Contains(command, "pki/"+file) {
				t.Errorf("%s: docs/runbook.md makes the secret %s without %s", name, secret, file)
			}
		}
	}
}
