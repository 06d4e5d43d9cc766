package cli

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// document writes a message as JSON with the field names of its .proto, in their order, every field present. It is
// not protojson, which writes 64-bit numbers as strings and leaves field order and white space open.
func document(m proto.Message) []byte {
	var b bytes.Buffer
	writeMessage(&b, m.ProtoReflect())
	return b.Bytes()
}

// indent makes a document easy to read for people who look at it.
func indent(doc []byte) []byte {
	var b bytes.Buffer
	if err := json.Indent(&b, doc, "", "  "); err != nil {
		return doc
	}
	return append(b.Bytes(), '\n')
}

func writeMessage(b *bytes.Buffer, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	b.WriteByte('{')
	written := 0
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.ContainingOneof() != nil && !m.Has(f) {
			continue
		}
		if written++; written > 1 {
			b.WriteByte(',')
		}
		writeString(b, string(f.Name()))
		b.WriteByte(':')
		writeField(b, f, m)
	}
	b.WriteByte('}')
}

func writeField(b *bytes.Buffer, f protoreflect.FieldDescriptor, m protoreflect.Message) {
	v := m.Get(f)
	switch {
	case f.IsMap():
		writeMap(b, f, v.Map())
	case f.IsList():
		b.WriteByte('[')
		for i := range v.List().Len() {
			if i > 0 {
				b.WriteByte(',')
			}
			writeValue(b, f, v.List().Get(i))
		}
		b.WriteByte(']')
	case f.Message() != nil && !m.Has(f):
		b.WriteString("null")
	default:
		writeValue(b, f, v)
	}
}

func writeMap(b *bytes.Buffer, f protoreflect.FieldDescriptor, m protoreflect.Map) {
	var keys []protoreflect.MapKey
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	b.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		writeString(b, k.String())
		b.WriteByte(':')
		writeValue(b, f.MapValue(), m.Get(k))
	}
	b.WriteByte('}')
}

func writeValue(b *bytes.Buffer, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		writeMessage(b, v.Message())
	case protoreflect.StringKind:
		writeString(b, v.String())
	case protoreflect.BytesKind:
		raw, _ := json.Marshal(v.Bytes())
		b.Write(raw)
	case protoreflect.EnumKind:
		writeString(b, enumName(f, v.Enum()))
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		writeNumber(b, v.Float())
	default:
		b.WriteString(v.String()) // bool and whole numbers
	}
}

// writeNumber keeps whole seconds whole and never writes an exponent.
func writeNumber(b *bytes.Buffer, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		b.WriteString("null")
		return
	}
	b.WriteString(strconv.FormatFloat(v, 'f', -1, 64))
}

// enumName writes OUTCOME_COMPLETED as completed.
func enumName(f protoreflect.FieldDescriptor, n protoreflect.EnumNumber) string {
	values := f.Enum().Values()
	v := values.ByNumber(n)
	if v == nil {
		return strconv.Itoa(int(n))
	}
	prefix := strings.TrimSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
	return strings.ToLower(strings.TrimPrefix(string(v.Name()), prefix))
}

func writeString(b *bytes.Buffer, s string) {
	raw, _ := json.Marshal(s)
	b.Write(raw)
}
