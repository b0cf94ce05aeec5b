// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vipmove/vipmove/agent/host"
)

// sameAddresses compares netip values by value.
var sameAddresses = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}

func sampleRecords() Records {
	entry := host.Tuple{
		Link: "kube-ipvs0", LinkIndex: 3, Prefix: netip.MustParsePrefix("192.0.2.50/32"),
		Label: "kube-ipvs0", Flags: 0x80, ValidLifetime: host.Forever, PreferredLifetime: host.Forever, Metric: 7, Protocol: 3,
	}
	return Records{
		Term:     Term{Journal: "j1", Term: 7},
		Prepared: []Prepared{{RunID: "run/1", PlanHash: "h", Step: "n1", VIP: "192.0.2.50", Entry: entry, Overrides: []string{"UNKNOWN_MANAGER"}, Sequence: 1}},
		Steps: []Step{{
			CommandID: "../../etc/passwd", RunID: "run/1", PlanHash: "h", Step: "n1", BootID: "b", Entry: entry,
			Phase: Removed, Deadline: 3 * time.Second, Removed: time.Second, Detail: "d", Sequence: 2,
		}},
	}
}

// eachStore runs the contract on the disk and on its stand-in. reopen is what
// a new process sees.
func eachStore(t *testing.T, body func(t *testing.T, s Store, reopen func() Store)) {
	t.Run("disk", func(t *testing.T) {
		dir := t.TempDir()
		open := func() *Disk {
			d, err := OpenDisk(dir)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		d := open()
		body(t, d, func() Store {
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			d = open()
			return d
		})
		d.Close()
	})
	t.Run("memory", func(t *testing.T) {
		m := newMemory()
		body(t, m, func() Store { return m })
	})
}

func save(t *testing.T, s Store, r Records) {
	t.Helper()
	errs := []error{s.SaveTerm(r.Term)}
	for _, p := range r.Prepared {
		errs = append(errs, s.SavePrepared(p))
	}
	for _, step := range r.Steps {
		errs = append(errs, s.SaveStep(step))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestWhatWasSavedSurvivesTheProcessI9(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store, reopen func() Store) {
		want := sampleRecords()
		save(t, s, want)
		want.Steps[0].Phase, want.Term.Term = Confirmed, 8
		save(t, s, want) // replaces
		got, err := reopen().Load()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, sameAddresses); diff != "" {
			t.Errorf("records (-want +got):\n%s", diff)
		}
	})
}

func TestAnEmptyStoreHasNothingAndNoDamage(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store, reopen func() Store) {
		got, err := s.Load()
		if diff := cmp.Diff(Records{}, got, sameAddresses); diff != "" || err != nil {
			t.Errorf("records %s, %v", diff, err)
		}
	})
}

func TestDroppedRecordsAreGoneAndDroppingTwiceIsFine(t *testing.T) {
	eachStore(t, func(t *testing.T, s Store, reopen func() Store) {
		r := sampleRecords()
		save(t, s, r)
		for range 2 {
			if err := errors.Join(s.DropPrepared(r.Prepared[0].RunID), s.DropStep(r.Steps[0].CommandID)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := reopen().Load()
		if diff := cmp.Diff(Records{Term: r.Term}, got, sameAddresses); diff != "" || err != nil {
			t.Errorf("records %s, %v", diff, err)
		}
	})
}

func TestADamagedRecordIsNamedAndTheOthersAreRead(t *testing.T) {
	dir := t.TempDir()
	d, err := OpenDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := sampleRecords()
	save(t, d, r)
	step := filepath.Join(dir, stepName(r.Steps[0].CommandID))
	good, err := os.ReadFile(step)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"torn":             good[:len(good)/2],
		"empty":            nil,
		"newer version":    []byte(strings.Replace(string(good), `"version": 1`, `"version": 2`, 1)),
		"another's record": []byte(strings.Replace(string(good), `../../etc/passwd`, `other`, 1)),
		"not ours":         []byte("undo\n"),
		"unknown phase":    []byte(strings.Replace(string(good), `"removed"`, `"suspended"`, 1)),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(step, content, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := d.Load()
			var damaged *DamagedError
			if !errors.As(err, &damaged) || len(damaged.Files) != 1 || damaged.Files[0].File != step {
				t.Fatalf("err = %v, want damage of %s alone", err, step)
			}
			if !strings.Contains(err.Error(), step) {
				t.Errorf("%q does not name the file", err)
			}
			if len(got.Prepared) != 1 || got.Term != r.Term || len(got.Steps) != 0 {
				t.Errorf("the undamaged records are lost: %+v", got)
			}
		})
	}
}

