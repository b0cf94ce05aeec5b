// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// arpPath lists what could silence the kernel on the links that could hear
// the LAN. It loads no module and judges nothing.
func (l *Linux) arpPath(links []Link, addresses []Address, xdp map[string]uint32) ARPPath {
	var path ARPPath
	l.arptables(&path)
	l.nftables(&path)
	if links == nil {
		path.add(ARPHook{Kind: "tc", Unread: true, Detail: "the links are not known"})
		path.add(ARPHook{Kind: "tcx", Unread: true, Detail: "the links are not known"})
		path.add(ARPHook{Kind: "xdp", Unread: true, Detail: "the links are not known"})
		return path
	}
	heard := lanLinks(links, addresses)
	for _, link := range heard {
		if id, ok := xdp[link.Name]; ok {
			path.add(ARPHook{Kind: "xdp", Link: link.Name, Detail: fmt.Sprintf("program %d", id)})
		}
	}
	l.trafficControl(&path, heard)
	tcx(&path, heard)
	return path
}

// lanLinks are the Ethernet links without the pods' ends: a veth or netkit
// that carries no address is one of those, and there may be hundreds.
func lanLinks(links []Link, addresses []Address) []Link {
	addressed := map[int]bool{}
	for _, a := range addresses {
		if a.Prefix.Addr().Is4() {
			addressed[a.LinkIndex] = true
		}
	}
	var list []Link
	for _, link := range links {
		pod := link.Kind == "veth" || link.Kind == "netkit"
		if link.Type == "ether" && link.Flags&unix.IFF_NOARP == 0 && (!pod || addressed[link.Index]) {
			list = append(list, link)
		}
	}
	return list
}

// arptables reads the names of the legacy tables in use.
func (l *Linux) arptables(path *ARPPath) {
	b, err := os.ReadFile(filepath.Join(l.options.ProcRoot, "thread-self/net/arp_tables_names"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		path.add(ARPHook{Kind: "arptables", Unread: true, Detail: err.Error()})
	case len(strings.Fields(string(b))) > 0:
		path.add(ARPHook{Kind: "arptables", Detail: "table " + strings.Join(strings.Fields(string(b)), ", ")})
	}
}

// nftables lists the chains that see ARP.
func (l *Linux) nftables(path *ARPPath) {
	unread := func(err error) {
		path.add(ARPHook{Kind: "nftables", Unread: true, Detail: denied(err).Error()})
	}
	switch there, err := l.nftablesPresent(); {
	case err != nil:
		unread(err)
		return
	case !there:
		return
	}
	conn, err := nftables.New()
	if err != nil {
		unread(err)
		return
	}
	chains, err := conn.ListChains()
	if err != nil {
		unread(err)
		return
	}
	for _, c := range chains {
		if c.Table == nil || !seesARP(c) {
			continue
		}
		rules, err := conn.GetRules(c.Table, c)
		if err != nil {
			unread(fmt.Errorf("rules of %s: %w", chainName(c), err))
			continue
		}
		drops := c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
		if len(rules) > 0 || drops {
			detail := fmt.Sprintf("%s has %d rules", chainName(c), len(rules))
			if drops {
				detail += " and drops the rest"
			}
			path.add(ARPHook{Kind: "nftables", Detail: detail})
		}
	}
}

// netInetIngress is NF_INET_INGRESS (include/uapi/linux/netfilter.h).
const netInetIngress = 5

// seesARP says whether ARP frames pass a base chain: those of the families
// arp, netdev and bridge, and inet's ingress hook. Chains without a hook are
// reached from these only.
func seesARP(c *nftables.Chain) bool {
	if c.Hooknum == nil {
		return false
	}
	switch c.Table.Family {
	case nftables.TableFamilyARP, nftables.TableFamilyNetdev, nftables.TableFamilyBridge:
		return true
	case nftables.TableFamilyINet:
		return *c.Hooknum == netInetIngress
	}
	return false
}

func chainName(c *nftables.Chain) string {
	family := map[nftables.TableFamily]string{
		nftables.TableFamilyARP: "arp", nftables.TableFamilyNetdev: "netdev",
		nftables.TableFamilyBridge: "bridge", nftables.TableFamilyINet: "inet",
	}[c.Table.Family]
	return fmt.Sprintf("chain %s %s %s", family, c.Table.Name, c.Name)
}
