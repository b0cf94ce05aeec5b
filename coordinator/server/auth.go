// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vipmove/vipmove/internal/identity"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// operator is who calls a Control method. Deny by default: every Control method begins with it.
func operator(ctx context.Context) (identity.Identity, error) {
	id, err := identity.FromPeer(ctx)
	if err != nil {
		return id, status.Errorf(codes.Unauthenticated, "calling the coordinator: %v", err)
	}
	if err := id.RequireRole("give orders", identity.RoleOperator); err != nil {
		return id, status.Errorf(codes.PermissionDenied, "%v; make one with: vipmove pki issue operator NAME", err)
	}
	return id, nil
}

// observes holds a session's hello against its certificate: the role, and the node it speaks for.
func observes(ctx context.Context, hello *vipmovev1.Hello) error {
	id, err := identity.FromPeer(ctx)
	if err != nil {
		return status.Errorf(codes.Unauthenticated, "opening a session: %v", err)
	}
	role, known := map[vipmovev1.ObserverRole]string{
		vipmovev1.ObserverRole_OBSERVER_ROLE_AGENT:   identity.RoleAgent,
		vipmovev1.ObserverRole_OBSERVER_ROLE_WITNESS: identity.RoleWitness,
	}[hello.GetRole()]
	if !known {
		return status.Errorf(codes.InvalidArgument, "a session of role %s: only agents and witnesses observe", hello.GetRole())
	}
	if err := id.RequireRole("observe as "+role, role); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	if err := id.RequireName(hello.GetNode()); err != nil {
		return status.Errorf(codes.PermissionDenied, "%v; make one with: vipmove pki issue %s %s", err, role, hello.GetNode())
	}
	return nil
}
