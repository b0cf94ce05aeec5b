// SPDX-License-Identifier: Apache-2.0

package diagnose

// managed is a link that some software makes and fills with addresses of its own accord.
type managed struct {
	by    string // who manages it
	dummy bool   // it only carries addresses; traffic never passes it
	ipvs  bool   // what stands behind its addresses is the IPVS table
}

// managedLinks are known by name; another name of the same software is a line here.
var managedLinks = map[string]managed{
	"kube-ipvs0":     {by: "kube-proxy", dummy: true, ipvs: true},
	"kube-dummy-if":  {by: "kube-router", dummy: true, ipvs: true},
	"nodelocaldns":   {by: "node-local-dns", dummy: true},
	"kube-lb0":       {by: "PureLB", dummy: true},
	"antrea-egress0": {by: "Antrea", dummy: true},
	"antrea-gw0":     {by: "Antrea"},
	"kube-bridge":    {by: "kube-router"},
	"cilium_host":    {by: "Cilium"},
	"cilium_net":     {by: "Cilium"},
	"flannel.1":      {by: "flannel"},
	"vxlan.calico":   {by: "Calico"},
	"tunl0":          {by: "Calico"},
	"cni0":           {by: "the CNI bridge plugin"},
	"docker0":        {by: "Docker"},
}

// ManagedDummy says who manages a dummy link that is known by name.
func ManagedDummy(link string) (by string, known bool) {
	m := managedLinks[link]
	return m.by, m.dummy
}

// onlyCarries tells whether a link is there to carry addresses and nothing else: a managed dummy,
// or any link of kind dummy or ifb. Its own flags and settings count for nothing in ARP.
func (k *Kernel) onlyCarries(link string) bool {
	if managedLinks[link].dummy {
		return true
	}
	l := k.link(link)
	return l != nil && (l.Kind == "dummy" || l.Kind == "ifb")
}

// ours tells whether an address on this link could be a leftover: a link that only carries addresses,
// and not one whose software fills it for a use that nothing here can see.
func (k *Kernel) ours(link string) bool {
	m := managedLinks[link]
	return k.onlyCarries(link) && (m.by == "" || m.ipvs)
}

// faces tells whether a link can be a node's NIC on a segment: Ethernet with frames of its own.
func (k *Kernel) faces(l Link) bool {
	_, known := managedLinks[l.Name]
	return l.Type == "ether" && !l.BridgePort && l.MasterIndex == 0 && !known && !k.onlyCarries(l.Name)
}
