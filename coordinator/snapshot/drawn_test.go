// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"fmt"
	"net/netip"
	"time"

	"pgregory.net/rapid"

	"github.com/vipmove/vipmove/coordinator/diagnose"
)

var names = rapid.StringMatching(`[a-z][a-z0-9.-]{0,8}`)

func addr(t *rapid.T, name string) netip.Addr {
	switch rapid.IntRange(0, 3).Draw(t, name+" kind") {
	case 0:
		return netip.Addr{}
	case 1:
		return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: rapid.Byte().Draw(t, name)})
	}
	return netip.AddrFrom4([4]byte{192, 0, 2, rapid.Byte().Draw(t, name)})
}

func prefix(t *rapid.T, name string) netip.Prefix {
	a := addr(t, name)
	if !a.IsValid() {
		a = netip.AddrFrom4([4]byte{10, 96, 0, 1})
	}
	return netip.PrefixFrom(a, rapid.IntRange(0, a.BitLen()).Draw(t, name+" bits"))
}

func mac(t *rapid.T, name string) string {
	if rapid.IntRange(0, 3).Draw(t, name+" none") == 0 {
		return ""
	}
	return fmt.Sprintf("02:00:00:00:00:%02x", rapid.Byte().Draw(t, name))
}

func number(t *rapid.T, name string) *int {
	if rapid.Bool().Draw(t, name+" unread") {
		return nil
	}
	n := rapid.IntRange(-1, 9).Draw(t, name)
	return &n
}

func several[T any](t *rapid.T, name string, one func(*rapid.T) T) []T {
	var out []T
	for range rapid.IntRange(0, 3).Draw(t, name) {
		out = append(out, one(t))
	}
	return out
}

func sysctls(t *rapid.T) diagnose.Sysctls {
	return diagnose.Sysctls{ArpIgnore: number(t, "ignore"), ArpAnnounce: number(t, "announce"), ArpFilter: number(t, "filter"), ProxyArp: number(t, "proxy"),
		RpFilter: number(t, "rp"), PromoteSecondaries: number(t, "promote"), RouteLocalnet: number(t, "localnet"), AcceptLocal: number(t, "accept"), Forwarding: number(t, "forward")}
}

func address(t *rapid.T) diagnose.Address {
	a := diagnose.Address{Link: names.Draw(t, "link"), LinkIndex: rapid.IntRange(0, 99).Draw(t, "index"), Prefix: prefix(t, "prefix"), Scope: rapid.Byte().Draw(t, "scope"),
		Label: names.Draw(t, "label"), Flags: rapid.Uint32().Draw(t, "flags"), ValidLifetime: rapid.Uint32().Draw(t, "valid"),
		PreferredLife: rapid.Uint32().Draw(t, "preferred"), Broadcast: addr(t, "broadcast")}
	if rapid.Bool().Draw(t, "has peer") {
		a.Peer = prefix(t, "peer")
	}
	return a
}

func link(t *rapid.T) diagnose.Link {
	return diagnose.Link{Name: names.Draw(t, "name"), Index: rapid.IntRange(1, 99).Draw(t, "index"), Kind: names.Draw(t, "kind"), MasterIndex: rapid.IntRange(0, 9).Draw(t, "master"),
		ParentIndex: rapid.IntRange(0, 9).Draw(t, "parent"), MAC: mac(t, "mac"), PermanentMAC: mac(t, "permanent"), Flags: rapid.Uint32().Draw(t, "flags"),
		Up: rapid.Bool().Draw(t, "up"), Carrier: rapid.Bool().Draw(t, "carrier"), Type: names.Draw(t, "type"), BridgePort: rapid.Bool().Draw(t, "port"), Sysctls: sysctls(t)}
}

func route(t *rapid.T) diagnose.Route {
	return diagnose.Route{Prefix: prefix(t, "prefix"), Type: names.Draw(t, "type"), Table: rapid.Uint32().Draw(t, "table"), Link: names.Draw(t, "link"),
		LinkIndex: rapid.IntRange(0, 99).Draw(t, "index"), Source: addr(t, "source"), Gateway: addr(t, "gateway"), Scope: rapid.Byte().Draw(t, "scope"), Protocol: rapid.Byte().Draw(t, "protocol")}
}

func service(t *rapid.T) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, rapid.Byte().Draw(t, "service")}), rapid.Uint16().Draw(t, "port"))
}

func neighbour(t *rapid.T) diagnose.Neighbour {
	return diagnose.Neighbour{IP: addr(t, "ip"), MAC: mac(t, "mac"), Link: names.Draw(t, "link"), State: names.Draw(t, "state")}
}

