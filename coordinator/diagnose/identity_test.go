// SPDX-License-Identifier: Apache-2.0

package diagnose_test

import (
	"testing"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

// A MAC is a node's when its own inventory lists it, and nobody's otherwise; frames never say whose it is.
func TestWhoseMAC(t *testing.T) {
	const burnt, cali = "02:00:00:00:00:77", "ee:ee:ee:ee:ee:ee"
	for _, tt := range []struct {
		name       string
		change     func(n1, n2 *diagnose.Kernel)
		mac        string
		node, link string
		verdict    diagnose.Verdict
	}{
		{"of its NIC", func(n1, n2 *diagnose.Kernel) {}, mac(2), "n2", "eth0", diagnose.VerdictSingle},
		{"in another spelling", func(n1, n2 *diagnose.Kernel) { n2.Links[1].MAC = "02:00:00:00:00:AB" }, "02:00:00:00:00:ab", "n2", "eth0", diagnose.VerdictSingle},
		{"of no agent", func(n1, n2 *diagnose.Kernel) {}, "00:1b:a9:11:22:33", "", "", diagnose.VerdictForeign},
		{"of the witness", func(n1, n2 *diagnose.Kernel) {}, mac(0xc1), "client", "lan", diagnose.VerdictForeign},
		{"a permanent address", func(n1, n2 *diagnose.Kernel) { n2.Links[1].PermanentMAC = burnt }, burnt, "n2", "eth0", diagnose.VerdictSingle},
		{"of a bond and its slaves", func(n1, n2 *diagnose.Kernel) {
			n2.Links = append(n2.Links,
				diagnose.Link{Name: "ens1", Index: 7, Type: "ether", MAC: burnt, MasterIndex: 9},
				diagnose.Link{Name: "bond7", Index: 9, Type: "ether", Kind: "bond", MAC: burnt})
		}, burnt, "n2", "bond7", diagnose.VerdictSingle},
		{"of a VLAN of the segment's NIC", func(n1, n2 *diagnose.Kernel) {
			n2.Links = append(n2.Links, diagnose.Link{Name: "eth0.7", Index: 1, Type: "ether", Kind: "vlan", MAC: mac(2)})
		}, mac(2), "n2", "eth0", diagnose.VerdictSingle},
		{"a CNI's, one NIC of which is on the segment", func(n1, n2 *diagnose.Kernel) {
			n1.Links = append(n1.Links, diagnose.Link{Name: "cali1", Index: 8, Type: "ether", MAC: mac(2)})
		}, mac(2), "n2", "eth0", diagnose.VerdictSingle},
		{"a CNI's, on every node", func(n1, n2 *diagnose.Kernel) {
			n1.Links = append(n1.Links, diagnose.Link{Name: "cali1", Index: 8, Type: "ether", MAC: cali})
			n2.Links = append(n2.Links, diagnose.Link{Name: "cali2", Index: 8, Type: "ether", MAC: cali})
		}, cali, "", "", diagnose.VerdictUnknown},
		{"of two cloned machines", func(n1, n2 *diagnose.Kernel) { n1.Links[1].MAC = mac(2) }, mac(2), "", "", diagnose.VerdictUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := calm()
			tt.change(s.Nodes[0].Kernel, s.Nodes[1].Kernel)
			answered(&s.Rounds[0], tt.mac)
			answered(&s.Rounds[2], tt.mac)
			r := diagnose.Judge(s)
			if len(r.Responders) != 1 {
				t.Fatalf("responders %+v, want one", r.Responders)
			}
			if x := r.Responders[0]; x.Node != tt.node || x.Interface != tt.link || r.Verdict != tt.verdict {
				t.Errorf("%s is of %q %q, verdict %s; want %q %q, %s", tt.mac, x.Node, x.Interface, r.Verdict, tt.node, tt.link, tt.verdict)
			}
		})
	}
}
