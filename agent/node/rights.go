// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// netAdmin says why the kernel would not let this process change addresses;
// empty: it would (capabilities(7), in the user namespace of this process).
func netAdmin() string {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Sprintf("reading the capabilities of this process: %v", err)
	}
	if data[unix.CAP_NET_ADMIN/32].Effective&(1<<(unix.CAP_NET_ADMIN%32)) == 0 {
		return "it lacks CAP_NET_ADMIN"
	}
	return ""
}
