// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/vipmove/vipmove/agent/wire"
)

// Three nodes hold the VIP and one of them has an announcer too. The ordinary
// request is answered four times; the announcer question names the announcer.
func ExampleProber_Round() {
	vip, own := netip.MustParseAddr("192.0.2.50"), netip.MustParseAddr("192.0.2.2")
	segment := wire.NewSegment() // in memory; wire.Kernel for the real one
	for i := range byte(3) {
		node := segment.Join(wire.NIC{Name: "eth0", Index: 2, MAC: wire.MAC{2, 0, 0, 0, 0, 11 + i}})
		node.Answer(wire.KernelAnswers(vip))
		if i == 2 {
			node.Answer(wire.AnnouncerAnswers(vip))
		}
	}
	nic := wire.NIC{Name: "eth0", Index: 2, MAC: wire.MAC{2, 0, 0, 0, 0, 2}}
	prober := wire.NewProber(nic, wire.ProberConfig{Sockets: segment.Join(nic)})

	requests := []wire.Request{{Kind: wire.Broadcast, VIP: vip, Sender: own, Window: 200 * time.Millisecond}}
	for i := range byte(3) {
		requests = append(requests, wire.Request{
			Kind: wire.AnnouncerQuestion, VIP: vip, TargetMAC: wire.MAC{2, 0, 0, 0, 0, 11 + i}, Window: 200 * time.Millisecond,
		})
	}
	results, err := prober.Round(context.Background(), requests)
	if err != nil {
		fmt.Println(err)
	}
	for _, r := range results {
		fmt.Println(r.Kind, "complete:", r.Complete(), "answers:", len(r.Answers()))
	}
	// Output:
	// broadcast complete: true answers: 4
	// announcer-question complete: true answers: 0
	// announcer-question complete: true answers: 0
	// announcer-question complete: true answers: 1
}
