// SPDX-License-Identifier: Apache-2.0

package node

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/vipmove/vipmove/agent/host"
	"github.com/vipmove/vipmove/agent/report"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// The orders about a step, as a coordinator sends them. id is that of the
// Remove; the others get an id of their own where they are sent.

func prepareOrder(f *vipmovev1.Fence, entry host.Tuple) *vipmovev1.Command {
	return &vipmovev1.Command{Order: &vipmovev1.Command_Prepare{Prepare: &vipmovev1.Prepare{
		Fence: f, Entry: report.AddressToProto(entry), Vip: vip.String(),
	}}}
}

func removeOrder(f *vipmovev1.Fence, id string) *vipmovev1.Command {
	return &vipmovev1.Command{CommandId: id, Order: &vipmovev1.Command_Remove{Remove: &vipmovev1.Remove{
		Fence: f, Ttl: durationpb.New(testTTL),
	}}}
}

func extendOrder(f *vipmovev1.Fence, id string) *vipmovev1.Command {
	return &vipmovev1.Command{Order: &vipmovev1.Command_Extend{Extend: &vipmovev1.Extend{
		Fence: f, RemoveCommandId: id, Ttl: durationpb.New(testTTL),
	}}}
}

func confirmOrder(f *vipmovev1.Fence, id string) *vipmovev1.Command {
	return &vipmovev1.Command{Order: &vipmovev1.Command_Confirm{Confirm: &vipmovev1.Confirm{
		Fence: f, RemoveCommandId: id,
	}}}
}

func restoreOrder(f *vipmovev1.Fence, id string, rollback bool) *vipmovev1.Command {
	return &vipmovev1.Command{Order: &vipmovev1.Command_Restore{Restore: &vipmovev1.Restore{
		Fence: f, RemoveCommandId: id, Rollback: rollback,
	}}}
}

func inquireOrder(f *vipmovev1.Fence, id string) *vipmovev1.Command {
	return &vipmovev1.Command{Order: &vipmovev1.Command_Inquire{Inquire: &vipmovev1.Inquire{
		Fence: f, RemoveCommandId: id,
	}}}
}
