// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// procIPVS is /proc/net/ip_vs as a kernel 6.1 prints it.
const procIPVS = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600001:01BB rr 
  -> C000020B:192B      Masq    1      0          0         
UDP  0A60000A:0035 rr persistent 10800 FFFFFFFF
TCP  [2001:0db8:0000:0000:0000:0000:0000:0050]:0050 wrr 
  -> [2001:0db8:0000:0000:0000:0000:0000:0061]:1F90      Masq    1      0          0         
SCTP C0000232:0B59 rr ops
FWM  0000002A rr 
`

var procServices = []IPVSService{
	{Address: netip.MustParseAddr("10.96.0.1"), Port: 443, Protocol: "tcp"},
	{Address: netip.MustParseAddr("10.96.0.10"), Port: 53, Protocol: "udp"},
	{Address: vipSix, Port: 80, Protocol: "tcp"},
	{Address: vip, Port: 2905, Protocol: "sctp"},
	{FWMark: 42},
}

const procIPVSHeader = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n"

func TestIPVSFileIsReadWhole(t *testing.T) {
	got, err := parseIPVS([]byte(procIPVS))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(procServices, got, netipEqual); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	if got, err := parseIPVS([]byte(procIPVSHeader)); err != nil || len(got) != 0 {
		t.Errorf("a table without services: got %v, %v", got, err)
	}
}

// A service overlooked would be an address removed under its clients.
func TestIPVSFileWithAnythingUnknownIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"empty":              "",
		"another file":       "TCP  0A600001:01BB rr\n",
		"new protocol":       procIPVSHeader + "QUIC 0A600001:01BB rr\n",
		"no port":            procIPVSHeader + "TCP  0A600001 rr\n",
		"port of 5 digits":   procIPVSHeader + "TCP  0A600001:101BB rr\n",
		"address of 3 bytes": procIPVSHeader + "TCP  0A6000:01BB rr\n",
		"dotted address":     procIPVSHeader + "TCP  10.96.0.1:01BB rr\n",
		"open bracket":       procIPVSHeader + "TCP  [2001:0db8::1:0050 rr\n",
		"a zone":             procIPVSHeader + "TCP  [fe80::1%eth0]:0050 rr\n",
		"IPv4 in brackets":   procIPVSHeader + "TCP  [10.96.0.1]:0050 rr\n",
		"mark too large":     procIPVSHeader + "FWM  1FFFFFFFF rr\n",
		"cut":                procIPVSHeader + "TCP\n",
		"a line for ever":    procIPVSHeader + strings.Repeat("T", 1<<17),
	} {
		if got, err := parseIPVS([]byte(text)); err == nil || got != nil {
			t.Errorf("%s: read as %v, want an error", name, got)
		}
	}
}

func FuzzIPVSFile(f *testing.F) {
	f.Add([]byte(procIPVS))
	f.Add([]byte(procIPVSHeader))
	f.Add([]byte(procIPVSHeader + "TCP  [::]:0 rr\nFWM  0 rr\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := parseIPVS(b)
		if err != nil && list != nil {
			t.Error("services beside an error")
		}
		lines := 0
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 1 && slices.Contains([]string{"TCP", "UDP", "SCTP", "FWM"}, f[0]) {
				lines++
			}
		}
		if err == nil && lines != len(list) {
			t.Errorf("%d services in %d lines", len(list), lines)
		}
		for _, s := range list {
			if s.Address.IsValid() == (s.Protocol == "") {
				t.Errorf("service %+v has an address or a mark, not both", s)
			}
		}
	})
}

// unreadable is a file that exists and that even root cannot read.
const unreadable = "\x00directory"

func ipvsWorld(t *testing.T, content map[string]string) *Linux {
	t.Helper()
	root := files(t, map[string]string{"version": "Linux"})
	for name, text := range content {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if text == unreadable {
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := New(Options{ProcRoot: root})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// I6: an IPVS table that cannot be read is not an empty one. The test machine
// has no ip_vs, so netlink has nothing to add to the fixtures; where it has,
// both are told.
func TestIPVSStates(t *testing.T) {
	for _, c := range []struct {
		name   string
		files  map[string]string
		state  IPVSState
		reason string
	}{
		{"C01 no file, no module: absent", map[string]string{"thread-self/net/dev": "", "modules": "nf_tables 300 1 - Live 0x0\n"}, IPVSAbsent, ""},
		{"no file, a kernel without modules: absent", map[string]string{"thread-self/net/dev": ""}, IPVSAbsent, ""},
		{"a module of a similar name is not it", map[string]string{"thread-self/net/dev": "", "modules": "ip_vs_rr 12288 0 - Live 0x0\n"}, IPVSAbsent, ""},
		{"no file, but the module: unreadable", map[string]string{"thread-self/net/dev": "", "modules": "ip_vs 12288 0 - Live 0x0\n"}, IPVSUnreadable, "loaded"},
		{"no file, module list unreadable: unreadable", map[string]string{"thread-self/net/dev": "", "modules": unreadable}, IPVSUnreadable, "looking for the module ip_vs"},
		{"nowhere to look: unreadable", map[string]string{"modules": ""}, IPVSUnreadable, "looking for /proc/net/ip_vs"},
		{"file without services: none", map[string]string{"thread-self/net/ip_vs": procIPVSHeader}, IPVSNone, ""},
		{"file with services: present", map[string]string{"thread-self/net/ip_vs": procIPVS}, IPVSPresent, ""},
		{"file unreadable: unreadable", map[string]string{"thread-self/net/ip_vs": unreadable}, IPVSUnreadable, "reading /proc/net/ip_vs"},
		{"file not understood: unreadable", map[string]string{"thread-self/net/ip_vs": procIPVSHeader + "QUIC x rr\n"}, IPVSUnreadable, `unknown protocol "QUIC"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ipvsWorld(t, c.files).ipvs()
			if _, err := os.Stat("/proc/net/ip_vs"); err == nil && c.files["thread-self/net/ip_vs"] != "" {
				t.Skip("this kernel has ip_vs and answers beside the fixture")
			}
			if got.State != c.state || !strings.Contains(got.Reason, c.reason) || (got.Reason == "") != (c.reason == "") {
				t.Errorf("got %s (%s), want %s (… %s …)", got.State, got.Reason, c.state, c.reason)
			}
			if (len(got.Services) > 0) != (c.state == IPVSPresent) {
				t.Errorf("%s with services %v", got.State, got.Services)
			}
			if got.State != IPVSUnreadable && got.Source != "proc" {
				t.Errorf("source %q, want proc", got.Source)
			}
		})
	}
}

func TestIPVSServes(t *testing.T) {
	table := IPVS{Services: []IPVSService{{Address: vip, Port: 80, Protocol: "tcp"}}}
	if !table.Serves(vip) || table.Serves(vipSix) || (IPVS{}).Serves(vip) {
		t.Error("a service stands behind its own address only")
	}
	table.Services = append(table.Services, IPVSService{FWMark: 42})
	if !table.Serves(vipSix) {
		t.Error("nobody can tell what is behind a firewall mark, so it must count")
	}
}

// An unreadable table is named in the state, so that no step starts on it.
func TestAnUnreadableIPVSTableIsIncomplete(t *testing.T) {
	w := newNamespaceWorld(t, Options{})
	w.linux = ipvsWorld(t, map[string]string{"thread-self/net/ip_vs": unreadable, "sys/kernel/random/boot_id": "x"})
	st, err := w.State(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(st.Incomplete, func(s string) bool { return strings.HasPrefix(s, "IPVS services: reading /proc/net/ip_vs") }) {
		t.Errorf("incomplete: %q, want the IPVS table named", st.Incomplete)
	}
}
