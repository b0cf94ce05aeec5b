// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Linux answers the questions of Remove and Restore.
var _ tables = (*Linux)(nil)

func (l *Linux) name(index int) (string, error) {
	s, err := openSocket()
	if err != nil {
		return "", err
	}
	defer s.close()
	return s.ioctlName(index)
}

func (l *Linux) list(ctx context.Context, index int) ([]Address, error) {
	if index <= 0 { // 0 would ask for every link
		return nil, ErrNoLink
	}
	s, err := openSocket()
	if err != nil {
		return nil, err
	}
	defer s.close()
	var list []Address
	_, err = uninterrupted(ctx, l.pause, func() (err error) {
		list, err = s.addresses(ctx, index)
		return err
	})
	if err != nil {
		return nil, err
	}
	name, err := s.ioctlName(index)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].Link = name
	}
	return list, nil
}

func (l *Linux) local(ctx context.Context, ip netip.Addr) ([]Route, error) {
	s, err := openSocket()
	if err != nil {
		return nil, err
	}
	defer s.close()
	var list []Route
	_, err = uninterrupted(ctx, l.pause, func() (err error) {
		list, err = s.routes(ctx, familyOf(ip), LocalTable, func(r Route) bool {
			return r.Type == "local" && r.Covers(ip)
		})
		return err
	})
	for i := range list {
		list[i].Link, _ = s.ioctlName(list[i].LinkIndex) // "" when it went meanwhile
	}
	return list, err
}

func (l *Linux) add(t Tuple) error {
	s, err := openSocket()
	if err != nil {
		return err
	}
	defer s.close()
	return s.change(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, t.whole())
}

func (l *Linux) del(t Tuple) error {
	s, err := openSocket()
	if err != nil {
		return err
	}
	defer s.close()
	return s.change(unix.RTM_DELADDR, 0, t.identity())
}

func familyOf(ip netip.Addr) byte {
	if ip.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
