// SPDX-License-Identifier: Apache-2.0

//go:build linux

package namespace_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
)

// helperEnv names the helper that this binary plays, when run by a test.
const helperEnv = "NAMESPACE_TEST_HELPER"

func TestMain(m *testing.M) {
	if name := os.Getenv(helperEnv); name != "" {
		helper, ok := helpers[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "no helper %q\n", name)
			os.Exit(99)
		}
		os.Exit(helper())
	}
	os.Exit(namespacetest.Main(m))
}
