// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"
)

// parseVIP checks an address before anything is sent. Every error is a usage error and says how to write it.
func parseVIP(s string) (netip.Addr, error) {
	if address, _, found := strings.Cut(s, "/"); found {
		return netip.Addr{}, usagef("VIP %q: give the address without a prefix length, for instance %s", s, orExample(address))
	}
	vip, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, usagef("VIP %q: not an IPv4 address, for instance 192.0.2.50", s)
	}
	switch {
	case vip.Is4In6():
		return netip.Addr{}, usagef("VIP %s: an IPv4 address in IPv6 form; write it as %s", s, vip.Unmap())
	case vip.Is6():
		return netip.Addr{}, usagef("VIP %s: IPv6 is not supported yet; who answers for it is UNKNOWN to this version, not nobody", s)
	case vip.IsUnspecified():
		return netip.Addr{}, usagef("VIP %s: the unspecified address belongs to no machine", s)
	case vip.IsLoopback():
		return netip.Addr{}, usagef("VIP %s: a loopback address never is on the network", s)
	case vip.IsMulticast():
		return netip.Addr{}, usagef("VIP %s: a multicast address has no single owner", s)
	case vip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return netip.Addr{}, usagef("VIP %s: the broadcast address belongs to everybody", s)
	}
	return vip, nil
}

// orExample returns s where it is an address, else one that can stand for it.
func orExample(s string) string {
	if _, err := netip.ParseAddr(s); err != nil {
		return "192.0.2.50"
	}
	return s
}

// oneArgument wants exactly one, named so in the usage error.
func oneArgument(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usagef("%s is missing", name)
		case len(args) > 1:
			return usagef("%s and nothing else is wanted, got %s", name, strings.Join(args, " "))
		case args[0] == "":
			return usagef("%s is empty", name)
		}
		return nil
	}
}

// noArguments wants none.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("no argument is wanted, got %s", strings.Join(args, " "))
	}
	return nil
}

// shellQuote writes s so that a POSIX shell reads it back as one word.
func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:=,@+", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return fmt.Sprintf("'%s'", strings.ReplaceAll(s, "'", `'\''`))
}