func node(t *rapid.T) diagnose.Node {
	n := diagnose.Node{Name: names.Draw(t, "name"), Role: rapid.SampledFrom([]diagnose.Role{diagnose.RoleAgent, diagnose.RoleWitness}).Draw(t, "role"),
		Connected: rapid.Bool().Draw(t, "connected"), CanAct: rapid.Bool().Draw(t, "can act"), CannotActReason: names.Draw(t, "reason"), ControlPlane: rapid.Bool().Draw(t, "control plane")}
	if rapid.Bool().Draw(t, "undo") {
		n.PendingUndo = &diagnose.PendingUndo{RunID: names.Draw(t, "run"), Step: names.Draw(t, "step"), Prefix: prefix(t, "undo"), Blocked: names.Draw(t, "blocked")}
	}
	if rapid.IntRange(0, 3).Draw(t, "unread") == 0 {
		return n
	}
	n.Kernel = &diagnose.Kernel{BootID: names.Draw(t, "boot"), Links: several(t, "links", link), Addresses: several(t, "addresses", address), Routes: several(t, "routes", route),
		All: sysctls(t), IPForward: number(t, "ip_forward"), Neighbours: several(t, "neighbours", neighbour),
		IPVS: diagnose.IPVS{State: rapid.SampledFrom([]diagnose.IPVSState{diagnose.IPVSUnknown, diagnose.IPVSAbsent, diagnose.IPVSNone, diagnose.IPVSPresent, diagnose.IPVSUnreadable}).Draw(t, "ipvs"),
			Reason: names.Draw(t, "why"), Services: several(t, "services", service), Marks: rapid.IntRange(0, 2).Draw(t, "marks")},
		KubeProxy: diagnose.KubeProxy{State: rapid.SampledFrom([]diagnose.KubeProxyState{diagnose.KubeProxyUnknown, diagnose.KubeProxyAbsent, diagnose.KubeProxyRunning, diagnose.KubeProxyUnknownManager}).Draw(t, "proxy"),
			Mode: names.Draw(t, "mode"), Detail: names.Draw(t, "detail")},
		ARPPath:    diagnose.ARPPath{Unknown: rapid.Bool().Draw(t, "path"), Reasons: several(t, "reasons", func(t *rapid.T) string { return names.Draw(t, "reason") })},
		Incomplete: several(t, "incomplete", func(t *rapid.T) string { return names.Draw(t, "part") }),
	}
	return n
}

func round(t *rapid.T) diagnose.Round {
	return diagnose.Round{Observer: names.Draw(t, "observer"), Interface: names.Draw(t, "nic"), VIP: addr(t, "vip"), TargetMAC: mac(t, "target"), SenderIP: addr(t, "sender"),
		Kind:   rapid.SampledFrom([]diagnose.ProbeKind{diagnose.Broadcast, diagnose.ZeroSender, diagnose.AnnouncerQuestion, diagnose.Unicast}).Draw(t, "kind"),
		Number: rapid.IntRange(0, 9).Draw(t, "number"), Sent: rapid.Bool().Draw(t, "sent"), SendError: names.Draw(t, "error"), HearingExpected: rapid.Bool().Draw(t, "expected"),
		Dropped: rapid.IntRange(0, 9).Draw(t, "dropped"), Truncated: rapid.Bool().Draw(t, "truncated"),
		Heard:   several(t, "heard", func(t *rapid.T) string { return fmt.Sprintf("02:00:00:00:01:%02x", rapid.Byte().Draw(t, "mac")) }),
		Replies: several(t, "replies", reply), Unsolicited: several(t, "unsolicited", reply)}
}

func reply(t *rapid.T) diagnose.Reply {
	return diagnose.Reply{SenderMAC: mac(t, "sender mac"), EthSource: mac(t, "source"), SenderIP: addr(t, "sender ip"),
		VLAN: rapid.Uint16Range(0, 4094).Draw(t, "vlan"), After: time.Duration(rapid.Int64Range(0, 2e9).Draw(t, "after"))}
}

func drawn(t *rapid.T) diagnose.Snapshot {
	s := diagnose.Snapshot{VIP: addr(t, "vip"), Interface: names.Draw(t, "interface"), Nodes: several(t, "nodes", node), Rounds: several(t, "rounds", round),
		Outgoing: several(t, "outgoing", func(t *rapid.T) diagnose.Outgoing {
			return diagnose.Outgoing{Node: names.Draw(t, "node"), Interface: names.Draw(t, "nic"), Captured: rapid.Bool().Draw(t, "captured"), Error: names.Draw(t, "error"),
				Replies: several(t, "left", func(t *rapid.T) diagnose.OutgoingReply {
					return diagnose.OutgoingReply{SenderMAC: mac(t, "sender"), TargetMAC: mac(t, "target"), TargetIP: addr(t, "target ip")}
				})}
		}),
		Requests: several(t, "requests", func(t *rapid.T) diagnose.Requests {
			return diagnose.Requests{Witness: names.Draw(t, "witness"), Sent: rapid.Uint64().Draw(t, "sent"), Succeeded: rapid.Uint64().Draw(t, "succeeded"), Failed: rapid.Uint64().Draw(t, "failed"),
				NeighbourMAC: mac(t, "neighbour"), OpenGap: time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "gap")), LastError: names.Draw(t, "error")}
		})}
	if rapid.Bool().Draw(t, "taken") {
		s.TakenAt = time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "at"), rapid.Int64Range(0, 999999999).Draw(t, "ns")).UTC()
	}
	return s
}
