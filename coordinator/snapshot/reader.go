// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
)

// reader reads values and keeps the first error with the path to where it stood.
type reader struct {
	path []string
	err  error
}

// in runs read with one more step on the path.
func (r *reader) in(step string, read func()) {
	r.path = append(r.path, step)
	read()
	r.path = r.path[:len(r.path)-1]
}

func (r *reader) bad(field string, err error) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %w", strings.Join(append(r.path, field), ": "), err)
	}
}

// addr reads an address; empty is the zero Addr. IPv4 in IPv6 form is taken as IPv4.
func (r *reader) addr(field, s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		r.bad(field, fmt.Errorf("%q is not an IP address", s))
	case a.Zone() != "":
		r.bad(field, fmt.Errorf("%q has a zone", s))
	}
	return a.Unmap()
}

// prefix reads an address with its prefix length, not masked; empty is the zero Prefix.
func (r *reader) prefix(field, s string) netip.Prefix {
	if s == "" {
		return netip.Prefix{}
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		r.bad(field, fmt.Errorf("%q is not an address with a prefix length", s))
	}
	return p
}

// mac reads a hardware address of any length into lower case with colons; empty stays empty.
func (r *reader) mac(field, s string) string {
	if s == "" {
		return ""
	}
	m, err := net.ParseMAC(s)
	if err != nil {
		r.bad(field, fmt.Errorf("%q is not a MAC address", s))
	}
	return m.String()
}

// small reads a number of at most eight bits.
func (r *reader) small(field string, v uint32) uint8 {
	if v > 255 {
		r.bad(field, fmt.Errorf("%d is above 255", v))
	}
	return uint8(v)
}

// vlan reads an 802.1Q VLAN ID; 0 is none.
func (r *reader) vlan(v uint32) uint16 {
	if v > 4094 {
		r.bad("vlan", fmt.Errorf("%d is above 4094", v))
	}
	return uint16(v)
}

func (r *reader) duration(field string, d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	if err := d.CheckValid(); err != nil {
		r.bad(field, err)
	}
	return d.AsDuration()
}

func number(v *int32) *int {
	if v == nil {
		return nil
	}
	n := int(*v)
	return &n
}

func numberToProto(v *int) *int32 {
	if v == nil {
		return nil
	}
	n := int32(*v)
	return &n
}

func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

func durationToProto(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
