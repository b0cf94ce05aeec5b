// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// hintFindings are about what is said of the VIP by others than those who answer for it: announcements
// and neighbour entries. Neither is proof of anything, so neither moves the verdict.
func (j *judgement) hintFindings() {
	heardBy := map[string][]string{}
	for _, o := range j.observers {
		for mac := range o.announced {
			heardBy[mac] = append(heardBy[mac], o.name)
		}
	}
	for _, mac := range slices.Sorted(maps.Keys(heardBy)) {
		if j.unheard(mac) {
			j.c.add(NotAnswering, Warn, j.nameOf(mac), fmt.Sprintf("%s: its announcement was heard by %s, an answer by nobody", j.placeOf(mac), and(heardBy[mac])))
		}
	}
	for _, q := range j.s.Requests {
		if mac := strings.ToLower(q.NeighbourMAC); mac != "" && len(j.report.Responders) > 0 && j.unheard(mac) {
			j.c.add(CachesLag, Warn, q.Witness, fmt.Sprintf("%s: its entry is %s", q.Witness, j.placeOf(mac)))
		}
	}
}

// unheard: this MAC answers nobody, and somebody would have heard it.
func (j *judgement) unheard(mac string) bool {
	return len(j.listeners(j.nameOf(mac))) > 0 &&
		!slices.ContainsFunc(j.report.Responders, func(r Responder) bool { return r.MAC == mac })
}

// placeOf names a MAC for people: "n2 eth0 02:…:02", or the MAC alone with what is known of it.
func (j *judgement) placeOf(mac string) string {
	switch id := j.ids[mac]; {
	case id.node != nil:
		return fmt.Sprintf("%s %s %s", id.node.Name, id.link, mac)
	case len(id.shared) > 0:
		return mac + ", which " + and(id.shared) + " list as theirs"
	}
	return mac + ", a MAC of no agent"
}
