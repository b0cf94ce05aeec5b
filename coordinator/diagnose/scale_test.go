// SPDX-License-Identifier: Apache-2.0

package diagnose_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/handover"
	"github.com/vipmove/vipmove/coordinator/snapshot"
)

// C02: 1059 addresses on kube-dummy-if, 70 of them live. The judgement of one address is as in the file,
// the others are counted and not listed, and all of it fits in one message.
func TestAThousandAddressesAreJudgedAsAFew(t *testing.T) {
	for _, name := range []string{"c02-address-of-no-service", "c02-address-in-use"} {
		s := read(t, "testdata/"+name+".txtar")
		k := s.snapshot.Nodes[0].Kernel
		live, all := len(k.IPVS.Services), len(k.Addresses)-2 // beside lo's and eth0's
		for i := 0; all < 1059; i++ {
			ip := netip.AddrFrom4([4]byte{10, 97, byte(i / 250), byte(1 + i%250)})
			k.Addresses = append(k.Addresses, diagnose.Address{Link: "kube-dummy-if", LinkIndex: 3, Prefix: netip.PrefixFrom(ip, 32)})
			if all++; live < 70 {
				k.IPVS.Services = append(k.IPVS.Services, netip.AddrPortFrom(ip, 443))
				live++
			}
		}
		r := diagnose.Judge(s.snapshot)
		if diff := compare(lines(r), s.expect); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		stale := 1059 - 70
		if name == "c02-address-of-no-service" {
			stale-- // it is the one that is asked about
		}
		want := fmt.Sprintf("n1: %d addresses on kube-dummy-if", stale)
		if !slices.ContainsFunc(r.Findings, func(f diagnose.Finding) bool {
			return f.Code == diagnose.ShadowedClusterIPs && slices.Equal(f.Evidence, []string{want})
		}) {
			t.Errorf("%s: no finding says %q: %v", name, want, r.Findings)
		}
		p := handover.Make(s.snapshot, s.options)
		if left := p.LeftAlone["n1"]; len(p.Steps) > 0 && left != 1058 {
			t.Errorf("%s: %d addresses left alone, want 1058", name, left)
		}
		const message = 4 << 20 // gRPC's default limit
		if size := proto.Size(snapshot.ToProto(s.snapshot)); size > message/4 {
			t.Errorf("%s: %d bytes in one message", name, size)
		}
		if size := proto.Size(snapshot.PlanToProto(p, s.snapshot.TakenAt)); size > 64<<10 {
			t.Errorf("%s: the plan has %d bytes", name, size)
		}
	}
}

// S5: a NIC that cannot be asked is skipped with its reason.
func TestANICThatIsNoEthernetIsSkippedWithItsReason(t *testing.T) {
	r := diagnose.Judge(read(t, "testdata/s05-ipoib.txtar").snapshot)
	if len(r.Holders) != 1 || !strings.Contains(r.Holders[0].Reason, "ib0 (infiniband)") {
		t.Errorf("holders %+v, want the reason to name ib0", r.Holders)
	}
}
