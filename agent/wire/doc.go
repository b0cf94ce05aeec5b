// SPDX-License-Identifier: Apache-2.0

// Package wire speaks and hears ARP (RFC 826) on one Ethernet NIC: a kernel
// filter for the watched addresses, a strict decoder, a standing watch
// (Listener), evidence of this host's own replies (Capture), and probe rounds
// (Prober). It gathers evidence and judges nothing: who answers, and why, is
// decided by the coordinator.
//
// What it relies on (packet(7), net/packet/af_packet.c, net/ipv4/arp.c):
//
//   - a socket bound to ETH_P_ARP costs other traffic nothing and never sees
//     this host's outgoing frames; one bound to ETH_P_ALL sees them, as
//     PACKET_OUTGOING, and runs its filter on every packet of the host, so it
//     is opened for a round or a run and closed after;
//   - a node never hears its own answer, a learning bridge hides replies
//     between two others, and proxy ARP answers up to 0.8 s late;
//   - a kernel and a user-space announcer on one node are two replies with one
//     MAC to one request, so no reply is ever folded into another.
//
// Sockets are opened on the goroutine that calls Listen, OpenCapture or
// Prober.Round, in that thread's network namespace, and stay in it.
package wire
