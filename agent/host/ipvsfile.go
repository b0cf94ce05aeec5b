// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// parseIPVS reads /proc/net/ip_vs (ip_vs_info_seq_show in
// net/netfilter/ipvs/ip_vs_ctl.c). A line that it does not know is an error: a
// service overlooked would be an address removed under its clients.
func parseIPVS(b []byte) ([]IPVSService, error) {
	var list []IPVSService
	scan := bufio.NewScanner(bytes.NewReader(b))
	headers := 0
	for scan.Scan() {
		fields := strings.Fields(scan.Text())
		switch {
		case len(fields) == 0:
		case headers < 3 && isIPVSHeader(fields):
			headers++
		case headers == 0:
			return nil, errors.New("the first line is not that of ip_vs")
		case fields[0] == "->": // a real server behind the service above
		default:
			s, err := parseIPVSService(fields)
			if err != nil {
				return nil, fmt.Errorf("line %.80q: %w", scan.Text(), err)
			}
			list = append(list, s)
		}
	}
	if err := scan.Err(); err != nil {
		return nil, err
	}
	if headers == 0 {
		return nil, errors.New("the file is empty")
	}
	return list, nil
}

func isIPVSHeader(fields []string) bool {
	line := strings.Join(fields, " ")
	return strings.HasPrefix(line, "IP Virtual Server version ") ||
		line == "Prot LocalAddress:Port Scheduler Flags" || strings.HasPrefix(line, "-> RemoteAddress:Port ")
}

// parseIPVSService reads "TCP C0000232:0050 rr", "UDP [2001:0db8:…]:0035 rr"
// or "FWM 00000001 rr".
func parseIPVSService(fields []string) (IPVSService, error) {
	if len(fields) < 2 {
		return IPVSService{}, errors.New("not a service")
	}
	switch fields[0] {
	case "FWM":
		mark, err := strconv.ParseUint(fields[1], 16, 32)
		return IPVSService{FWMark: uint32(mark)}, err
	case "TCP", "UDP", "SCTP":
	default:
		return IPVSService{}, fmt.Errorf("unknown protocol %q", fields[0])
	}
	colon := strings.LastIndexByte(fields[1], ':')
	if colon < 0 {
		return IPVSService{}, errors.New("no port")
	}
	port, err := strconv.ParseUint(fields[1][colon+1:], 16, 16)
	if err != nil {
		return IPVSService{}, fmt.Errorf("port: %w", err)
	}
	ip, err := parseIPVSAddress(fields[1][:colon])
	return IPVSService{Address: ip, Port: uint16(port), Protocol: strings.ToLower(fields[0])}, err
}

func parseIPVSAddress(s string) (netip.Addr, error) {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		ip, err := netip.ParseAddr(inner)
		if err == nil && (!ok || !ip.Is6() || ip.Zone() != "") {
			err = errors.New("not an IPv6 address")
		}
		return ip, err
	}
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 4 {
		return netip.Addr{}, errors.New("not an IPv4 address in hexadecimal")
	}
	return netip.AddrFrom4([4]byte(b)), nil
}
