// SPDX-License-Identifier: Apache-2.0

package version

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

const revision40 = "0123456789abcdef0123456789abcdef01234567"

func TestIdentify(t *testing.T) {
	stamped := func(module, revision, modified string) *debug.BuildInfo {
		return &debug.BuildInfo{
			Main: debug.Module{Version: module},
			Settings: []debug.BuildSetting{
				{Key: "vcs", Value: "git"},
				{Key: "vcs.revision", Value: revision},
				{Key: "vcs.modified", Value: modified},
			},
		}
	}
	tests := []struct {
		name            string
		version, commit string // as the linker set them
		info            *debug.BuildInfo
		wantVersion     string
		wantCommit      string
	}{
		{"what make set wins over the build information", "v0.2.0", "feedfacecafe", stamped("v0.1.0", revision40, "true"), "v0.2.0", "feedfacecafe"},
		{"make without a release tag", "", "feedfacecafe-dirty", stamped("(devel)", "", ""), "devel", "feedfacecafe-dirty"},
		{"go install of a release", "", "", &debug.BuildInfo{Main: debug.Module{Version: "v0.2.0"}}, "v0.2.0", "unknown"},
		{"go build in a clean checkout", "", "", stamped("v0.2.1-0.20260102030405-0123456789ab", revision40, "false"), "v0.2.1-0.20260102030405-0123456789ab", "0123456789ab"},
		{"go build in a changed checkout", "", "", stamped("(devel)", revision40, "true"), "devel", "0123456789ab-dirty"},
		{"a changed tree of no known commit says nothing", "", "", stamped("", "", "true"), "devel", "unknown"},
		{"a revision shorter than shown", "", "", stamped("", "0123", "false"), "devel", "0123"},
		{"go build -buildvcs=false", "", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "devel", "unknown"},
		{"a binary without build information", "", "", nil, "devel", "unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			version, commit := identify(tt.version, tt.commit, tt.info)
			if version != tt.wantVersion || commit != tt.wantCommit {
				t.Errorf("identify(%q, %q, …) = %q, %q, want %q, %q",
					tt.version, tt.commit, version, commit, tt.wantVersion, tt.wantCommit)
			}
		})
	}
}

func TestStringIsOneLineThatNamesProgramBuildAndPlatform(t *testing.T) {
	defer func(v, c string) { Version, Commit = v, c }(Version, Commit)
	Version, Commit = "v9.8.7", "feedfacecafe"

	got := String("vipmove-agent")
	want := "vipmove-agent v9.8.7 (commit feedfacecafe, " + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH + ")"
	if got != want {
		t.Errorf("String = %q, want %q", got, want)
	}
	if strings.Contains(got, "\n") {
		t.Errorf("String = %q, holds a line break", got)
	}
}
