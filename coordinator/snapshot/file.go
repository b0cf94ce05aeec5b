// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/vipmove/vipmove/coordinator/diagnose"
	vipmovev1 "github.com/vipmove/vipmove/proto/vipmove/v1"
)

// MaxFile is the size in bytes above which a file is no snapshot: seven nodes with five thousand
// addresses each need about a tenth of it.
const MaxFile = 64 << 20

// Read reads a snapshot's JSON form (docs/snapshot.md), as `vipmove snapshot` saves it or a person
// wrote it. It is stricter than FromProto: what is truncated, of a newer schema, not known by name,
// left out although nothing could be judged without it, or at odds with itself is an error that says
// what and where, by line or by field.
func Read(from io.Reader) (diagnose.Snapshot, error) {
	b, err := io.ReadAll(io.LimitReader(from, MaxFile+1))
	switch {
	case err != nil:
		return diagnose.Snapshot{}, fmt.Errorf("reading snapshot: %w", err)
	case len(b) > MaxFile:
		return diagnose.Snapshot{}, fmt.Errorf("reading snapshot: it is larger than %d MiB", MaxFile>>20)
	}
	b = bytes.TrimPrefix(b, []byte("\ufeff")) // some editors begin a file with it
	if err := head(b); err != nil {
		return diagnose.Snapshot{}, fmt.Errorf("reading snapshot: %w", err)
	}
	var p vipmovev1.Snapshot
	if err := protojson.Unmarshal(b, &p); err != nil {
		return diagnose.Snapshot{}, fmt.Errorf("reading snapshot: %s", plainly(err))
	}
	s, err := FromProto(&p)
	if err != nil {
		return diagnose.Snapshot{}, err
	}
	if err := contradiction(&p, s); err != nil {
		return diagnose.Snapshot{}, fmt.Errorf("reading snapshot: %w", err)
	}
	for _, n := range s.Nodes {
		if n.Kernel != nil {
			nameLinks(n.Kernel)
		}
	}
	return s, nil
}

// nameLinks gives addresses and routes both ways to name their link where the file has one, as a kernel
// lists them: a plan names the exact tuple.
func nameLinks(k *diagnose.Kernel) {
	both := func(name *string, index *int) {
		for _, l := range k.Links {
			switch {
			case *name == "" && *index == l.Index:
				*name = l.Name
			case *index == 0 && *name == l.Name:
				*index = l.Index
			}
		}
	}
	for i := range k.Addresses {
		both(&k.Addresses[i].Link, &k.Addresses[i].LinkIndex)
	}
	for i := range k.Routes {
		both(&k.Routes[i].Link, &k.Routes[i].LinkIndex)
	}
}

// head looks at the file as a whole: that it is one JSON object, complete, of a schema that this
// version reads. A newer one has names that are not known here, so its version is asked first.
func head(b []byte) error {
	if len(bytes.TrimSpace(b)) == 0 {
		return errors.New("it is empty")
	}
	var top struct {
		Lower json.RawMessage `json:"schemaVersion"`
		Snake json.RawMessage `json:"schema_version"`
	}
	err := json.Unmarshal(b, &top)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax) && syntax.Error() == "unexpected end of JSON input":
		return fmt.Errorf("%s: it ends in the middle: truncated", position(b, int64(len(bytes.TrimRight(b, " \t\r\n")))))
	case errors.As(err, &syntax):
		return fmt.Errorf("%s: no JSON: %w", position(b, syntax.Offset), err)
	case err != nil || bytes.TrimSpace(b)[0] != '{':
		return errors.New("it is not one JSON object")
	}
	for _, raw := range []json.RawMessage{top.Lower, top.Snake} {
		if v, err := strconv.ParseFloat(strings.Trim(string(raw), `"`), 64); err == nil && v > SchemaVersion {
			return newerSchema(string(raw))
		}
	}
	return nil
}

// newerSchema is the refusal of a schema version, as it stands in the file.
func newerSchema(version any) error {
	return fmt.Errorf("schema version %v, this version reads up to %d; use a newer vipmove", version, SchemaVersion)
}

// position names the byte at an offset as editors do, from line 1 and column 1.
func position(b []byte, offset int64) string {
	before := b[:max(0, min(offset, int64(len(b)))-1)]
	return fmt.Sprintf("line %d, column %d", bytes.Count(before, []byte("\n"))+1, len(before)-bytes.LastIndexByte(before, '\n'))
}

var at = regexp.MustCompile(`^(.*?)\(line (\d+):(\d+)\):? ?(.*)$`)

// plainly is protojson's error with its place in front and without its prefix, whose space varies from
// build to build on purpose.
func plainly(err error) string {
	text := strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
	m := at.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	what := strings.TrimSpace(m[1] + m[4])
	if strings.HasPrefix(what, "unknown field") {
		what += " (docs/snapshot.md lists all fields; a newer vipmove may know more)"
	}
	return fmt.Sprintf("line %s, column %s: %s", m[2], m[3], what)
}
