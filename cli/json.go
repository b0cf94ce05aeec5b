// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const jsonHelp = `With -o json stdout gets exactly one object: the message of proto/vipmove/v1 in protobuf's JSON form, every field present,
lowerCamel names, in the order of the .proto file. Integers of 64 bits are numbers, times are RFC 3339, durations are seconds
as in "1.200s"; null is "not known" or "not yet". Fields are only ever added.`

// writeJSON writes m as protobuf JSON, but stable to the byte where protojson is not, and with 64-bit integers as numbers:
// a quoted "0" is more than 5 in jq. protojson reads it back.
func writeJSON(w *bytes.Buffer, m proto.Message) error {
	var flat bytes.Buffer
	if err := appendMessage(&flat, m.ProtoReflect()); err != nil {
		return fmt.Errorf("writing %s as JSON: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	if err := json.Indent(w, flat.Bytes(), "", "  "); err != nil {
		return fmt.Errorf("laying out JSON: %w", err)
	}
	w.WriteByte('\n')
	return nil
}

func appendMessage(w *bytes.Buffer, m protoreflect.Message) error {
	switch known := m.Interface().(type) {
	case *durationpb.Duration, *timestamppb.Timestamp:
		text, err := protojson.Marshal(known)
		w.Write(text)
		return err
	}
	fields := m.Descriptor().Fields()
	w.WriteByte('{')
	for i := range fields.Len() {
		if i > 0 {
			w.WriteByte(',')
		}
		field := fields.Get(i)
		w.WriteString(strconv.Quote(field.JSONName()) + ":")
		if err := appendField(w, m, field); err != nil {
			return err
		}
	}
	w.WriteByte('}')
	return nil
}

func appendField(w *bytes.Buffer, m protoreflect.Message, field protoreflect.FieldDescriptor) error {
	switch {
	case field.IsMap():
		return appendMap(w, m.Get(field).Map(), field.MapValue())
	case field.IsList():
		return appendList(w, m.Get(field).List(), field)
	case field.HasPresence() && !m.Has(field):
		w.WriteString("null")
		return nil
	}
	return appendValue(w, m.Get(field), field)
}

func appendList(w *bytes.Buffer, list protoreflect.List, field protoreflect.FieldDescriptor) error {
	w.WriteByte('[')
	for i := range list.Len() {
		if i > 0 {
			w.WriteByte(',')
		}
		if err := appendValue(w, list.Get(i), field); err != nil {
			return err
		}
	}
	w.WriteByte(']')
	return nil
}

func appendMap(w *bytes.Buffer, m protoreflect.Map, value protoreflect.FieldDescriptor) error {
	var keys []protoreflect.MapKey
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return cmp.Compare(a.String(), b.String()) })
	w.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			w.WriteByte(',')
		}
		if err := appendJSON(w, k.String()); err != nil {
			return err
		}
		w.WriteByte(':')
		if err := appendValue(w, m.Get(k), value); err != nil {
			return err
		}
	}
	w.WriteByte('}')
	return nil
}

func appendValue(w *bytes.Buffer, v protoreflect.Value, field protoreflect.FieldDescriptor) error {
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return appendMessage(w, v.Message())
	case protoreflect.EnumKind:
		if named := field.Enum().Values().ByNumber(v.Enum()); named != nil {
			return appendJSON(w, string(named.Name()))
		}
		return appendJSON(w, v.Enum()) // a newer coordinator's value
	}
	return appendJSON(w, v.Interface())
}

func appendJSON(w *bytes.Buffer, v any) error {
	text, err := json.Marshal(v)
	w.Write(text)
	return err
}
