// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// FuzzOrder: whatever a coordinator sends, the agent answers it under its
// command id, and only the prepared entry is ever deleted (I5).
func FuzzOrder(f *testing.F) {
	seed := newStory(f)
	for _, c := range []*vipmovev1.Command{
		prepareOrder(seed.fence(), seed.entry), removeOrder(seed.fence(), removeID), extendOrder(seed.fence(), removeID),
		confirmOrder(seed.fence(), removeID), restoreOrder(seed.fence(), removeID, true), inquireOrder(seed.fence(), removeID),
	} {
		c.CommandId = removeID
		b, err := proto.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, b)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		s := newStory(t)
		s.expect(s.prepare(), prepared)
		for _, b := range [][]byte{first, second} {
			c := &vipmovev1.Command{}
			if proto.Unmarshal(b, c) != nil {
				continue
			}
			r := s.steps.Order(t.Context(), c)
			if r.GetCommandId() != c.GetCommandId() {
				t.Errorf("answered as %q, asked as %q", r.GetCommandId(), c.GetCommandId())
			}
			if r.GetError() == "" && r.GetStep() == nil {
				t.Errorf("no answer: %v", r)
			}
		}
		for _, d := range s.kernel.Deletes() {
			if d.Prefix != s.entry.Prefix || d.LinkIndex != s.entry.LinkIndex {
				t.Errorf("I5: deleted %s", d)
			}
		}
	})
}

// FuzzRecord: whatever stands in the state directory, it is a record or damage
// with the file's name, and the agent comes up.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"version": 1, "record": {"commandId": "c", "phase": "removed", "deadlineNs": 1}}`))
	f.Add([]byte(`{"version": 2, "record": {}}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		name := stepName("c")
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := OpenDisk(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		records, err := d.Load()
		if (len(records.Steps) == 1) == (err != nil) {
			t.Errorf("%d steps and %v", len(records.Steps), err)
		}
		s := newStory(t)
		steps, err := NewSteps(StepsConfig{Node: testNode, Policy: s.policy, Kernel: s.kernel, Store: d})
		if err != nil {
			t.Fatal(err)
		}
		steps.Recover(t.Context())
		steps.Tick(t.Context())
	})
}
