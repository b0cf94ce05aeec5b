// SPDX-License-Identifier: Apache-2.0

// Package witness observes a VIP from a host outside the cluster, with no right
// to change anything: real requests at a steady rate (Requests), requests to
// one given MAC (ThroughMAC), and the orders that look, over a session with the
// coordinator (Run).
//
// A node's own view of the VIP is short-circuited by its datapath and proves
// nothing; a witness's requests go the way that clients' requests go.
package witness
