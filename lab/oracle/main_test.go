// SPDX-License-Identifier: Apache-2.0

//go:build linux

package oracle

import (
	"os"
	"testing"

	"github.com/vipmove/vipmove/lab/namespace/namespacetest"
)

func TestMain(m *testing.M) { os.Exit(namespacetest.Main(m)) }
