// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

func roles(p Plan) []string {
	var out []string
	for _, s := range p.Steps {
		out = append(out, s.Node+":"+string(s.Role))
	}
	return out
}

func unmet(p Plan) []string {
	var out []string
	for _, c := range p.Preconditions {
		if !c.Met && !contains(out, string(c.Code)) {
			out = append(out, string(c.Code))
		}
	}
	return out
}

func TestThePlanOfTheStoryIsRunnable(t *testing.T) {
	s := newScene(7)
	s.neighbour = mac(2)
	p := Make(s.snapshot(), Options{VIP: vip})
	want := []string{"n1:canary", "n3:idle", "n4:idle", "n5:idle", "n6:idle", "n2:carrier", "n7:survivor"}
	if diff := cmp.Diff(want, roles(p)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if !p.Runnable() || p.Survivor != "n7" || p.Canary != "n1" {
		t.Errorf("survivor %q canary %q, preconditions not met: %v\n%+v", p.Survivor, p.Canary, unmet(p), p.Preconditions)
	}
	if p.LeftAlone["n1"] != 1 {
		t.Errorf("left alone on n1: %d", p.LeftAlone["n1"])
	}
}

func TestTheCanaryIsNeitherCarrierNorSurvivorNorControlPlane(t *testing.T) { // I4
	s := newScene(4)
	s.neighbour = mac(1)
	s.edit = func(snap *diagnose.Snapshot) { snap.Nodes[1].ControlPlane = true }
	if p := Make(s.snapshot(), Options{VIP: vip}); p.Canary != "n3" {
		t.Errorf("canary %s (%s), want n3: n1 carries, n2 is control plane, n4 survives", p.Canary, p.CanaryReason)
	}
}

func TestWhatBlocksAPlan(t *testing.T) {
	for _, c := range []struct {
		name    string
		edit    func(*scene)
		options Options
		want    []string
	}{
		{"the canary is not known", nil, Options{Canary: "n9"}, []string{"UNKNOWN_CANARY"}},
		{"the canary is the survivor", nil, Options{Canary: "n3"}, []string{"CANARY_IS_SURVIVOR"}},
		{"no announcer answers", func(s *scene) { s.announcer = "" }, Options{}, []string{"NO_ANNOUNCER"}},
		{"the named owner is not the proven one", nil, Options{Owner: "n1"}, []string{"UNKNOWN_OWNER"}},
		{"no witness", func(s *scene) { s.witness = false }, Options{}, []string{"NO_WITNESS"}},
		{"no witness, and that is said", func(s *scene) { s.witness = false }, Options{NoWitness: true}, nil},
		{"requests fail from the start", func(s *scene) { s.failing = true }, Options{}, []string{"REQUESTS_FAIL"}},
		{"nothing to remove", func(s *scene) { s.clean = map[string]bool{"n1": true, "n2": true, "n3": true} }, Options{}, []string{"NOTHING_TO_REMOVE"}},
		{"an override of what protects against darkness", nil, Options{Overrides: []diagnose.Code{diagnose.NoAnnouncer}}, []string{"NOT_OVERRIDABLE"}},
		{"a node of --without that is not known", nil, Options{Without: []string{"n9"}}, []string{"UNKNOWN_NODE"}},
		{"kube-proxy runs", func(s *scene) {
			s.edit = func(x *diagnose.Snapshot) { x.Nodes[0].Kernel.KubeProxy.State = diagnose.KubeProxyRunning }
		}, Options{}, []string{"MANAGER_RUNNING"}},
		{"an unreadable IPVS table is not an empty one (I6)", func(s *scene) {
			s.edit = func(x *diagnose.Snapshot) { x.Nodes[0].Kernel.IPVS.State = diagnose.IPVSUnreadable }
		}, Options{}, []string{"IPVS_UNREADABLE"}},
		{"a half-read kernel is not a clean one (I6)", func(s *scene) {
			s.edit = func(x *diagnose.Snapshot) { x.Nodes[0].Kernel.Incomplete = []string{"dump interrupted five times"} }
		}, Options{}, []string{"INVENTORY_UNKNOWN"}},
		{"one agent is away", func(s *scene) {
			s.edit = func(x *diagnose.Snapshot) { x.Nodes[0].Connected, x.Nodes[0].Kernel = false, nil }
		}, Options{}, []string{"NODE_AWAY"}},
		{"one agent is away, and left out", func(s *scene) {
			s.nodes = 4
			s.announcer = "n4"
			s.clean["n1"] = true
			s.edit = func(x *diagnose.Snapshot) { x.Nodes[0].Connected, x.Nodes[0].Kernel = false, nil }
		}, Options{Without: []string{"n1"}}, nil},
		{"an undo is pending somewhere", func(s *scene) {
			s.edit = func(x *diagnose.Snapshot) { x.Nodes[0].PendingUndo = &diagnose.PendingUndo{RunID: "r0"} }
		}, Options{}, []string{"UNDO_PENDING"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(3)
			if c.edit != nil {
				c.edit(&s)
			}
			c.options.VIP = vip
			p := Make(s.snapshot(), c.options)
			got := unmet(p)
			for _, w := range c.want {
				if !contains(got, w) {
					t.Errorf("not met: %v, want %s among them", got, w)
				}
			}
			if p.Runnable() != (len(c.want) == 0) {
				t.Errorf("runnable %v, not met: %v", p.Runnable(), got)
			}
		})
	}
}

func TestTheHashCoversWhatWasReviewedAndNothingTimed(t *testing.T) {
	base := newScene(3)
	hash := func(s scene, o Options) string { o.VIP = vip; return Make(s.snapshot(), o).Hash }
	want := hash(base, Options{})
	if len(want) != 64 || strings.ToLower(want) != want {
		t.Fatalf("hash %q is not SHA-256 in lower-case hex", want)
	}
	same := newScene(3)
	same.neighbour = mac(2) // carriers are not in it
	same.edit = func(x *diagnose.Snapshot) {
		x.TakenAt = x.TakenAt.Add(time.Hour)
		x.Requests[0].Sent++
		x.Nodes[0].Kernel.Addresses = append(x.Nodes[0].Kernel.Addresses, diagnose.Address{Link: "eth0", LinkIndex: 2, Prefix: netip.MustParsePrefix("198.51.100.7/32")})
		x.Nodes[0], x.Nodes[1] = x.Nodes[1], x.Nodes[0]
	}
	if a, b := Make(base.snapshot(), Options{VIP: vip}), Make(same.snapshot(), Options{VIP: vip, Canary: ""}); a.Canary == b.Canary && a.Hash != b.Hash {
		t.Errorf("the hash changed with what it does not cover:\n%s", cmp.Diff(a.HashedLines, b.HashedLines))
	}
	for name, edit := range map[string]func(*diagnose.Snapshot){
		"boot id": func(x *diagnose.Snapshot) { x.Nodes[0].Kernel.BootID = "other" },
		"label": func(x *diagnose.Snapshot) {
			a := x.Nodes[0].Kernel.Addresses
			a[len(a)-1].Label = "kube-ipvs0"
		},
		"scope": func(x *diagnose.Snapshot) {
			a := x.Nodes[0].Kernel.Addresses
			a[len(a)-1].Scope = 254
		},
		"lifetime": func(x *diagnose.Snapshot) {
			a := x.Nodes[0].Kernel.Addresses
			a[len(a)-1].ValidLifetime = 300
		},
	} {
		s := newScene(3)
		s.edit = edit
		if hash(s, Options{}) == want {
			t.Errorf("the hash does not cover the %s", name)
		}
	}
	for name, o := range map[string]Options{"canary": {Canary: "n2"}, "ttl": {TTL: time.Minute}, "dwell": {Dwell: time.Minute}, "soak": {CanarySoak: time.Minute},
		"budget": {MaxFailed: 3}, "parallel": {MaxParallel: 2}, "override": {Overrides: []diagnose.Code{diagnose.ManagerRunning}}, "no witness": {NoWitness: true},
		"without": {Without: []string{"n1"}}, "interface": {Interface: "eth0"}} {
		if hash(base, o) == want {
			t.Errorf("the hash does not cover the %s", name)
		}
	}
}

func TestALatentHolderIsInThePlanAndSaidToBeLatent(t *testing.T) { // C15
	s := newScene(3)
	s.latent["n1"] = true
	p := Make(s.snapshot(), Options{VIP: vip})
	if got := fmt.Sprint(p.Steps[0].Node, " ", p.Steps[0].State); got != "n1 latent" && !strings.Contains(fmt.Sprint(p.Steps), "latent") {
		t.Errorf("steps %v", p.Steps)
	}
	if len(p.Steps) != 3 {
		t.Errorf("%d steps, want 3", len(p.Steps))
	}
}
