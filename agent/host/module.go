// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// moduleLoaded says whether a module is in this kernel now, as a loaded one. A
// kernel without modules has no /proc/modules, so no.
func (l *Linux) moduleLoaded(name string) (bool, error) {
	b, err := os.ReadFile(filepath.Join(l.options.ProcRoot, "modules"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(b)) {
		if first, _, _ := strings.Cut(line, " "); first == name {
			return true, nil
		}
	}
	return false, nil
}

// builtins knows what was compiled into the kernel, which /proc/modules does
// not list. It reads the symbols once: they do not change before a reboot.
type builtins struct {
	symbols string // path of /proc/kallsyms

	once  sync.Once
	found bool
	err   error
}

// nftables says whether nf_tables is compiled in.
func (b *builtins) nftables() (bool, error) {
	b.once.Do(func() {
		f, err := os.Open(b.symbols)
		if errors.Is(err, fs.ErrNotExist) {
			b.err = errors.New("this kernel shows no symbols")
			return
		}
		if err != nil {
			b.err = err
			return
		}
		defer f.Close()
		b.found, b.err = hasSymbol(f, "nft_register_chain_type")
	})
	return b.found, b.err
}

// hasSymbol looks for a symbol of the kernel itself, not of a module, in the
// form of /proc/kallsyms: "ffffffff81241d1c t NAME" and "… NAME\t[MODULE]".
func hasSymbol(r io.Reader, name string) (bool, error) {
	scan := bufio.NewScanner(r)
	want := []byte(" " + name)
	for scan.Scan() {
		if bytes.HasSuffix(scan.Bytes(), want) {
			return true, nil
		}
	}
	if err := scan.Err(); err != nil {
		return false, fmt.Errorf("reading kernel symbols: %w", err)
	}
	return false, nil
}

// netfilterSocket says whether the kernel speaks NETLINK_NETFILTER: opening
// such a socket where it does not would load a module (netlink_create in
// net/netlink/af_netlink.c). The kernel's own end is the one with port 0.
func (l *Linux) netfilterSocket() (bool, error) {
	b, err := os.ReadFile(filepath.Join(l.options.ProcRoot, "thread-self/net/netlink"))
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(b)) {
		// sk Eth Pid Groups …
		if f := strings.Fields(line); len(f) > 2 && f[1] == "12" && f[2] == "0" {
			return true, nil
		}
	}
	return false, nil
}

// nftablesPresent says whether nf_tables can be asked without loading it.
func (l *Linux) nftablesPresent() (bool, error) {
	socket, err := l.netfilterSocket()
	if err != nil || !socket {
		return false, err
	}
	loaded, err := l.moduleLoaded("nf_tables")
	if err != nil || loaded {
		return loaded, err
	}
	return l.builtin.nftables()
}
