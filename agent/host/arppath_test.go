// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// found are the hooks of one kind, as sentences.
func found(p ARPPath, kind string) []string {
	var list []string
	for _, h := range p.Hooks {
		if h.Kind == kind {
			list = append(list, h.String())
		}
	}
	return list
}

// readARPPath is what stands on the ARP path of the world.
func readARPPath(t *testing.T, w *linuxWorld) ARPPath {
	t.Helper()
	st, err := w.State(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return st.ARPPath
}

func TestAnEmptyARPPathIsKnown(t *testing.T) {
	w := newNamespaceWorld(t, Options{})
	story(w)
	p := readARPPath(t, w)
	p.Hooks = slices.DeleteFunc(p.Hooks, func(h ARPHook) bool { return h.Kind == "tcx" && h.Unread }) // bpf(2) without rights
	if len(p.Hooks) > 0 {
		t.Errorf("hooks on a bare node: %+v", p.Hooks)
	}
}

// The lab mutes ARP this way, and so do arptables-nft and some hosters.
func TestNftablesChainsThatSeeARPAreListed(t *testing.T) {
	w := newNamespaceWorld(t, Options{})
	drop, accept := nftables.ChainPolicyDrop, nftables.ChainPolicyAccept
	w.do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		arp := c.AddTable(&nftables.Table{Family: nftables.TableFamilyARP, Name: "guard"})
		output := c.AddChain(&nftables.Chain{Name: "out", Table: arp, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookRef(1), Priority: nftables.ChainPriorityFilter, Policy: &accept})
		c.AddRule(&nftables.Rule{Table: arp, Chain: output, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}})
		c.AddChain(&nftables.Chain{Name: "in", Table: arp, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookRef(0), Priority: nftables.ChainPriorityFilter, Policy: &drop})
		c.AddChain(&nftables.Chain{Name: "idle", Table: arp, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookRef(0), Priority: nftables.ChainPriorityMangle, Policy: &accept})
		c.AddChain(&nftables.Chain{Name: "unused", Table: arp})
		ip := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "nat"})
		forward := c.AddChain(&nftables.Chain{Name: "forward", Table: ip, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &drop})
		c.AddRule(&nftables.Rule{Table: ip, Chain: forward, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}})
		return c.Flush()
	})
	p := readARPPath(t, w)
	got := found(p, "nftables")
	slices.Sort(got)
	want := []string{"nftables: chain arp guard in has 0 rules and drops the rest", "nftables: chain arp guard out has 1 rules"}
	if !slices.Equal(got, want) || !p.Unknown {
		t.Errorf("got %q, unknown %v, want %q", got, p.Unknown, want)
	}
	if len(p.Reasons) != len(p.Hooks) {
		t.Errorf("%d reasons for %d hooks", len(p.Reasons), len(p.Hooks))
	}
}

func TestNftablesThatCannotBeReadIsUnknown(t *testing.T) {
	w := newNamespaceWorld(t, Options{})
	w.deny(true)
	got := found(readARPPath(t, w), "nftables")
	if len(got) != 1 || !strings.Contains(got[0], "could not be read: permission denied (needs CAP_NET_ADMIN)") {
		t.Errorf("got %q, want it named as unread", got)
	}
}

func TestIngressFiltersOfNICsAreListedAndThoseOfPodsAreNot(t *testing.T) {
	w := newNamespaceWorld(t, Options{})
	eth0 := w.link("eth0").Attrs().Index
	w.do(func() error {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lxc1"}, PeerName: "pod1"}); err != nil {
			return err
		}
		for _, index := range []int{eth0, linkIndex("lxc1")} {
			err := errors.Join(
				netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}),
				netlink.FilterAdd(&netlink.U32{FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: 7, Protocol: unix.ETH_P_ALL}}),
				netlink.FilterAdd(&netlink.U32{FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_EGRESS, Priority: 8, Protocol: unix.ETH_P_ALL}}),
			)
			if err != nil {
				return err
			}
		}
		return nil
	})
	got := found(readARPPath(t, w), "tc")
	want := []string{"tc on eth0: ingress filter u32, priority 7", "tc on eth0: egress filter u32, priority 8"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Programs on the link itself: what Cilium loads, and what no tc dump shows.
func TestXDPAndTCXProgramsOfNICsAreListed(t *testing.T) {
	w := newNamespaceWorld(t, Options{})
	eth0 := w.link("eth0")
	var refused error
	w.do(func() error {
		sched, err := loadProgram(unix.BPF_PROG_TYPE_SCHED_CLS, 0xffffffff) // TCX_NEXT
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
			refused = err
			return nil
		}
		xdp, err2 := loadProgram(unix.BPF_PROG_TYPE_XDP, 2) // XDP_PASS
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		defer unix.Close(sched)
		defer unix.Close(xdp)
		return errors.Join(
			attachProgram(sched, eth0.Attrs().Index, unix.BPF_TCX_INGRESS),
			netlink.LinkSetXdpFdWithFlags(eth0, xdp, unix.XDP_FLAGS_SKB_MODE),
		)
	})
	if refused != nil {
		t.Skipf("loading a program: %v (needs the rights of the first user namespace)", refused)
	}
	p := readARPPath(t, w)
	for kind, want := range map[string]string{"tcx": "tcx on eth0: ingress program ", "xdp": "xdp on eth0: program "} {
		if got := found(p, kind); len(got) != 1 || !strings.HasPrefix(got[0], want) || strings.HasSuffix(got[0], " 0") {
			t.Errorf("%s: got %q, want one %q with its id", kind, got, want)
		}
	}
}

