// SPDX-License-Identifier: Apache-2.0

package wire

// collides reports whether the answers to r and o could not be told apart: to
// the same address, with the same sender, and with a MAC that both ask. They
// are never in flight together.
func (r Request) collides(o Request) bool {
	if r.VIP != o.VIP || r.sender() != o.sender() {
		return false
	}
	return r.toEveryone() || o.toEveryone() || r.TargetMAC == o.TargetMAC
}

// waves puts the requests into groups that can be in flight together, each
// request after those it collides with. It returns indexes.
func waves(requests []Request) [][]int {
	var out [][]int
	wave := make([]int, len(requests))
	for i, r := range requests {
		for j := range i {
			if wave[j] >= wave[i] && r.collides(requests[j]) {
				wave[i] = wave[j] + 1
			}
		}
		if wave[i] == len(out) {
			out = append(out, nil)
		}
		out[wave[i]] = append(out[wave[i]], i)
	}
	return out
}
