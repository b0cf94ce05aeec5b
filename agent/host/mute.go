// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ErrMuteUnsupported: this kernel cannot drop its own ARP replies: nftables
// has no ARP family here, or is not loaded, and an agent loads no module.
var ErrMuteUnsupported = errors.New("no nftables for ARP in this kernel")

// MaxMute is the longest that a kernel is kept mute, whoever asks.
const MaxMute = 2 * time.Second

// muteTable is the agent's own nftables table, in the ARP family:
//
//	table arp vipmove { flags owner
//	  set vips { type ipv4_addr; flags timeout; elements = { VIP timeout 2s } }
//	  chain output { type filter hook output priority 0; policy accept
//	    arp hlen 6 arp plen 4 arp operation reply arp saddr ip @vips drop } }
//
// It ends in three ways that need nobody: the element's timeout, which the
// kernel keeps (nft_set_elem_expired); the flag owner, by which the kernel
// deletes the table when the socket that made it closes, with its process at
// the latest (NFT_TABLE_F_OWNER, Linux 5.12); and the next agent's start.
// Software that answers by packet socket, tc or XDP never passes this hook.
const (
	muteTable = "vipmove"
	muteSet   = "vips"
	muteChain = "output"
)

// Values of include/uapi/linux/netfilter_arp.h and netfilter/nf_tables.h.
const (
	arpHookOutput  = 1 // NF_ARP_OUT
	tableOwned     = 2 // NFT_TABLE_F_OWNER
	setTimeouts    = 0x10
	setKeyIPv4     = 7 // ipv4_addr, as nft(8) numbers it
	muteSetID      = 1
	muteSocketWait = 2 * time.Second
)

// Mute drops this kernel's ARP replies for ip; see Kernel.
func (l *Linux) Mute(ip netip.Addr, d time.Duration) (lift func() error, err error) {
	doing := func(err error) error {
		return fmt.Errorf("muting the kernel's ARP replies for %s: %w", ip, denied(err))
	}
	if !ip.Is4() || d <= 0 || d > MaxMute {
		return nil, doing(fmt.Errorf("%s is no time up to %s, or the address is not IPv4", d, MaxMute))
	}
	switch there, err := l.nftablesPresent(); {
	case err != nil: // asking it all the same might load it
		return nil, doing(fmt.Errorf("%w, as far as can be told: %w", ErrMuteUnsupported, err))
	case !there:
		return nil, doing(ErrMuteUnsupported)
	}
	for _, flags := range []uint32{tableOwned, 0} { // before Linux 5.12 a table has no owner
		var conn *netlink.Conn
		if conn, err = muteSocket(); err != nil {
			return nil, doing(err)
		}
		if err = transact(conn, muteBatch(ip, d, flags)); err == nil {
			return func() error { return lifted(conn) }, nil
		}
		_ = conn.Close()
		if !errors.Is(err, syscall.EOPNOTSUPP) && !errors.Is(err, syscall.EINVAL) {
			return nil, doing(err)
		}
	}
	return nil, doing(fmt.Errorf("%w: %w", ErrMuteUnsupported, err))
}

// ClearMute deletes what an agent that died may have left; see Kernel.
func (l *Linux) ClearMute() error {
	if there, err := l.nftablesPresent(); err != nil || !there {
		return err
	}
	conn, err := muteSocket()
	if err != nil {
		return fmt.Errorf("clearing a mute: %w", err)
	}
	if err := lifted(conn); err != nil {
		return fmt.Errorf("clearing a mute: %w", denied(err))
	}
	return nil
}

// muteSocket lives as long as the mute: an owned table goes with it.
func muteSocket() (*netlink.Conn, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("opening nftables: %w", err)
	}
	return conn, nil
}

// lifted deletes the table and closes its socket. A table that is not there
// is what is wanted.
func lifted(conn *netlink.Conn) error {
	err := transact(conn, []netlink.Message{nftMessage(unix.NFT_MSG_DELTABLE, 0, func(a *netlink.AttributeEncoder) {
		a.String(unix.NFTA_TABLE_NAME, muteTable)
	})})
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EOPNOTSUPP) {
		err = nil
	}
	return errors.Join(err, conn.Close())
}

