// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package namespacetest runs tests that need network namespaces, as root or as
// an ordinary user. It is apart from package namespace so that no production
// binary links package testing.
package namespacetest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/vipmove/vipmove/lab/namespace"
)

var reexec = namespace.Reexec{Marker: "VIPMOVE_TEST_NAMESPACE"}

// reexecErr says why Main could not run the tests in namespaces of their own.
// Written by Main before any test runs.
var reexecErr error

// Main runs a test binary's tests with the rights to make network namespaces:
// as it is where the process has them, else once more inside a new user, net
// and mount namespace. Where neither works the tests still run, and Require
// skips. It returns the exit code:
//
//	func TestMain(m *testing.M) { os.Exit(namespacetest.Main(m)) }
func Main(m interface{ Run() int }) int {
	if reexec.Done() {
		if err := namespace.LoopbackUp(); err != nil {
			reexecErr = err
		}
		return m.Run()
	}
	if available() == nil {
		return m.Run()
	}
	code, err := reexec.Run()
	if err != nil {
		reexecErr = err
		return m.Run()
	}
	return code
}

// available tries once per process.
var available = sync.OnceValue(namespace.Available)

// tierEnv is "1" on the kernel that hack/vmexec starts, which has what its
// tests need: real dummy links and ip_vs.
const tierEnv = "VIPMOVE_KERNEL_TIER"

// Require skips t, with the reason, where this process cannot make network
// namespaces. It fails t instead when CI=true and on the kernel that
// hack/vmexec starts: there a skip would hide a hole.
func Require(t testing.TB) {
	t.Helper()
	err := reason()
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("network namespaces are needed under CI=true: %v", err)
	case OnTestKernel():
		t.Fatalf("network namespaces are needed with %s=1: %v", tierEnv, err)
	default:
		t.Skipf("network namespaces are needed: %v", err)
	}
}

// OnTestKernel reports whether this is the kernel that hack/vmexec starts. A
// test that misses a feature of it there fails; it does not skip.
func OnTestKernel() bool { return os.Getenv(tierEnv) == "1" }

// RequireTestKernel skips t on any other kernel than that of hack/vmexec.
func RequireTestKernel(t testing.TB) {
	t.Helper()
	if !OnTestKernel() {
		t.Skip("a kernel with dummy links and ip_vs is needed: make test-kernel")
	}
	Require(t)
}

func reason() error {
	err := available()
	if err == nil || reexecErr == nil {
		return err
	}
	return errors.Join(err, fmt.Errorf("and as an ordinary user: %w", reexecErr))
}

// NewT makes a namespace that is closed when t ends. It calls Require.
func NewT(t testing.TB, name string) *namespace.Namespace {
	t.Helper()
	Require(t)
	n, err := namespace.New(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("closing network namespace %s: %v", name, err)
		}
	})
	return n
}
