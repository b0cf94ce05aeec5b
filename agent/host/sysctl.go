// SPDX-License-Identifier: Apache-2.0

package host

import (
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sysctls fills in the settings that decide about ARP.
func (l *Linux) sysctls(st *State) {
	root := filepath.Join(l.options.SysctlRoot, "net/ipv4")
	st.IPForward = readInt(filepath.Join(root, "ip_forward"))
	st.AllSysctls = readSysctls(filepath.Join(root, "conf/all"))
	st.DefaultSysctls = readSysctls(filepath.Join(root, "conf/default"))
	st.LinkSysctls = make(map[string]Sysctls, len(st.Links))
	for _, link := range st.Links {
		// A name is one directory whatever dots it has: eth0.217 is not
		// eth0/217, as sysctl(8) would read it.
		st.LinkSysctls[link.Name] = readSysctls(filepath.Join(root, "conf", link.Name))
	}
}

func readSysctls(dir string) Sysctls {
	return Sysctls{
		ArpIgnore:          readInt(filepath.Join(dir, "arp_ignore")),
		ArpAnnounce:        readInt(filepath.Join(dir, "arp_announce")),
		ArpFilter:          readInt(filepath.Join(dir, "arp_filter")),
		ProxyArp:           readInt(filepath.Join(dir, "proxy_arp")),
		RpFilter:           readInt(filepath.Join(dir, "rp_filter")),
		PromoteSecondaries: readInt(filepath.Join(dir, "promote_secondaries")),
		RouteLocalnet:      readInt(filepath.Join(dir, "route_localnet")),
		AcceptLocal:        readInt(filepath.Join(dir, "accept_local")),
		Forwarding:         readInt(filepath.Join(dir, "forwarding")),
	}
}

// readInt is nil when the file cannot be read or does not hold a number. It
// asks the kernel directly: a node with hundreds of pods has thousands of these
// files, and os.ReadFile makes twice the calls.
func readInt(path string) *int {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var b [32]byte
	n, err := unix.Read(fd, b[:])
	if err != nil || n == len(b) {
		return nil
	}
	v, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return nil
	}
	return &v
}
