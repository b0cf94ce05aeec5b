// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// neighbourTable is the IPv4 neighbour table of the calling thread's network
// namespace (proc(5); arp_format_neigh_entry in net/ipv4/arp.c).
const neighbourTable = "/proc/thread-self/net/arp"

// neighbourMAC is the MAC that this kernel has for ip; empty while it has none.
func neighbourMAC(ip netip.Addr) (string, error) {
	file, err := os.Open(neighbourTable)
	if err != nil {
		return "", fmt.Errorf("reading the neighbour entry of %s: %w", ip, err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if mac, found := neighbourLine(lines.Text(), ip); found {
			return mac, nil
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("reading the neighbour entry of %s: %w", ip, err)
	}
	return "", nil
}

// neighbourLine reads one line: address, hardware type, flags, MAC, mask,
// device. Flags 0 is an entry without a MAC; proxy entries (flag 8) are this
// host's own promises.
func neighbourLine(line string, ip netip.Addr) (mac string, found bool) {
	fields := strings.Fields(line)
	if len(fields) != 6 || fields[0] != ip.String() || fields[3] == "00:00:00:00:00:00" {
		return "", false
	}
	var flags uint
	if _, err := fmt.Sscanf(fields[2], "0x%x", &flags); err != nil || flags&0x2 == 0 {
		return "", false
	}
	return fields[3], true
}
