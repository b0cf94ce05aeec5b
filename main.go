// SPDX-License-Identifier: Apache-2.0

// Command vipmove makes one machine, and only one, answer for a LoadBalancer address on the local network,
// and proves it on the wire. Also usable as `kubectl vipmove`, under the name kubectl-vipmove.
package main

import (
	"os"

	"github.com/vipmove/vipmove/cli"
)

func main() {
	os.Exit(cli.Main(cli.Env{
		Args:   os.Args,
		Stdin:  os.Stdin,
		Stdout: os.Stdout,
		Stderr: os.Stderr,
		Getenv: os.Getenv,
	}))
}
