// SPDX-License-Identifier: Apache-2.0

// Package oracle holds no code but tests: they ask a real kernel what
// diagnose.WouldAnswer predicts of it, over drawn configurations.
//
// One draw is one configuration of a node: addresses, routes, links and
// sysctls. It is asked seven requests of different senders at once, each of one
// NIC or of both, so a draw is about nine predictions. The node is a network
// namespace that is brought back to the state it was made in before each draw,
// and compared with it. What no one can bring back is drawn by having several
// nodes: one that never had a local route added by hand, one that had, and one
// with a policy rule as Cilium has them, each with its two NICs on one segment
// and on two.
//
// A configuration is a list of `ip` and `sysctl` commands, which the test carries
// out over netlink. Where prediction and kernel differ it leaves out what does not
// matter for the difference and prints the rest, to be typed into a node with lo,
// eth0, eth1 and an empty kube-ipvs0 that is down.
//
// The prediction takes the way that it takes in the product: agent/host reads
// the kernel, agent/report writes the message, coordinator/snapshot reads it,
// coordinator/diagnose judges. The kernel is asked by lab/prober, which shares
// no code with any of them. A prediction may be unknown only where what decides
// cannot be read, and rarely. What a draw is worth is measured: predictions that
// overlook one thing each are made beside the real one, and must be found wrong.
//
//	go test ./lab/oracle/                             500 draws
//	VIPMOVE_ORACLE_DRAWS=5000 go test ./lab/oracle/   as many as wanted
//	VIPMOVE_ORACLE_SEED=1 go test ./lab/oracle/       the same draws again
package oracle
