package words

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
)

// AppendJSON appends a value as one line of JSON that encoding/json can decode. It omits zero fields, writes times
// with nanoseconds (the API's own encoding has seconds only) and escapes terminal control characters. Fields that a
// Shape hides or drops are hidden or omitted.
func (t *Type) AppendJSON(dst []byte, v Value) []byte {
	switch t.kind {
	case boolean:
		return strconv.AppendBool(dst, v.bool())
	case integer, duration:
		return strconv.AppendInt(dst, t.int(v), 10)
	case unsigned:
		return strconv.AppendUint(dst, t.uint(v), 10)
	case text:
		return appendJSONString(dst, v.str())
	case instant, metaTime:
		at := v.time()
		if t.kind == metaTime && at.IsZero() {
			return append(dst, "null"...)
		}
		dst = append(dst, '"')
		dst = at.UTC().AppendFormat(dst, time.RFC3339Nano)
		return append(dst, '"')
	case pointer:
		if v.target().p == nil {
			return append(dst, "null"...)
		}
		return t.elem.AppendJSON(dst, v.target())
	case structure:
		return t.appendStruct(dst, v)
	case list:
		dst = append(dst, '[')
		for i := range v.len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = t.elem.AppendJSON(dst, t.item(v, i))
		}
		return append(dst, ']')
	case mapping:
		return t.appendMap(dst, v, "")
	}
	return appendOther(dst, t.reflected(v).Addr().Interface())
}

func (t *Type) appendStruct(dst []byte, v Value) []byte {
	dst = append(dst, '{')
	begin := len(dst)
	for _, f := range t.fields {
		w := f.Of(v)
		if f.Type.Zero(w) {
			continue
		}
		if len(dst) > begin {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		dst = append(dst, f.json...)
		dst = append(dst, '"', ':')
		switch {
		case f.hidden:
			dst = appendJSONString(dst, hidden)
		case f.dropKey != "":
			dst = f.Type.appendMap(dst, w, f.dropKey)
		default:
			dst = f.Type.AppendJSON(dst, w)
		}
	}
	return append(dst, '}')
}

func (t *Type) appendMap(dst []byte, v Value, without string) []byte {
	m := t.reflected(v)
	keys := m.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	dst = append(dst, '{')
	begin := len(dst)
	for _, k := range keys {
		if without != "" && k.String() == without {
			continue
		}
		if len(dst) > begin {
			dst = append(dst, ',')
		}
		dst = append(appendJSONString(dst, k.String()), ':')
		dst = t.elem.AppendJSON(dst, located(m.MapIndex(k)))
	}
	return append(dst, '}')
}

// appendOther uses a value's own encoding. A value that can't be encoded becomes null; API types have no such values.
func appendOther(dst []byte, pointer any) []byte {
	if q, ok := pointer.(*resource.Quantity); ok {
		return appendQuantity(dst, *q)
	}
	data, err := json.Marshal(pointer)
	if err != nil {
		return append(dst, "null"...)
	}
	return append(dst, terminal.JSON(data)...)
}

// appendQuantity takes a copy because String writes to its receiver.
func appendQuantity(dst []byte, q resource.Quantity) []byte {
	return append(append(append(dst, '"'), q.String()...), '"')
}

func appendJSONString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			data, err := json.Marshal(s)
			if err != nil {
				return append(dst, `""`...)
			}
			return append(dst, terminal.JSON(data)...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}