func TestIdsFromTheWireNeverLeaveTheDirectory(t *testing.T) {
	parent := t.TempDir()
	d, err := OpenDisk(filepath.Join(parent, "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, id := range []string{"../x", "/etc/x", "a/b", strings.Repeat("x", 4096), "\x00", "."} {
		if err := d.SaveStep(Step{CommandID: id, Phase: Cancelled}); err != nil {
			t.Errorf("saving %q: %v", id, err)
		}
	}
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 1 {
		t.Errorf("outside of the directory: %v, %v", entries, err)
	}
	if r, err := d.Load(); err != nil || len(r.Steps) != 6 {
		t.Errorf("%d steps came back, %v", len(r.Steps), err)
	}
}

func TestLeftoversOfACrashAreRemovedAndStrangersLeftAlone(t *testing.T) {
	dir := t.TempDir()
	d, err := OpenDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	half, stranger := filepath.Join(dir, tempPrefix+"123"), filepath.Join(dir, "notes.txt")
	for _, path := range []string{half, stranger} {
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Load(); err != nil {
		t.Errorf("Load: %v", err)
	}
	if _, err := os.Stat(half); !os.IsNotExist(err) {
		t.Errorf("the half written file is still there: %v", err)
	}
	if _, err := os.Stat(stranger); err != nil {
		t.Errorf("a file that is not ours is gone: %v", err)
	}
}

func TestTwoAgentsNeverShareAStateDirectory(t *testing.T) {
	dir := t.TempDir()
	first, err := OpenDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDisk(dir); !errors.Is(err, ErrStateInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("second: %v, want ErrStateInUse with the directory", err)
	}
	first.Close()
	again, err := OpenDisk(dir)
	if err != nil {
		t.Fatalf("after the first is gone: %v", err)
	}
	again.Close()
}

func TestPauseAndResetAreFilesAnAdministratorCanMake(t *testing.T) {
	dir := t.TempDir()
	d, err := OpenDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if paused, _, err := d.Paused(); paused || err != nil {
		t.Errorf("paused %v, %v in an empty directory", paused, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "paused"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if paused, path, err := d.Paused(); !paused || err != nil || path != filepath.Join(dir, "paused") {
		t.Errorf("paused %v, %q, %v", paused, path, err)
	}
	if err := RequestReset(dir); err != nil {
		t.Fatal(err)
	}
	if asked, err := d.ResetRequested(); !asked || err != nil {
		t.Errorf("reset requested: %v, %v", asked, err)
	}
	if err := d.ResetDone(); err != nil {
		t.Fatal(err)
	}
	if asked, _ := d.ResetRequested(); asked {
		t.Error("a reset that was done is still requested")
	}
}

func TestAWriteThatFailsNamesTheFileAndLeavesTheOldOne(t *testing.T) {
	dir := t.TempDir()
	d, err := OpenDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	save(t, d, sampleRecords())
	// A directory in the place of the file makes the rename fail, also for root.
	path := filepath.Join(dir, termFile)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.SaveTerm(Term{"j", 9}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("err = %v, want one that names %s", err, path)
	}
	entries, _ := filepath.Glob(filepath.Join(dir, tempPrefix+"*"))
	if len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}
