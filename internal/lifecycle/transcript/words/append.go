package words

import (
	"strconv"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
)

// far is the distance from the base above which a time is written as an absolute time.
const far = 10 * 365 * 24 * time.Hour

// key is a dotted key, linked from its last element to its first.
type key struct {
	up   *key
	name string
}

func (k *key) append(dst []byte) []byte {
	if k.up != nil {
		dst = append(k.up.append(dst), '.')
	}
	return append(dst, k.name...)
}

// AppendHead appends the head fields, each after a space. Trailing zero fields are left out.
func (t *Type) AppendHead(dst []byte, v Value, base time.Time) []byte {
	n := len(t.head)
	for n > 0 && t.head[n-1].Type.Zero(t.head[n-1].Of(v)) {
		n--
	}
	for _, f := range t.head[:n] {
		dst = append(dst, ' ')
		if w := f.Of(v); f.Type.kind == text && t.IsFlag(w.str()) {
			dst = strconv.AppendQuote(dst, w.str())
		} else {
			dst = f.Type.AppendWord(dst, w, base)
		}
	}
	return dst
}

// IsFlag reports whether a single word would be parsed as a bool field.
func (t *Type) IsFlag(word string) bool {
	name, rest, inner := strings.Cut(word, ".")
	f := t.byName[name]
	if f == nil || f.apart && !inner {
		return false
	}
	if !inner {
		return f.Type.kind == boolean
	}
	n := f.Type.nested()
	return n != nil && n.isFlagInside(rest)
}

// isFlagInside is IsFlag for a nested struct. A nested struct is written with dotted keys, also for fields that have no
// key elsewhere (Field.apart).
func (t *Type) isFlagInside(word string) bool {
	name, rest, inner := strings.Cut(word, ".")
	f := t.byName[name]
	if f == nil || !inner {
		return f != nil && f.Type.kind == boolean
	}
	n := f.Type.nested()
	return n != nil && n.isFlagInside(rest)
}

// AppendFields appends the fields that aren't in the head as ` key=value`, if they differ from those of prev. prev is
// the zero Value for a new value.
func (t *Type) AppendFields(dst []byte, v, prev Value, base time.Time) []byte {
	for _, f := range t.fields {
		if f.apart {
			continue
		}
		w := f.Of(v)
		if f.always == nil || !f.always(t.reflected(v).Addr().Interface()) {
			if f.Type.Equal(w, f.Of(prev)) {
				continue
			}
		}
		if same := t.aliasOf(f, v); same != nil && prev.p == nil {
			dst = append(append(append(dst, ' '), f.Name...), "=@"...)
			dst = append(dst, same.Name...)
			continue
		}
		dst = f.append(dst, nil, w, base)
	}
	if t.tail != nil {
		dst = t.appendTail(dst, t.tail.Of(v), base)
	}
	return dst
}

// aliasOf returns an earlier field that points to the same struct as f; nil if there is none.
func (t *Type) aliasOf(f *Field, v Value) *Field {
	if f.Type.kind != pointer || f.Type.elem.kind != structure {
		return nil
	}
	for _, g := range t.fields {
		if g == f {
			break
		}
		if g.Type == f.Type && !g.apart && g.Of(v).target() == f.Of(v).target() {
			return g
		}
	}
	return nil
}

func (t *Type) appendTail(dst []byte, v Value, base time.Time) []byte {
	s := v.str()
	if s == "" {
		return dst
	}
	if !terminal.Is(s) {
		return t.tail.append(dst, nil, v, base)
	}
	dst = append(dst, " ("...)
	dst = append(dst, s...)
	return append(dst, ')')
}

func (f *Field) append(dst []byte, up *key, v Value, base time.Time) []byte {
	k := key{up, f.Name}
	t := f.Type
	zero := t.Zero(v)
	if n := t.nested(); n != nil && !zero {
		if t.kind == pointer {
			v = v.target()
		}
		begin := len(dst)
		for _, g := range n.fields {
			if w := g.Of(v); !g.Type.Zero(w) {
				dst = g.append(dst, &k, w, base)
			}
		}
		if len(dst) > begin {
			return dst
		}
		return append(k.append(append(dst, ' ')), "={}"...)
	}
	dst = k.append(append(dst, ' '))
	if t.kind == boolean && !zero {
		return dst
	}
	dst = append(dst, '=')
	if f.hidden && !zero {
		return strconv.AppendQuote(dst, hidden)
	}
	if f.dropKey != "" && !zero {
		return t.appendMap(dst, v, f.dropKey)
	}
	return t.AppendWord(dst, v, base)
}

// AppendWord appends a value as one word.
func (t *Type) AppendWord(dst []byte, v Value, base time.Time) []byte {
	switch t.kind {
	case boolean:
		return strconv.AppendBool(dst, v.bool())
	case integer:
		return strconv.AppendInt(dst, t.int(v), 10)
	case unsigned:
		return strconv.AppendUint(dst, t.uint(v), 10)
	case duration:
		return append(dst, time.Duration(t.int(v)).String()...)
	case text:
		return AppendString(dst, v.str())
	case instant, metaTime:
		return AppendTime(dst, v.time(), base)
	}
	if t.Zero(v) {
		return append(dst, '-')
	}
	if t.kind == pointer && t.elem.flat() {
		return t.elem.appendPointed(dst, v.target(), base)
	}
	if t.kind == list && t.elem.flat() {
		dst = append(dst, '[')
		for i := range v.len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = t.elem.AppendWord(dst, t.item(v, i), base)
		}
		return append(dst, ']')
	}
	return t.AppendJSON(dst, v)
}

// appendPointed is AppendWord for the target of a pointer: a pointer to a zero time is written differently from a
// nil pointer.
func (t *Type) appendPointed(dst []byte, v Value, base time.Time) []byte {
	if (t.kind == instant || t.kind == metaTime) && v.time().IsZero() {
		return append(dst, "0001-01-01T00:00:00Z"...)
	}
	return t.AppendWord(dst, v, base)
}

// AppendTime appends a time relative to base, or as an absolute time if it is far from base; `-` for a zero time.
func AppendTime(dst []byte, t, base time.Time) []byte {
	if t.IsZero() {
		return append(dst, '-')
	}
	d := after(t, base)
	if d.Abs() > far {
		return t.UTC().AppendFormat(dst, time.RFC3339Nano)
	}
	if d >= 0 {
		dst = append(dst, '+')
	}
	return append(dst, d.String()...)
}

// Far reports whether AppendTime writes a time as an absolute time.
func Far(t, base time.Time) bool { return after(t, base).Abs() > far }

// after is the time from base to t on the wall clock. Round strips the monotonic readings.
func after(t, base time.Time) time.Duration { return t.Round(0).Sub(base.Round(0)) }

// AppendString appends a string, quoted unless it is a plain word.
func AppendString(dst []byte, s string) []byte {
	if plain(s) {
		return append(dst, s...)
	}
	return strconv.AppendQuote(dst, s)
}

// plain reports whether an unquoted string can't be mistaken for other syntax.
func plain(s string) bool {
	if s == "" || s == "-" {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '.', c == '/', c == ':', c == '-', c == '_', c == '@', c == '+', c == '%', c == '*':
		default:
			return false
		}
	}
	return true
}
