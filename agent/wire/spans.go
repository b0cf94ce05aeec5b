// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
)

// span is a closed interval of IPv4 addresses, in host byte order.
type span struct{ lo, hi uint32 }

// spansOf sorts the addresses and joins neighbours.
func spansOf(watched []netip.Addr) ([]span, error) {
	if len(watched) > MaxWatched {
		return nil, fmt.Errorf("filtering for %d addresses: at most %d can be watched on one NIC", len(watched), MaxWatched)
	}
	values := make([]uint32, 0, len(watched))
	for _, a := range watched {
		if !a.Is4() {
			return nil, fmt.Errorf("filtering for %v: ARP is for IPv4 addresses only", a)
		}
		b := a.As4()
		values = append(values, binary.BigEndian.Uint32(b[:]))
	}
	slices.Sort(values)
	var spans []span
	for _, v := range values {
		if n := len(spans); n > 0 && uint64(v) <= uint64(spans[n-1].hi)+1 {
			spans[n-1].hi = v
			continue
		}
		spans = append(spans, span{v, v})
	}
	return spans, nil
}

// coarsen closes the narrowest gaps until at most limit spans are left: a
// smaller program that lets some unwatched addresses through. It is what is
// left to do where the kernel's net.core.optmem_max has no room for the exact
// program (20,480 bytes before Linux 6.7).
func coarsen(spans []span, limit int) []span {
	if len(spans) <= limit {
		return spans
	}
	gaps := make([]uint32, 0, len(spans)-1)
	for i := 1; i < len(spans); i++ {
		gaps = append(gaps, spans[i].lo-spans[i-1].hi)
	}
	slices.Sort(gaps)
	widest := uint32(math.MaxUint32) // keep no gap
	if limit > 1 {
		widest = gaps[len(gaps)-(limit-1)]
	}
	keep := limit - 1 // gaps as wide as widest may be more than fit
	out := []span{spans[0]}
	for i := 1; i < len(spans); i++ {
		last := &out[len(out)-1]
		if spans[i].lo-last.hi >= widest && keep > 0 {
			out = append(out, spans[i])
			keep--
			continue
		}
		last.hi = spans[i].hi
	}
	return out
}

// contains looks an IPv4 address up among sorted spans.
func contains(spans []span, ip netip.Addr) bool {
	b := ip.As4()
	v := binary.BigEndian.Uint32(b[:])
	_, found := slices.BinarySearchFunc(spans, v, func(s span, v uint32) int {
		switch {
		case s.hi < v:
			return -1
		case s.lo > v:
			return 1
		}
		return 0
	})
	return found
}
