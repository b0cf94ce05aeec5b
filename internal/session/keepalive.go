// SPDX-License-Identifier: Apache-2.0

package session

import (
	"time"

	"google.golang.org/grpc/keepalive"
)

// A dead peer is noticed after at most pingAfter + pingTimeout = 15 s, on
// either side. 10 s is the least that a grpc-go client accepts. The server
// tolerates twice that rate, so late or early pings never end a session with
// GOAWAY too_many_pings (CASES.md C47).
const (
	pingAfter   = 10 * time.Second
	pingTimeout = 5 * time.Second
	pingMinimum = pingAfter / 2
)

// ClientKeepalive is what an observer sets on its connection.
func ClientKeepalive() keepalive.ClientParameters {
	return keepalive.ClientParameters{
		Time:                pingAfter,
		Timeout:             pingTimeout,
		PermitWithoutStream: true,
	}
}

// ServerKeepalive is what the coordinator sets on its server, so that both
// sides agree.
func ServerKeepalive() (keepalive.ServerParameters, keepalive.EnforcementPolicy) {
	return keepalive.ServerParameters{
			Time:    pingAfter,
			Timeout: pingTimeout,
		}, keepalive.EnforcementPolicy{
			MinTime:             pingMinimum,
			PermitWithoutStream: true,
		}
}
