// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

var theFlow = flow{
	source: netip.MustParseAddrPort("192.0.2.1:40000"),
	target: netip.MustParseAddrPort("192.0.2.50:80"),
}

// back turns the flow round.
func (f flow) back() flow { return flow{f.target, f.source} }

// tcpPacket makes an IPv4 packet of a segment on f; options is the length of
// IP options in bytes.
func tcpPacket(f flow, flags byte, seq, ack uint32, payload, options int) []byte {
	header := 20 + options
	p := make([]byte, header+20+payload)
	p[0] = 0x40 | byte(header/4)
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	p[8], p[9] = 64, unix.IPPROTO_TCP
	putAddresses(p, f)
	tcp := p[header:]
	binary.BigEndian.PutUint16(tcp[0:], f.source.Port())
	binary.BigEndian.PutUint16(tcp[2:], f.target.Port())
	binary.BigEndian.PutUint32(tcp[4:], seq)
	binary.BigEndian.PutUint32(tcp[8:], ack)
	tcp[12], tcp[13] = 5<<4, flags
	return p
}

func putAddresses(p []byte, f flow) {
	from, to := f.source.Addr().As4(), f.target.Addr().As4()
	copy(p[12:], from[:])
	copy(p[16:], to[:])
}

// icmpPacket is a message about a packet, from a router to the source.
func icmpPacket(router string, kind, code byte, about []byte) []byte {
	p := make([]byte, 28+len(about))
	p[0] = 0x45
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	p[8], p[9] = 64, unix.IPPROTO_ICMP
	putAddresses(p, flow{netip.AddrPortFrom(netip.MustParseAddr(router), 0), theFlow.source})
	p[20], p[21] = kind, code
	copy(p[28:], about)
	return p
}

func ethernet(kind uint16, ip []byte) []byte {
	frame := make([]byte, etherHeader, max(60, etherHeader+len(ip)))
	binary.BigEndian.PutUint16(frame[12:], kind)
	frame = append(frame, ip...)
	return frame[:max(60, len(frame))] // Ethernet's padding
}

func TestTheFilterLetsThroughWhatComesBackAndNothingElse(t *testing.T) {
	program, err := theFlow.filter()
	if err != nil {
		t.Fatal(err)
	}
	instructions, all := bpf.Disassemble(program)
	if !all {
		t.Fatal("the filter does not disassemble")
	}
	vm, err := bpf.NewVM(instructions)
	if err != nil {
		t.Fatal(err)
	}
	good := theFlow.back()
	change := func(f flow, do func(*flow)) flow { do(&f); return f }
	fragment := tcpPacket(good, flagACK, 1, 1, 0, 0)
	fragment[7] = 1
	first := tcpPacket(good, flagACK, 1, 1, 0, 0)
	first[6] = 0x20
	whole := tcpPacket(good, flagACK, 1, 1, 0, 0)
	whole[6] = 0x40 // don't fragment
	udp := tcpPacket(good, 0, 0, 0, 0, 0)
	udp[9] = unix.IPPROTO_UDP
	about := tcpPacket(theFlow, flagSYN, 1, 0, 0, 0)
	elsewhere := icmpPacket("192.0.2.11", 3, 1, about)
	elsewhere[19] = 77
	tests := []struct {
		name  string
		frame []byte
		pass  bool
	}{
		{"a segment back", ethernet(unix.ETH_P_IP, tcpPacket(good, flagSYN|flagACK, 1, 1, 0, 0)), true},
		{"with don't fragment", ethernet(unix.ETH_P_IP, whole), true},
		{"with IP options", ethernet(unix.ETH_P_IP, tcpPacket(good, flagACK, 1, 1, 100, 24)), true},
		{"with a payload", ethernet(unix.ETH_P_IP, tcpPacket(good, flagACK, 1, 1, 1400, 0)), true},
		{"unreachable from a router", ethernet(unix.ETH_P_IP, icmpPacket("192.0.2.11", 3, 1, about)), true},
		{"unreachable from the VIP", ethernet(unix.ETH_P_IP, icmpPacket("192.0.2.50", 3, 3, about)), true},
		{"our own segment", ethernet(unix.ETH_P_IP, tcpPacket(theFlow, flagSYN, 1, 0, 0, 0)), false},
		{"another port of ours", ethernet(unix.ETH_P_IP, tcpPacket(change(good, func(f *flow) { f.target = netip.MustParseAddrPort("192.0.2.1:40001") }), flagACK, 1, 1, 0, 0)), false},
		{"another port of the VIP", ethernet(unix.ETH_P_IP, tcpPacket(change(good, func(f *flow) { f.source = netip.MustParseAddrPort("192.0.2.50:81") }), flagACK, 1, 1, 0, 0)), false},
		{"from another address", ethernet(unix.ETH_P_IP, tcpPacket(change(good, func(f *flow) { f.source = netip.MustParseAddrPort("192.0.2.51:80") }), flagACK, 1, 1, 0, 0)), false},
		{"to another address", ethernet(unix.ETH_P_IP, tcpPacket(change(good, func(f *flow) { f.target = netip.MustParseAddrPort("192.0.2.2:40000") }), flagACK, 1, 1, 0, 0)), false},
		{"a ping", ethernet(unix.ETH_P_IP, icmpPacket("192.0.2.11", 8, 0, nil)), false},
		{"unreachable to another address", ethernet(unix.ETH_P_IP, elsewhere), false},
		{"UDP", ethernet(unix.ETH_P_IP, udp), false},
		{"the first fragment", ethernet(unix.ETH_P_IP, first), false},
		{"a later fragment", ethernet(unix.ETH_P_IP, fragment), false},
		{"not IPv4", ethernet(unix.ETH_P_IPV6, tcpPacket(good, flagACK, 1, 1, 0, 0)), false},
		{"ARP", ethernet(unix.ETH_P_ARP, make([]byte, 46)), false},
		{"a runt", make([]byte, 13), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n, err := vm.Run(tt.frame)
			if err != nil {
				t.Fatal(err)
			}
			if (n > 0) != tt.pass || tt.pass && n < len(tt.frame) {
				t.Errorf("the filter keeps %d of %d bytes, want it to pass: %t", n, len(tt.frame), tt.pass)
			}
		})
	}
}

