// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// addScenarios seeds with the snapshots of all scenarios.
func addScenarios(f *testing.F) {
	f.Helper()
	files, err := filepath.Glob("../diagnose/testdata/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no scenario: %v", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range txtar.Parse(b).Files {
			if part.Name == "snapshot.json" {
				f.Add(part.Data)
			}
		}
	}
}

// A snapshot file comes from anywhere: whatever is in it is judged or refused, the same way twice.
func FuzzSnapshotFile(f *testing.F) {
	addScenarios(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var p vipmovev1.Snapshot
		if protojson.Unmarshal(b, &p) != nil {
			return
		}
		s, err := snapshot.FromProto(&p)
		if err != nil {
			return
		}
		first, second := diagnose.Judge(s), diagnose.Judge(s)
		if !reflect.DeepEqual(first, second) {
			t.Errorf("judged twice:\n%+v\n%+v", first, second)
		}
		snapshot.ReportToProto(first, s.TakenAt)
		for _, n := range s.Nodes {
			for nic := range first.Segment.Interfaces {
				diagnose.WouldAnswer(n, first.Segment.Interfaces[nic], s.VIP, diagnose.Martian())
			}
		}
	})
}