// loadProgram loads "return verdict".
func loadProgram(typ, verdict uint32) (int, error) {
	insns := [2]struct {
		code, regs uint8
		off        int16
		imm        int32
	}{{code: 0xb7, imm: int32(verdict)}, {code: 0x95}} // r0 = verdict; exit
	license := [4]byte{'G', 'P', 'L'}
	attr := &struct {
		typ, count     uint32
		insns, license uint64
		_              [96]byte
	}{typ: typ, count: 2, insns: uint64(uintptr(unsafe.Pointer(&insns))), license: uint64(uintptr(unsafe.Pointer(&license)))}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr))
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

func attachProgram(fd, index int, at uint32) error {
	attr := &struct {
		target, program, attach, flags uint32
		_                              [32]byte
	}{target: uint32(index), program: uint32(fd), attach: at}
	if _, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_ATTACH, uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr)); errno != 0 {
		return errno
	}
	return nil
}

func TestARPPathOnLinksThatAreNotKnownIsUnknown(t *testing.T) {
	l, err := New(Options{ProcRoot: files(t, map[string]string{"thread-self/net/netlink": ""})})
	if err != nil {
		t.Fatal(err)
	}
	p := l.arpPath(nil, nil, nil)
	if !p.Unknown || len(p.Hooks) != 3 || slices.ContainsFunc(p.Hooks, func(h ARPHook) bool { return !h.Unread }) {
		t.Errorf("got %+v, want tc, tcx and xdp unread", p)
	}
}

func TestArptablesAreListed(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"not in this kernel", map[string]string{"thread-self/net/netlink": ""}, nil},
		{"loaded, no table in use", map[string]string{"thread-self/net/netlink": "", "thread-self/net/arp_tables_names": ""}, nil},
		{"a table in use", map[string]string{"thread-self/net/netlink": "", "thread-self/net/arp_tables_names": "filter\n"}, []string{"arptables: table filter"}},
	} {
		l, err := New(Options{ProcRoot: files(t, c.files)})
		if err != nil {
			t.Fatal(err)
		}
		if got := found(l.arpPath([]Link{}, nil, nil), "arptables"); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	l, err := New(Options{ProcRoot: ipvsWorld(t, map[string]string{"thread-self/net/arp_tables_names": unreadable}).options.ProcRoot})
	if err != nil {
		t.Fatal(err)
	}
	if got := found(l.arpPath([]Link{}, nil, nil), "arptables"); len(got) != 1 || !strings.Contains(got[0], "could not be read") {
		t.Errorf("unreadable: got %q", got)
	}
}

// Asking nf_tables where it is not would load it, so it is looked for first.
func TestNftablesIsOnlyAskedWhereItIs(t *testing.T) {
	const socket = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n0000000000000000 0   0          00000000 0        0        0     2        0        4\n"
	const netfilter = socket + "0000000000000000 12  0          00000000 0        0        0     2        0        551\n"
	const user = socket + "0000000000000000 12  4711       00000000 0        0        0     2        0        551\n"
	const symbols = "ffffffff81241d1c t nf_tables_fill_set_info\nffffffff81241d1c T nft_register_chain_type\n"
	const modular = "ffffffff81241d1c T nft_register_chain_type\t[nf_tables]\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  bool
		fails bool
	}{
		{"compiled in", map[string]string{"thread-self/net/netlink": netfilter, "kallsyms": symbols}, true, false},
		{"loaded", map[string]string{"thread-self/net/netlink": netfilter, "modules": "nf_tables 300 1 - Live 0x0\n", "kallsyms": ""}, true, false},
		{"neither", map[string]string{"thread-self/net/netlink": netfilter, "modules": "nfnetlink 300 1 - Live 0x0\n", "kallsyms": "ffffffff81241d1c t start_kernel\n"}, false, false},
		{"symbols of a module do not count as compiled in", map[string]string{"thread-self/net/netlink": netfilter, "modules": "", "kallsyms": modular}, false, false},
		{"no netfilter socket in the kernel", map[string]string{"thread-self/net/netlink": socket, "kallsyms": symbols}, false, false},
		{"somebody else's netfilter socket is not the kernel's", map[string]string{"thread-self/net/netlink": user, "kallsyms": symbols}, false, false},
		{"symbols are hidden", map[string]string{"thread-self/net/netlink": netfilter}, false, true},
		{"nowhere to look", map[string]string{"kallsyms": symbols}, false, true},
	} {
		l, err := New(Options{ProcRoot: files(t, c.files)})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := l.nftablesPresent(); got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: got %v, %v, want %v, failing %v", c.name, got, err, c.want, c.fails)
		}
	}
}
