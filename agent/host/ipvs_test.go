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
	"golang.org/x/sys/unix"
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

// readings plays netlink: one answer after the other, the last one for ever.
// Without any it refuses, as it does where CAP_NET_ADMIN is missing.
func readings(answers ...[]IPVSService) func() ([]IPVSService, error) {
	n := 0
	return func() ([]IPVSService, error) {
		if len(answers) == 0 {
			return nil, unix.EPERM
		}
		n++
		return slices.Clone(answers[min(n, len(answers))-1]), nil
	}
}

// I6: an IPVS table that cannot be read is not an empty one.
func TestIPVSStates(t *testing.T) {
	refused := readings()
	table := func(content string) map[string]string { return map[string]string{"thread-self/net/ip_vs": content} }
	for _, c := range []struct {
		name   string
		files  map[string]string
		dump   func() ([]IPVSService, error)
		state  IPVSState
		source string
		reason string
	}{
		{"C01 no file, no module: absent", map[string]string{"thread-self/net/dev": "", "modules": "nf_tables 300 1 - Live 0x0\n"}, refused, IPVSAbsent, "proc", ""},
		{"no file, a kernel without modules: absent", map[string]string{"thread-self/net/dev": ""}, refused, IPVSAbsent, "proc", ""},
		{"a module of a similar name is not it", map[string]string{"thread-self/net/dev": "", "modules": "ip_vs_rr 12288 0 - Live 0x0\n"}, refused, IPVSAbsent, "proc", ""},
		{"no file, but the module: unreadable", map[string]string{"thread-self/net/dev": "", "modules": "ip_vs 12288 0 - Live 0x0\n"}, refused, IPVSUnreadable, "", "loaded"},
		{"no file, module list unreadable: unreadable", map[string]string{"thread-self/net/dev": "", "modules": unreadable}, refused, IPVSUnreadable, "", "looking for the module ip_vs"},
		{"nowhere to look: unreadable", map[string]string{"modules": ""}, refused, IPVSUnreadable, "", "looking for /proc/net/ip_vs"},
		{"file without services: none", table(procIPVSHeader), refused, IPVSNone, "proc", ""},
		{"file with services: present", table(procIPVS), refused, IPVSPresent, "proc", ""},
		{"neither can be read: unreadable", table(unreadable), refused, IPVSUnreadable, "", "through netlink: permission denied (needs CAP_NET_ADMIN)"},
		{"file not understood: unreadable", table(procIPVSHeader + "QUIC x rr\n"), refused, IPVSUnreadable, "", `unknown protocol "QUIC"`},
		{"both say none", table(procIPVSHeader), readings(nil), IPVSNone, "netlink and proc", ""},
		{"both say the same", table(procIPVS), readings(reversed(procServices)), IPVSPresent, "netlink and proc", ""},
		{"netlink alone, without services", table(unreadable), readings(nil), IPVSNone, "netlink", ""},
		{"netlink alone, with services", table(unreadable), readings(procServices), IPVSPresent, "netlink", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := ipvsWorld(t, c.files)
			l.ipvsDump = c.dump
			got, repeats := l.ipvs(t.Context())
			if got.State != c.state || !strings.Contains(got.Reason, c.reason) || (got.Reason == "") != (c.reason == "") {
				t.Errorf("got %s (%s), want %s (… %s …)", got.State, got.Reason, c.state, c.reason)
			}
			if got.Source != c.source || repeats != 0 {
				t.Errorf("source %q after %d repeats, want %q at once", got.Source, repeats, c.source)
			}
			var want []IPVSService
			if c.state == IPVSPresent {
				want = sorted(procServices)
			}
			if diff := cmp.Diff(want, got.Services, netipEqual); diff != "" {
				t.Errorf("services (-want +got):\n%s", diff)
			}
		})
	}
}

func reversed(list []IPVSService) []IPVSService {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

func sorted(list []IPVSService) []IPVSService {
	return slices.SortedFunc(slices.Values(list), compareIPVS)
}

// I6: a service that stays can be missing from one reading, when another one
// goes meanwhile; that other one tells two readings apart.
func TestIPVSIsReadAgainUntilTwoReadingsAgree(t *testing.T) {
	without := func(i int) []IPVSService { return slices.Delete(slices.Clone(procServices), i, i+1) }
	for _, c := range []struct {
		name    string
		file    string
		dump    func() ([]IPVSService, error)
		repeats int
		state   IPVSState
	}{
		{"one is missing once", procIPVS, readings(without(3), procServices), 1, IPVSPresent},
		{"one is there twice", procIPVS, readings(append(slices.Clone(procServices), procServices[0]), procServices), 1, IPVSPresent},
		{"they agree at the last try", procIPVS, readings(without(0), without(1), without(2), nil, procServices), 4, IPVSPresent},
		{"they never agree", procIPVS, readings(without(3)), 4, IPVSUnreadable},
		{"netlink alone, changing once", unreadable, readings(without(3), procServices), 1, IPVSPresent},
		{"netlink alone, changing always", unreadable, changing(), 4, IPVSUnreadable},
		{"netlink alone, lost at the second reading", unreadable, losing(), 4, IPVSUnreadable},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := ipvsWorld(t, map[string]string{"thread-self/net/ip_vs": c.file})
			l.ipvsDump, l.pause = c.dump, noPause
			got, repeats := l.ipvs(t.Context())
			if got.State != c.state || repeats != c.repeats {
				t.Errorf("%s (%s) after %d repeats, want %s after %d", got.State, got.Reason, repeats, c.state, c.repeats)
			}
			if c.state == IPVSPresent && !got.Serves(vip) {
				t.Errorf("services %v lack the one of %v", got.Services, vip)
			}
			if c.state == IPVSUnreadable && !strings.Contains(got.Reason, "in each of 5 tries") {
				t.Errorf("reason %q", got.Reason)
			}
		})
	}
}

// changing never gives the same table twice.
func changing() func() ([]IPVSService, error) {
	n := uint16(0)
	return func() ([]IPVSService, error) {
		n++
		return []IPVSService{{Address: vip, Port: n, Protocol: "tcp"}}, nil
	}
}

// losing gives a table and an error in turn.
func losing() func() ([]IPVSService, error) {
	n := 0
	return func() ([]IPVSService, error) {
		if n++; n%2 == 0 {
			return nil, unix.ENOBUFS
		}
		return slices.Clone(procServices), nil
	}
}

func TestAStateCountsTheRepeatsOfTheIPVSTable(t *testing.T) {
	w := newNamespaceWorld(t, Options{})
	w.linux = ipvsWorld(t, map[string]string{"thread-self/net/ip_vs": procIPVSHeader, "sys/kernel/random/boot_id": "x"})
	w.linux.ipvsDump, w.linux.pause = readings(procServices, nil), noPause
	st, err := w.State(t.Context(), nil)
	if err != nil || st.DumpRetries != 1 || st.IPVS.State != IPVSNone {
		t.Errorf("%d retries, IPVS %s, %v, want 1, none", st.DumpRetries, st.IPVS.State, err)
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
	w.linux.ipvsDump = readings()
	st, err := w.State(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(st.Incomplete, func(s string) bool { return strings.HasPrefix(s, "IPVS services: reading /proc/net/ip_vs") }) {
		t.Errorf("incomplete: %q, want the IPVS table named", st.Incomplete)
	}
}
