// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Options of the real kernel. The zero value is that of a node.
type Options struct {
	SysctlRoot string // default /proc/sys
	ProcRoot   string // default /proc

	KubeProxyURL       string // default http://127.0.0.1:10249/proxyMode
	KubeProxyHealthURL string // default http://127.0.0.1:10256/healthz
	// Dial reaches the two. It is called by the goroutine that called State.
	// Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	Log *slog.Logger // default: none
}

// Linux is the kernel of the calling thread's network namespace. Its methods
// may be called from several goroutines; each call opens its own sockets.
type Linux struct {
	options Options
	proxy   kubeProxyProbe
	builtin builtins

	// Replaced by tests only.
	linkList func() ([]netlink.Link, error)
	ipvsDump func() ([]IPVSService, error)
	pause    func(context.Context, int)
}

var _ Kernel = (*Linux)(nil)

// New checks the options. It opens and starts nothing.
func New(o Options) (*Linux, error) {
	if o.SysctlRoot == "" {
		o.SysctlRoot = "/proc/sys"
	}
	if o.ProcRoot == "" {
		o.ProcRoot = "/proc"
	}
	if o.KubeProxyURL == "" {
		o.KubeProxyURL = "http://127.0.0.1:10249/proxyMode"
	}
	if o.KubeProxyHealthURL == "" {
		o.KubeProxyHealthURL = "http://127.0.0.1:10256/healthz"
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Linux{options: o, linkList: netlink.LinkList, ipvsDump: ipvsNetlink, pause: backOff, proxy: kubeProxyProbe{dial: o.Dial}}
	l.builtin.symbols = filepath.Join(o.ProcRoot, "kallsyms")
	for _, u := range []struct {
		name, raw string
		to        **url.URL
	}{{"kube-proxy", o.KubeProxyURL, &l.proxy.mode}, {"kube-proxy health", o.KubeProxyHealthURL, &l.proxy.health}} {
		parsed, err := url.Parse(u.raw)
		if err != nil || parsed.Scheme != "http" || parsed.Port() == "" {
			return nil, fmt.Errorf("reading the %s URL %q: want http://ADDRESS:PORT/PATH", u.name, u.raw)
		}
		*u.to = parsed
	}
	return l, nil
}

// BootTime reads CLOCK_BOOTTIME, which no Linux since 2.6.39 refuses.
func (l *Linux) BootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// BootID reads sys/kernel/random/boot_id under ProcRoot.
func (l *Linux) BootID() (string, error) {
	f, err := os.Open(filepath.Join(l.options.ProcRoot, "sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 128))
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	id := strings.TrimSpace(string(b))
	if id == "" {
		return "", errors.New("reading the boot id: the file is empty")
	}
	return id, nil
}

// ListLink asks the kernel for one link's addresses.
func (l *Linux) ListLink(ctx context.Context, index int) ([]Address, error) {
	list, err := l.list(ctx, index)
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of link index %d: %w", index, err)
	}
	return list, nil
}

// Remove deletes exactly t; see Kernel.
func (l *Linux) Remove(ctx context.Context, t Tuple) (Outcome, error) {
	out, err := remove(ctx, l, t)
	l.note("address removal", t, out, err)
	return out, err
}

// Restore puts t back; see Kernel.
func (l *Linux) Restore(ctx context.Context, t Tuple) (Outcome, error) {
	out, err := restore(ctx, l, t)
	l.note("address restore", t, out, err)
	return out, err
}

// note logs what was done to the kernel, and nothing where nothing was sent.
func (l *Linux) note(message string, t Tuple, out Outcome, err error) {
	if !out.Sent {
		return
	}
	level, args := slog.LevelInfo, []any{"prefix", t.Prefix, "link", t.Link, "result", out.Result, "detail", out.Detail}
	if err != nil {
		level, args = slog.LevelError, append(args, "err", err)
	}
	l.options.Log.Log(context.Background(), level, message, args...)
}
