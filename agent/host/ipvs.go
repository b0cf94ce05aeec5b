// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloudflare/ipvs"
)

// ipvs reads the virtual services. It looks for ip_vs in /proc first: to ask
// generic netlink for a family that is not there makes the kernel load the
// module (ctrl_getfamily in net/netlink/genetlink.c; ip_vs has the alias since
// Linux 5.16), and this product loads none.
func (l *Linux) ipvs() IPVS {
	proc, err := os.ReadFile(filepath.Join(l.options.ProcRoot, "thread-self/net/ip_vs"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l.withoutIPVS()
	case err != nil:
		return l.ipvsFrom(nil, fmt.Errorf("reading /proc/net/ip_vs: %w", err))
	}
	services, err := parseIPVS(proc)
	if err != nil {
		err = fmt.Errorf("reading /proc/net/ip_vs: %w", err)
	}
	return l.ipvsFrom(services, err)
}

// withoutIPVS is what a missing file means: no ip_vs, if the place where the
// file would be can be seen and the module list does not contradict.
func (l *Linux) withoutIPVS() IPVS {
	net := filepath.Join(l.options.ProcRoot, "thread-self/net")
	if _, err := os.ReadDir(net); err != nil {
		return IPVS{State: IPVSUnreadable, Reason: fmt.Sprintf("looking for /proc/net/ip_vs: %v", err)}
	}
	loaded, err := l.moduleLoaded("ip_vs")
	switch {
	case err != nil:
		return IPVS{State: IPVSUnreadable, Reason: fmt.Sprintf("looking for the module ip_vs: %v", err)}
	case loaded:
		return IPVS{State: IPVSUnreadable, Reason: "the module ip_vs is loaded and /proc/net/ip_vs is missing"}
	}
	return IPVS{State: IPVSAbsent, Source: "proc"}
}

// ipvsFrom puts what netlink says beside what the file said. Neither dump is
// atomic, so a service that either of them shows is there.
func (l *Linux) ipvsFrom(proc []IPVSService, procErr error) IPVS {
	kernel, netlinkErr := ipvsNetlink()
	if procErr != nil && netlinkErr != nil {
		return IPVS{State: IPVSUnreadable, Reason: fmt.Sprintf("%v; through netlink: %v", procErr, denied(netlinkErr))}
	}
	out := IPVS{State: IPVSNone, Services: kernel, Source: "netlink and proc"}
	if procErr != nil {
		out.Source = "netlink"
	}
	if netlinkErr != nil {
		out.Source = "proc"
	}
	for _, s := range proc {
		if !slices.Contains(out.Services, s) {
			out.Services = append(out.Services, s)
		}
	}
	if len(out.Services) > 0 {
		out.State = IPVSPresent
	}
	return out
}

// ipvsNetlink must only be called where ip_vs is known to be in the kernel.
func ipvsNetlink() ([]IPVSService, error) {
	client, err := ipvs.New()
	if err != nil {
		return nil, err
	}
	if c, ok := client.(interface{ Close() error }); ok {
		defer c.Close()
	}
	raw, err := client.Services()
	if errors.Is(err, os.ErrNotExist) { // the library's word for an empty table
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []IPVSService
	for _, s := range raw {
		if s.FWMark != 0 {
			list = append(list, IPVSService{FWMark: s.FWMark})
			continue
		}
		list = append(list, IPVSService{Address: s.Address.Unmap(), Port: s.Port, Protocol: strings.ToLower(s.Protocol.String())})
	}
	return list, nil
}