// muteBatch is all of the table: the kernel takes it as a whole or not at all.
func muteBatch(ip netip.Addr, d time.Duration, tableFlags uint32) []netlink.Message {
	four := ip.As4()
	return []netlink.Message{
		nftMessage(unix.NFT_MSG_NEWTABLE, netlink.Create|netlink.Excl, func(a *netlink.AttributeEncoder) {
			a.String(unix.NFTA_TABLE_NAME, muteTable)
			a.Uint32(unix.NFTA_TABLE_FLAGS, tableFlags)
		}),
		nftMessage(unix.NFT_MSG_NEWSET, netlink.Create|netlink.Excl, func(a *netlink.AttributeEncoder) {
			a.String(unix.NFTA_SET_TABLE, muteTable)
			a.String(unix.NFTA_SET_NAME, muteSet)
			a.Uint32(unix.NFTA_SET_FLAGS, setTimeouts)
			a.Uint32(unix.NFTA_SET_KEY_TYPE, setKeyIPv4)
			a.Uint32(unix.NFTA_SET_KEY_LEN, 4)
			a.Uint32(unix.NFTA_SET_ID, muteSetID)
		}),
		nftMessage(unix.NFT_MSG_NEWSETELEM, netlink.Create, func(a *netlink.AttributeEncoder) {
			a.String(unix.NFTA_SET_ELEM_LIST_TABLE, muteTable)
			a.String(unix.NFTA_SET_ELEM_LIST_SET, muteSet)
			a.Uint32(unix.NFTA_SET_ELEM_LIST_SET_ID, muteSetID)
			nest(a, unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(a *netlink.AttributeEncoder) {
				nest(a, unix.NFTA_LIST_ELEM, func(a *netlink.AttributeEncoder) {
					nest(a, unix.NFTA_SET_ELEM_KEY, func(a *netlink.AttributeEncoder) { a.Bytes(unix.NFTA_DATA_VALUE, four[:]) })
					a.Uint64(unix.NFTA_SET_ELEM_TIMEOUT, uint64(max(d.Milliseconds(), 1)))
				})
			})
		}),
		nftMessage(unix.NFT_MSG_NEWCHAIN, netlink.Create|netlink.Excl, func(a *netlink.AttributeEncoder) {
			a.String(unix.NFTA_CHAIN_TABLE, muteTable)
			a.String(unix.NFTA_CHAIN_NAME, muteChain)
			a.String(unix.NFTA_CHAIN_TYPE, "filter")
			nest(a, unix.NFTA_CHAIN_HOOK, func(a *netlink.AttributeEncoder) {
				a.Uint32(unix.NFTA_HOOK_HOOKNUM, arpHookOutput)
				a.Uint32(unix.NFTA_HOOK_PRIORITY, 0)
			})
		}),
		nftMessage(unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append, func(a *netlink.AttributeEncoder) {
			a.String(unix.NFTA_RULE_TABLE, muteTable)
			a.String(unix.NFTA_RULE_CHAIN, muteChain)
			nest(a, unix.NFTA_RULE_EXPRESSIONS, func(a *netlink.AttributeEncoder) {
				for _, e := range muteRule() {
					a.Do(unix.NLA_F_NESTED|unix.NFTA_LIST_ELEM, func() ([]byte, error) { return expr.Marshal(unix.NFPROTO_ARP, e) })
				}
			})
		}),
	}
}

// muteRule matches ARP replies (RFC 826: hlen and plen at 4, operation at 6,
// sender protocol address at 14) whose sender is in the set, and drops them.
func muteRule() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 4, Len: 4},
		&expr.Cmp{Register: 1, Op: expr.CmpOpEq, Data: []byte{6, 4, 0, 2}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 14, Len: 4},
		&expr.Lookup{SourceRegister: 1, SetName: muteSet, SetID: muteSetID},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}
}

// nftMessage is one message of a batch. An attribute that cannot be encoded
// leaves it empty, which the kernel refuses.
func nftMessage(kind uint16, flags netlink.HeaderFlags, fill func(*netlink.AttributeEncoder)) netlink.Message {
	a := netlink.NewAttributeEncoder()
	a.ByteOrder = binary.BigEndian
	fill(a)
	body, err := a.Encode()
	if err != nil {
		body = nil
	}
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | netlink.Acknowledge | flags},
		Data:   append([]byte{unix.NFPROTO_ARP, unix.NFNETLINK_V0, 0, 0}, body...),
	}
}

func nest(a *netlink.AttributeEncoder, kind uint16, fill func(*netlink.AttributeEncoder)) {
	a.Nested(kind, func(inner *netlink.AttributeEncoder) error {
		inner.ByteOrder = binary.BigEndian
		fill(inner)
		return nil
	})
}

// transact sends one batch and waits for the kernel's word on each message.
func transact(conn *netlink.Conn, messages []netlink.Message) error {
	edge := func(kind netlink.HeaderType) netlink.Message {
		return netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request}, Data: []byte{0, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}}
	}
	batch := append([]netlink.Message{edge(unix.NFNL_MSG_BATCH_BEGIN)}, messages...)
	if err := conn.SetReadDeadline(time.Now().Add(muteSocketWait)); err != nil {
		return err
	}
	if _, err := conn.SendMessages(append(batch, edge(unix.NFNL_MSG_BATCH_END))); err != nil {
		return err
	}
	for seen := 0; seen < len(messages); {
		answers, err := conn.Receive()
		if err != nil {
			return err
		}
		seen += max(len(answers), 1)
	}
	return nil
}
