// SPDX-License-Identifier: Apache-2.0

// Package version says which build this is.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the Makefile through -ldflags -X. Either may be empty: a build by plain `go build` or
// `go install` sets none, a build without git or without a release tag sets no Version.
var (
	// Version is a release tag, with the distance to it where there is one: v0.2.0, v0.2.0-3-gabc1234.
	Version string
	// Commit is the abbreviated git commit, with -dirty when the tree had changes.
	Commit string
)

// unreleased is printed where neither the linker nor the build information knows a version.
const unreleased = "devel"

// commitLength is how many digits of a commit are shown; git's own abbreviation of large trees.
const commitLength = 12

// String is the one line that program prints for --version, without a newline:
//
//	vipmove-agent v0.2.0 (commit 0123456789ab, go1.26.8, linux/amd64)
func String(program string) string {
	info, _ := debug.ReadBuildInfo()
	version, commit := identify(Version, Commit, info)
	return fmt.Sprintf("%s %s (commit %s, %s, %s/%s)",
		program, version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// identify fills what the linker left empty from the build information, which may be nil.
func identify(version, commit string, info *debug.BuildInfo) (string, string) {
	if info == nil {
		info = &debug.BuildInfo{}
	}
	if module := info.Main.Version; module != "(devel)" {
		version = cmp.Or(version, module)
	}
	return cmp.Or(version, unreleased), cmp.Or(commit, revision(info.Settings), "unknown")
}

// revision is the commit that the go command stamped, empty with -buildvcs=false.
func revision(settings []debug.BuildSetting) string {
	var commit, dirty string
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(commitLength, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + dirty
}
