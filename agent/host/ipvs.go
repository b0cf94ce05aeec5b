// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloudflare/ipvs"
)

// ipvs reads the virtual services until two readings in a row agree, and says
// how often that had to be repeated. No reading is atomic: it goes on from a
// position in the table, so a service that goes meanwhile moves a later one,
// which stays, out of the reading (ip_vs_info_array and
// ip_vs_genl_dump_services in net/netfilter/ipvs/ip_vs_ctl.c).
func (l *Linux) ipvs(ctx context.Context) (table IPVS, repeats int) {
	repeats, err := uninterrupted(ctx, l.pause, func() (err error) {
		table, err = l.ipvsOnce()
		return err
	})
	if err != nil {
		table = IPVS{State: IPVSUnreadable, Reason: fmt.Sprintf("reading the table twice alike: %v", err)}
	}
	return table, repeats
}

// ipvsOnce reads the services twice: from the file and through netlink, or by
// the one of the two that can be read. It looks for ip_vs in /proc first: to
// ask generic netlink for a family that is not there makes the kernel load the
// module (ctrl_getfamily in net/netlink/genetlink.c; ip_vs has the alias since
// Linux 5.16), and this product loads none. ErrInterrupted: the two differ.
func (l *Linux) ipvsOnce() (IPVS, error) {
	first, procErr := l.ipvsFile()
	if errors.Is(procErr, fs.ErrNotExist) {
		return l.withoutIPVS(), nil
	}
	second, netlinkErr := l.ipvsDump()
	again, source := error(nil), "netlink and proc"
	switch {
	case procErr != nil && netlinkErr != nil:
		return IPVS{State: IPVSUnreadable, Reason: fmt.Sprintf("%v; through netlink: %v", procErr, denied(netlinkErr))}, nil
	case procErr != nil:
		source = "netlink"
		first, again = l.ipvsDump()
	case netlinkErr != nil:
		source = "proc"
		second, again = l.ipvsFile()
	}
	slices.SortFunc(first, compareIPVS)
	slices.SortFunc(second, compareIPVS)
	switch {
	case again != nil || !slices.Equal(first, second):
		return IPVS{}, ErrInterrupted
	case len(first) == 0:
		return IPVS{State: IPVSNone, Source: source}, nil
	}
	return IPVS{State: IPVSPresent, Services: first, Source: source}, nil
}

func compareIPVS(a, b IPVSService) int {
	return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port),
		strings.Compare(a.Protocol, b.Protocol), cmp.Compare(a.FWMark, b.FWMark))
}

// ipvsFile reads /proc/net/ip_vs of the calling thread; fs.ErrNotExist where
// there is none.
func (l *Linux) ipvsFile() ([]IPVSService, error) {
	b, err := os.ReadFile(filepath.Join(l.options.ProcRoot, "thread-self/net/ip_vs"))
	if err == nil {
		var list []IPVSService
		if list, err = parseIPVS(b); err == nil {
			return list, nil
		}
	}
	return nil, fmt.Errorf("reading /proc/net/ip_vs: %w", err)
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
