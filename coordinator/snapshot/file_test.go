// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	"github.com/vipmove/vipmove/coordinator/snapshot"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

func readText(text string) (diagnose.Snapshot, error) {
	return snapshot.Read(strings.NewReader(text))
}

// Wherever a file was cut off, nothing of it is judged, and the place is named.
func TestATruncatedFileIsRefusedWhereverItWasCut(t *testing.T) {
	text := strings.TrimSpace(example(t))
	for n := range len(text) {
		s, err := readText(text[:n])
		if err == nil {
			t.Fatalf("cut after %d bytes it is read: %q", n, text[max(0, n-40):n])
		}
		if n > 0 && !strings.Contains(err.Error(), "line ") {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
		if s.VIP.IsValid() || s.Nodes != nil {
			t.Errorf("cut after %d bytes: %+v beside the error", n, s)
		}
	}
}

func TestWhatIsNoSnapshotSaysWhatAndWhere(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{"", "it is empty"},
		{" \n\t", "it is empty"},
		{"{}", "vip: it has none"},
		{"null", "it is not one JSON object"},
		{"[]", "it is not one JSON object"},
		{`"192.0.2.50"`, "it is not one JSON object"},
		{"{\n  \"vip\": \"192.0.2.50\",,\n}", "line 2, column 23: no JSON"},
		{"{\n  \"vip\": \"192.0.2.50\"\n} {}", "line 3, column 3: no JSON"},
		{"vip: 192.0.2.50\n", "line 1, column 1: no JSON"},
		{"{\"vip\": \"192.0.2.50\",\n \"vips\": []}", "line 2, column 2: unknown field \"vips\" (docs/snapshot.md lists all fields"},
		{`{"vip": "192.0.2.50", "vip": "192.0.2.51"}`, "line 1, column 23: duplicate field \"vip\""},
		{"{\"vip\":\n 50}", "line 2, column 2: invalid value for string field vip: 50"},
		{`{"vip": "192.0.2.50", "nodes": [{"role": "AGENT"}]}`, `invalid value for enum field role: "AGENT"`},
		{`{"vip": "192.0.2.50", "takenAt": "yesterday"}`, "line 1, column 34: invalid google.protobuf.Timestamp"},
		{`{"schemaVersion": 2, "vip": "192.0.2.50"}`, "schema version 2, this version reads up to 1; use a newer vipmove"},
		{`{"schemaVersion": "3", "vips": {}}`, `schema version "3", this version reads up to 1`},
		{`{"schema_version": 2, "vips": {}}`, "schema version 2, this version"},
		{`{"schemaVersion": 1e9}`, "schema version 1e9, this version"},
		{`{"schemaVersion": -1, "vip": "192.0.2.50"}`, "schema version -1"},
		{`{"schemaVersion": "one", "vip": "192.0.2.50"}`, "invalid value for int32 field schemaVersion"},
		{strings.Repeat(`{"nodes":[`, 20000), "line 1, column "},
	} {
		_, err := readText(c.text)
		if err == nil || !strings.HasPrefix(err.Error(), "reading snapshot: ") || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.60q: %v, want it to say %q", c.text, err, c.says)
		}
		if err != nil && strings.Contains(err.Error(), "proto:") {
			t.Errorf("%.60q: %v speaks of protobuf", c.text, err)
		}
	}
}

func TestAByteOrderMarkAndBothFormsOfNamesAreRead(t *testing.T) {
	want, err := readText(example(t))
	if err != nil {
		t.Fatal(err)
	}
	snake := strings.NewReplacer(`"linkIndex"`, `"link_index"`, `"senderMac"`, `"sender_mac"`, `"schemaVersion"`, `"schema_version"`).Replace(example(t))
	for _, text := range []string{"\ufeff" + example(t), snake} {
		got, err := readText(text)
		if diff := cmp.Diff(want, got, plain); err != nil || diff != "" {
			t.Errorf("error %v (-want +got):\n%s", err, diff)
		}
	}
}

// A person may name a link by its name or by its index: it is the same snapshot, and the same plan.
func TestLinksMayBeNamedEitherWay(t *testing.T) {
	want, err := readText(example(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{`"linkIndex": \d+, `, `"link": "[a-z0-9-]+", `} {
		text := regexp.MustCompile(pattern).ReplaceAllString(example(t), "")
		if text == example(t) {
			t.Fatalf("the example has no %s", pattern)
		}
		got, err := readText(text)
		if diff := cmp.Diff(want, got, plain); err != nil || diff != "" {
			t.Errorf("without %s: error %v (-want +got):\n%s", pattern, err, diff)
		}
	}
}

func TestAFileThatIsTooLargeOrCannotBeReadIsAnError(t *testing.T) {
	endless := io.MultiReader(strings.NewReader(`{"vip": "`), zeros{})
	if _, err := snapshot.Read(endless); err == nil || !strings.Contains(err.Error(), "larger than 64 MiB") {
		t.Errorf("endless: %v", err)
	}
	broken := errors.New("input/output error")
	if _, err := snapshot.Read(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("broken disk: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
	}
	return len(b), nil
}

// Whatever a file holds, it is refused with a sentence or judged the same twice.
func FuzzRead(f *testing.F) {
	addScenarios(f)
	f.Add([]byte(`{"vip": "192.0.2.50", "nodes": [{"name": "n1", "role": 1, "kernel": {"incomplete": ["all"]}}]}`))
	f.Add([]byte(`{"schemaVersion": 2}`))
	if b, err := protojson.Marshal(good()); err == nil {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := snapshot.Read(bytes.NewReader(b))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "reading snapshot: ") {
				t.Errorf("error %q does not say what was being done", err)
			}
			return
		}
		if diff := cmp.Diff(snapshot.ReportToProto(diagnose.Judge(s), s.TakenAt).String(), snapshot.ReportToProto(diagnose.Judge(s), s.TakenAt).String()); diff != "" {
			t.Errorf("judged twice: %s", diff)
		}
		var p vipmovev1.Snapshot
		if err := protojson.Unmarshal(b, &p); err != nil && !bytes.HasPrefix(b, []byte("\ufeff")) {
			t.Errorf("read, and protojson would not: %v", err)
		}
	})
}
