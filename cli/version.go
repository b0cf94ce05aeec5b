// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vipmove/vipmove/internal/session"
	"github.com/vipmove/vipmove/internal/version"
)

func (a *app) versionCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "print this command's version",
		Long:    "version prints which build this is, and which protocol it speaks. It asks nobody.",
		Example: a.examples("version -o json | jq -r .version", "the version alone"),
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			if err := out.check(); err != nil {
				return err
			}
			if !out.json() {
				return writeAll(a.env.Stdout, []byte(version.String("vipmove")+"\n"))
			}
			text, err := json.MarshalIndent(thisBuild(), "", "  ")
			if err != nil {
				return fmt.Errorf("writing the version: %w", err)
			}
			return writeAll(a.env.Stdout, append(text, '\n'))
		},
	}
	out.addTo(cmd)
	return cmd
}

// build is what version -o json prints. Fields are only ever added.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Protocol int32  `json:"protocol"` // major, of the sessions with the coordinator
}

// thisBuild takes version and commit from the line that every program prints, so that both forms say the same.
func thisBuild() build {
	b := build{Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Protocol: session.Protocol}
	_, rest, _ := strings.Cut(version.String("vipmove"), " ")
	b.Version, rest, _ = strings.Cut(rest, " (commit ")
	b.Commit, _, _ = strings.Cut(rest, ",")
	return b
}
