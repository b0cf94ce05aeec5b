// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
)

// TestMain runs the tests, or, in a process that a test started as an agent,
// that agent.
func TestMain(m *testing.M) {
	if os.Getenv(childMarker) != "" {
		os.Exit(child())
	}
	os.Exit(namespacetest.Main(leakChecked{m}))
}

// leakChecked fails a run that leaves goroutines behind.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