// talk plays packets: "<" came, ">" went.
func talk(packets ...any) *conversation {
	c := &conversation{flow: theFlow}
	for i := 0; i < len(packets); i += 2 {
		if packets[i] == "<" {
			c.came(packets[i+1].([]byte))
		} else {
			c.went(packets[i+1].([]byte))
		}
	}
	return c
}

func their(flags byte, seq, ack uint32, payload int) []byte {
	return tcpPacket(theFlow.back(), flags, seq, ack, payload, 0)
}

func our(flags byte, seq, ack uint32, payload int) []byte {
	return tcpPacket(theFlow, flags, seq, ack, payload, 0)
}

func TestAConversationIsOverWhenBothFINsAreAcknowledged(t *testing.T) {
	opened := []any{">", our(flagSYN, 10, 0, 0), "<", their(flagSYN|flagACK, 90, 11, 0), ">", our(flagACK, 11, 91, 0), ">", our(flagACK, 11, 91, 5)}
	steps := map[string][]any{
		"they close first":            {"<", their(flagACK|flagFIN, 91, 16, 7), ">", our(flagACK|flagFIN, 16, 99, 0), "<", their(flagACK, 99, 17, 0)},
		"we close first":              {"<", their(flagACK, 91, 16, 7), ">", our(flagACK|flagFIN, 16, 98, 0), "<", their(flagACK|flagFIN, 98, 17, 0), ">", our(flagACK, 17, 99, 0)},
		"both at once":                {">", our(flagACK|flagFIN, 16, 91, 0), "<", their(flagACK|flagFIN, 91, 16, 0), ">", our(flagACK, 17, 92, 0), "<", their(flagACK, 92, 17, 0)},
		"sequence numbers wrap":       {">", our(flagACK|flagFIN, 0xffffffff, 91, 0), "<", their(flagACK|flagFIN, 0xffffffff, 0, 0), ">", our(flagACK, 0, 0, 0)},
		"a FIN is sent a second time": {">", our(flagACK|flagFIN, 16, 91, 0), "<", their(flagACK, 91, 17, 0), "<", their(flagACK|flagFIN, 91, 17, 0), ">", our(flagACK, 17, 92, 0), "<", their(flagACK|flagFIN, 91, 17, 0)},
	}
	for name, rest := range steps {
		t.Run(name, func(t *testing.T) {
			all := append(append([]any{}, opened...), rest...)
			if c := talk(all...); !c.over() || c.reset || !c.connected {
				t.Errorf("%+v, want it over", c)
			}
			end := len(all) - 2
			if name == "a FIN is sent a second time" {
				end -= 2
			}
			if c := talk(all[:end]...); c.over() {
				t.Errorf("over before its last segment: %+v", c)
			}
		})
	}
}

