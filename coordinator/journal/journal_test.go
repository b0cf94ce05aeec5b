// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/handover"
)

var created = handover.Event{Kind: handover.Created, RunID: "r1", By: "alice", Term: 1, At: time.Date(2026, 11, 30, 2, 0, 0, 1234, time.UTC), Plan: &handover.Plan{
	Options: handover.Options{VIP: netip.MustParseAddr("192.0.2.50"), Overrides: []diagnose.Code{diagnose.ManagerRunning}, TTL: time.Second, MaxParallel: 1},
	Segment: netip.MustParsePrefix("192.0.2.0/24"), Canary: "n1", Survivor: "n2", LeftAlone: map[string]int{"n1": 44},
	Steps: []handover.PlannedStep{{Role: handover.RoleCanary, Entry: handover.Entry{Node: "n1", BootID: "b", State: diagnose.HolderStale,
		Address: diagnose.Address{Link: "kube-ipvs0", LinkIndex: 7, Prefix: netip.MustParsePrefix("192.0.2.50/32"), Label: "kube-ipvs0", Flags: 0x80, ValidLifetime: 4294967295}}}},
}}

// contract holds for every Journal; reopen gives a second journal on the same storage.
func contract(t *testing.T, open func(t *testing.T) Journal) {
	j := open(t)
	term, err := j.RaiseTerm()
	if err != nil || term != 1 || j.Term() != 1 {
		t.Fatalf("first term %d (%d), %v", term, j.Term(), err)
	}
	events := []handover.Event{created, {Kind: handover.Started, At: created.At}, {Kind: handover.AbortAsked, By: "bob", At: created.At}}
	for i, e := range events {
		if err := j.Append("r1", uint64(i), e); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("what was appended is read back the same, in order (I9)", func(t *testing.T) {
		got, err := j.Load("r1")
		if diff := cmp.Diff(events, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		run, err := Replay(got)
		if err != nil || run.State != handover.RolledBack || run.StartedBy != "alice" {
			t.Errorf("replayed: %s %s %v", run.State, run.StartedBy, err)
		}
	})
	t.Run("the same event under its number again is a repeat", func(t *testing.T) {
		if err := j.Append("r1", 1, events[1]); err != nil {
			t.Error(err)
		}
	})
	t.Run("another event under a number that is taken is refused", func(t *testing.T) {
		if err := j.Append("r1", 1, events[2]); !errors.Is(err, ErrConflict) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("runs and nodes are listed", func(t *testing.T) {
		if err := j.RememberNode("n1", "agent"); err != nil {
			t.Fatal(err)
		}
		nodes, _ := j.Nodes()
		runs, _ := j.Runs()
		if fmt.Sprint(runs, nodes) != "[r1] map[n1:agent]" {
			t.Error(runs, nodes)
		}
		if events, err := j.Load("none"); len(events) != 0 || err != nil {
			t.Error(events, err)
		}
	})
}

func TestMemoryKeepsTheContract(t *testing.T) {
	contract(t, func(*testing.T) Journal { return NewMemory(nil) })
}

func TestBoltKeepsTheContract(t *testing.T) {
	contract(t, func(t *testing.T) Journal {
		j, err := Open(filepath.Join(t.TempDir(), "sub", "journal.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = j.Close() })
		return j
	})
}

func TestBoltSurvivesAReopenAndTheTermOnlyRises(t *testing.T) { // I7, I9
	path := filepath.Join(t.TempDir(), "journal.db")
	var id string
	for want := uint64(1); want <= 3; want++ {
		j, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if id != "" && j.ID() != id {
			t.Errorf("the journal's id changed from %s to %s", id, j.ID())
		}
		id = j.ID()
		if term, err := j.RaiseTerm(); err != nil || term != want {
			t.Errorf("term %d, want %d (%v)", term, want, err)
		}
		if err := j.Append("r1", want-1, handover.Event{Kind: handover.Started, Term: want}); err != nil {
			t.Error(err)
		}
		if events, err := j.Load("r1"); err != nil || len(events) != int(want) {
			t.Errorf("%d events, want %d (%v)", len(events), want, err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestASecondCoordinatorOnOneJournalIsTurnedAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	if _, err := Open(path); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
}

func TestASupersededProcessCanWriteNothing(t *testing.T) { // I7
	disk := &Disk{}
	first, second := NewMemory(disk), NewMemory(disk)
	_, _ = first.RaiseTerm()
	_, _ = second.RaiseTerm()
	if err := first.Append("r1", 0, created); !errors.Is(err, ErrSuperseded) {
		t.Errorf("the older wrote: %v", err)
	}
	if err := second.Append("r1", 0, created); err != nil {
		t.Error(err)
	}
}

func TestAWriteThatWasDoneAndReportedAnErrorIsRepeatedSafely(t *testing.T) { // I8, I9
	for _, done := range []bool{false, true} {
		disk, failures := &Disk{}, 1
		disk.Fault = func(string, handover.Event) (bool, error) {
			if failures > 0 {
				failures--
				return done, errors.New("disk")
			}
			return false, nil
		}
		j := NewMemory(disk)
		_, _ = j.RaiseTerm()
		if err := j.Append("r1", 0, created); err == nil {
			t.Fatal("the fault was not seen")
		}
		if err := j.Append("r1", 0, created); err != nil {
			t.Errorf("done=%v: the repeat was refused: %v", done, err)
		}
		if events, _ := j.Load("r1"); len(events) != 1 {
			t.Errorf("done=%v: %d events stored", done, len(events))
		}
	}
}

func TestARecordOfANewerVersionIsRefusedByName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	for name, value := range map[string]string{"newer": `{"v":2,"event":{}}`, "torn": `{"v":1,"eve`} {
		err := j.db.Update(func(tx *bolt.Tx) error {
			b, err := tx.Bucket(bucketRuns).CreateBucketIfNotExists([]byte(name))
			if err != nil {
				return err
			}
			return b.Put(make([]byte, 8), []byte(value))
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = j.Load(name)
		if err == nil || (name == "newer") != errors.Is(err, ErrNewerRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
