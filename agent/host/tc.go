// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// trafficControl lists the tc filters of the links' ingress and clsact qdiscs.
// Without such a qdisc there is no filter that ARP could meet on its way in.
func (l *Linux) trafficControl(path *ARPPath, links []Link) {
	classifying := map[int]string{}
	err := l.untilClean(func() error {
		qdiscs, err := netlink.QdiscList(nil)
		if err != nil {
			return interruption(err) // the list may be half of it
		}
		for _, q := range qdiscs {
			if kind := q.Type(); kind == "ingress" || kind == "clsact" {
				classifying[q.Attrs().LinkIndex] = kind
			}
		}
		return nil
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return // a kernel without traffic control
	}
	if err != nil {
		path.add(ARPHook{Kind: "tc", Unread: true, Detail: denied(err).Error()})
		return
	}
	for _, link := range links {
		switch classifying[link.Index] {
		case "clsact":
			l.filters(path, link, "ingress", netlink.HANDLE_MIN_INGRESS)
			l.filters(path, link, "egress", netlink.HANDLE_MIN_EGRESS)
		case "ingress":
			l.filters(path, link, "ingress", netlink.HANDLE_MIN_INGRESS)
		}
	}
}

func (l *Linux) filters(path *ARPPath, link Link, direction string, parent uint32) {
	index := netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: link.Index, Name: link.Name}}
	var found []netlink.Filter
	err := l.untilClean(func() (err error) {
		found, err = netlink.FilterList(&index, parent)
		return interruption(err)
	})
	if err != nil {
		path.add(ARPHook{Kind: "tc", Link: link.Name, Unread: true, Detail: denied(err).Error()})
		return
	}
	for _, f := range found {
		detail := fmt.Sprintf("%s filter %s, priority %d", direction, f.Type(), f.Attrs().Priority)
		if bpf, ok := f.(*netlink.BpfFilter); ok && bpf.Name != "" {
			detail += ", program " + bpf.Name
		}
		path.add(ARPHook{Kind: "tc", Link: link.Name, Detail: detail})
	}
}

// untilClean repeats an interrupted dump that has no context of its own.
func (l *Linux) untilClean(once func() error) error {
	_, err := uninterrupted(context.Background(), l.pause, once)
	return err
}

// tcx lists the programs that hang on the links themselves (Linux 6.6), which
// no tc dump shows. Cilium prefers them.
func tcx(path *ARPPath, links []Link) {
	for _, link := range links {
		for _, at := range []struct {
			direction string
			attach    uint32
		}{{"ingress", unix.BPF_TCX_INGRESS}, {"egress", unix.BPF_TCX_EGRESS}} {
			programs, err := queryPrograms(link.Index, at.attach)
			switch {
			case errors.Is(err, unix.EPERM):
				// The same for every link: say it once.
				path.add(ARPHook{Kind: "tcx", Unread: true, Detail: "bpf: permission denied (needs CAP_NET_ADMIN in the first user namespace, and bpf(2) allowed)"})
				return
			case errors.Is(err, unix.ENODEV): // the link went meanwhile
			case err != nil:
				path.add(ARPHook{Kind: "tcx", Link: link.Name, Unread: true, Detail: err.Error()})
			}
			for _, id := range programs {
				path.add(ARPHook{Kind: "tcx", Link: link.Name, Detail: fmt.Sprintf("%s program %d", at.direction, id)})
			}
		}
	}
}

// programQuery is the query part of union bpf_attr (include/uapi/linux/bpf.h).
type programQuery struct {
	target      uint32 // link index
	attach      uint32
	queryFlags  uint32
	attachFlags uint32
	ids         uint64 // address of the array below
	count       uint32 // its length; then how many there are
	_           uint32
	idFlags     uint64
	linkIDs     uint64
	linkFlags   uint64
	revision    uint64
}

// queryPrograms asks bpf(2) for the ids of the programs attached to a link. A
// kernel without the attach type, or without bpf, has none.
func queryPrograms(index int, attach uint32) ([]uint32, error) {
	ids := make([]uint32, 64)
	var pin runtime.Pinner // q holds the address as a number, which moves nothing along
	pin.Pin(&ids[0])
	defer pin.Unpin()
	q := programQuery{
		target: uint32(index), attach: attach,
		ids: uint64(uintptr(unsafe.Pointer(&ids[0]))), count: uint32(len(ids)),
	}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_QUERY, uintptr(unsafe.Pointer(&q)), unsafe.Sizeof(q))
	switch errno {
	case 0:
		return ids[:min(int(q.count), len(ids))], nil
	case unix.EINVAL, unix.ENOSYS, unix.ENOENT:
		return nil, nil
	}
	return nil, errno
}