func TestAFailureIsTypedByWhatPassedOnTheWire(t *testing.T) {
	synAck := their(flagSYN|flagACK, 90, 11, 0)
	rst := their(flagRST|flagACK, 0, 11, 0)
	syn := our(flagSYN, 10, 0, 0)
	other := tcpPacket(flow{theFlow.source, netip.MustParseAddrPort("192.0.2.51:80")}, flagSYN, 10, 0, 0, 0)
	stack := &net.OpError{Op: "read", Err: errors.New("words")}
	tests := []struct {
		name string
		talk []any
		err  *RequestError
		want Failure
	}{
		{"RST for the SYN", []any{"<", rst}, connecting(stack), Refused},
		{"RST later", []any{"<", synAck, "<", rst}, answering(stack), Reset},
		{"silence", nil, connecting(os.ErrDeadlineExceeded), ConnectTimeout},
		{"silence after the connect", []any{"<", synAck}, answering(os.ErrDeadlineExceeded), AnswerTimeout},
		{"net unreachable", []any{"<", icmpPacket("192.0.2.11", 3, 0, syn)}, connecting(stack), NoRoute},
		{"host unreachable", []any{"<", icmpPacket("192.0.2.11", 3, 1, syn)}, connecting(os.ErrDeadlineExceeded), NoRoute},
		{"port unreachable", []any{"<", icmpPacket("192.0.2.50", 3, 3, syn)}, connecting(stack), Refused},
		{"prohibited by a filter", []any{"<", icmpPacket("192.0.2.11", 3, 13, syn)}, connecting(stack), Refused},
		{"unreachable about another flow", []any{"<", icmpPacket("192.0.2.11", 3, 1, other)}, connecting(os.ErrDeadlineExceeded), ConnectTimeout},
		{"fragmentation needed", []any{"<", icmpPacket("192.0.2.11", 3, 4, syn)}, connecting(os.ErrDeadlineExceeded), ConnectTimeout},
		{"unreachable in the middle", []any{"<", synAck, "<", icmpPacket("192.0.2.11", 3, 1, syn)}, answering(os.ErrDeadlineExceeded), AnswerTimeout},
		{"a whole answer of another status, then RST", []any{"<", synAck, "<", rst}, failed(Status, errors.New("503")), Status},
		{"words without packets", nil, connecting(stack), Local},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := talk(tt.talk...).failure(tt.err)
			if got.Failure != tt.want || got.Err != tt.err.Err {
				t.Errorf("failure = %v, want %s for the same reason", got, tt.want)
			}
		})
	}
}

func FuzzConversation(f *testing.F) {
	syn := our(flagSYN, 10, 0, 0)
	f.Add(syn)
	f.Add(their(flagSYN|flagACK, 1, 11, 0))
	f.Add(their(flagFIN|flagACK, 1, 11, 9))
	f.Add(icmpPacket("192.0.2.11", 3, 1, syn))
	f.Add(icmpPacket("192.0.2.11", 3, 1, syn[:28]))
	f.Add([]byte{0x4f})
	f.Fuzz(func(t *testing.T, packet []byte) {
		c := conversation{flow: theFlow}
		c.came(packet)
		c.went(packet)
		if c.reset && c.connected {
			t.Error("one packet both connected and reset")
		}
		if s, ok := tcpSegment(packet); ok && s.end-s.seq > uint32(len(packet))+2 {
			t.Errorf("a segment of %d in %d bytes", s.end-s.seq, len(packet))
		}
	})
}

func FuzzNeighbourLine(f *testing.F) {
	f.Add("192.0.2.50       0x1         0x2         02:00:00:00:00:0b     *        eth0")
	f.Add("IP address       HW type     Flags       HW address            Mask     Device")
	f.Fuzz(func(t *testing.T, line string) {
		if mac, found := neighbourLine(line, vip); found && mac == "" {
			t.Error("found, and no MAC")
		}
	})
}

func TestTheNeighbourTableIsReadAsTheKernelWritesIt(t *testing.T) {
	const head = "192.0.2.50       0x1         "
	for line, want := range map[string]string{
		head + "0x2         02:00:00:00:00:0b     *        eth0":                         "02:00:00:00:00:0b",
		head + "0x6         02:00:00:00:00:0b     *        eth0":                         "02:00:00:00:00:0b", // permanent
		head + "0x0         00:00:00:00:00:00     *        eth0":                         "",                  // incomplete
		head + "0x0         02:00:00:00:00:0b     *        eth0":                         "",                  // failed
		head + "0x8         00:00:00:00:00:00     *        eth0":                         "",                  // our own promise
		head + "0xc         00:00:00:00:00:00     *        eth0":                         "",
		"192.0.2.5        0x1         0x2         02:00:00:00:00:0b     *        eth0":   "",
		"IP address       HW type     Flags       HW address            Mask     Device": "",
		"": "",
	} {
		if got, found := neighbourLine(line, vip); got != want || found != (want != "") {
			t.Errorf("%q = %q, %t, want %q", line, got, found, want)
		}
	}
}
