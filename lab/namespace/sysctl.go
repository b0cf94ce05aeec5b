// SPDX-License-Identifier: Apache-2.0

//go:build linux

package namespace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const sysctlRoot = "/proc/sys"

// answerSysctls decide who answers ARP and which packets are taken; 0 is the
// kernel's default for each (Documentation/networking/ip-sysctl.rst).
var answerSysctls = []string{
	"accept_local", "arp_accept", "arp_announce", "arp_filter", "arp_ignore",
	"promote_secondaries", "proxy_arp", "route_localnet", "rp_filter",
}

// SetSysctl writes value to a sysctl of the namespace. The path is relative to
// /proc/sys, for example "net/ipv4/conf/eth0/arp_ignore".
func (n *Namespace) SetSysctl(path, value string) error {
	return n.Do(func() error { return writeSysctl(path, value) })
}

// Sysctl reads a sysctl of the namespace, without its trailing newline.
func (n *Namespace) Sysctl(path string) (string, error) {
	var value string
	err := n.Do(func() (err error) {
		value, err = readSysctl(path)
		return err
	})
	return value, err
}

func writeSysctl(path, value string) error {
	if err := os.WriteFile(filepath.Join(sysctlRoot, path), []byte(value), 0); err != nil {
		return fmt.Errorf("setting sysctl %s to %s: %w", path, value, err)
	}
	return nil
}

func readSysctl(path string) (string, error) {
	value, err := os.ReadFile(filepath.Join(sysctlRoot, path))
	if err != nil {
		return "", fmt.Errorf("reading sysctl %s: %w", path, err)
	}
	return strings.TrimSpace(string(value)), nil
}

// resetSysctls brings conf/all and conf/default of the calling thread's
// namespace to the kernel's defaults, writing only what differs: where
// /proc/sys is mounted read-only a host with defaults still works.
func resetSysctls() error {
	paths := []string{"net/ipv4/ip_forward"}
	for _, name := range answerSysctls {
		paths = append(paths, "net/ipv4/conf/all/"+name, "net/ipv4/conf/default/"+name)
	}
	for _, path := range paths {
		value, err := readSysctl(path)
		if err != nil {
			return err
		}
		if value == "0" {
			continue
		}
		if err := writeSysctl(path, "0"); err != nil {
			return err
		}
	}
	return nil
}
