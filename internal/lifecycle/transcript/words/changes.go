package words

import (
	"slices"
	"strconv"
	"time"
)

// gone begins the line of a value that is no longer there.
const gone = "gone"

// placeKey is the key for the index of a new list element that isn't the last.
const placeKey = "place="

// AppendChanges appends lines, each after lead, with the changes of one field of a struct since prev. A list gets a
// line per new or changed element. A struct, or a pointer to a struct, gets a line for itself, followed by the lines of
// its lists.
func (f *Field) AppendChanges(dst []byte, lead string, v, prev Value, base time.Time) []byte {
	t := f.Type
	n := t.nested()
	var old Value
	if t.kind == pointer && prev.p != nil {
		old = prev.target()
	}
	switch {
	case f.Line != "":
		return f.appendList(dst, lead, v, prev, base)
	case n == nil:
		if t.Equal(v, prev) {
			return dst
		}
		dst = append(appendKeyword(dst, lead, f.Name), ' ')
		return append(t.AppendWord(dst, v, base), '\n')
	case t.kind == structure:
		return n.appendStructChanges(dst, lead, f.Name, v, prev, false, base)
	case v.target() == old:
		return dst
	case v.target().p == nil:
		dst = append(appendKeyword(dst, lead, gone), ' ')
		return append(append(dst, f.Name...), '\n')
	}
	return n.appendStructChanges(dst, lead, f.Name, v.target(), old, old.p == nil, base)
}

func appendKeyword(dst []byte, lead, word string) []byte {
	return append(append(dst, lead...), word...)
}

func (t *Type) appendStructChanges(dst []byte, lead, name string, v, prev Value, fresh bool, base time.Time) []byte {
	mark := len(dst)
	dst = appendKeyword(dst, lead, name)
	empty := len(dst)
	dst = t.AppendFields(dst, v, prev, base)
	if len(dst) == empty && !fresh {
		dst = dst[:mark]
	} else {
		dst = append(dst, '\n')
	}
	for _, f := range t.fields {
		if f.Line != "" {
			dst = f.appendList(dst, lead, f.Of(v), f.Of(prev), base)
		}
	}
	return dst
}

// appendList writes the changes of a list. Elements are identified by their heads. If the elements that both lists have
// aren't in the same order, all elements are removed and written again.
func (f *Field) appendList(dst []byte, lead string, v, prev Value, base time.Time) []byte {
	if v.len() == prev.len() && (v.len() == 0 || v.first() == prev.first()) {
		return dst
	}
	e := f.Type.elem
	if f.Type.aligned(prev, v) {
		for i := range v.len() {
			if w, old := f.Type.item(v, i), f.Type.item(prev, i); !e.Equal(w, old) {
				dst = e.AppendHead(appendKeyword(dst, lead, f.Line), w, base)
				dst = append(e.AppendFields(dst, w, old, base), '\n')
			}
		}
		return dst
	}
	if !f.Type.ordered(prev, v) {
		for i := range prev.len() {
			dst = f.appendGone(dst, lead, f.Type.item(prev, i), base)
		}
		prev = Value{}
	}
	left := 0
	for i := range prev.len() {
		if f.Type.indexOf(v, f.Type.item(prev, i)) < 0 {
			dst = f.appendGone(dst, lead, f.Type.item(prev, i), base)
		} else {
			left++
		}
	}
	for i := range v.len() {
		w, old := f.Type.item(v, i), Value{}
		if at := f.Type.indexOf(prev, w); at >= 0 {
			if old = f.Type.item(prev, at); e.Equal(w, old) {
				continue
			}
		}
		dst = e.AppendHead(appendKeyword(dst, lead, f.Line), w, base)
		if old.p == nil {
			if i < left {
				dst = strconv.AppendInt(append(dst, " "+placeKey...), int64(i), 10)
			}
			left++
		}
		dst = append(e.AppendFields(dst, w, old, base), '\n')
	}
	return dst
}

// aligned reports whether two lists have elements with the same heads in the same order.
func (t *Type) aligned(a, b Value) bool {
	if a.len() != b.len() {
		return false
	}
	for i := range a.len() {
		if !t.elem.sameHead(t.item(a, i), t.item(b, i)) {
			return false
		}
	}
	return true
}

func (f *Field) appendGone(dst []byte, lead string, v Value, base time.Time) []byte {
	dst = append(appendKeyword(dst, lead, gone), ' ')
	dst = append(dst, f.Line...)
	return append(f.Type.elem.AppendHead(dst, v, base), '\n')
}

// sameHead reports whether two structs have equal head fields.
func (t *Type) sameHead(a, b Value) bool {
	for _, f := range t.head {
		if !f.Type.Equal(f.Of(a), f.Of(b)) {
			return false
		}
	}
	return true
}

// indexOf returns the index of the element with the same head as v in a list of t, or -1.
func (t *Type) indexOf(list, v Value) int {
	for i := range list.len() {
		if t.elem.sameHead(t.item(list, i), v) {
			return i
		}
	}
	return -1
}

// ordered reports whether the elements that both lists have are in the same order.
func (t *Type) ordered(a, b Value) bool {
	last := -1
	for i := range a.len() {
		switch at := t.indexOf(b, t.item(a, i)); {
		case at < 0:
		case at < last:
			return false
		default:
			last = at
		}
	}
	return true
}

// Unique reports whether all elements of the field have different heads, if the field is a list that is written as
// lines. For a struct it checks the lists inside. AppendChanges can't write values for which Unique is false.
func (f *Field) Unique(v Value) bool {
	if f.Line != "" {
		for i := range v.len() {
			if f.Type.indexOf(v, f.Type.item(v, i)) != i {
				return false
			}
		}
		return true
	}
	n := f.Type.nested()
	if n == nil || f.Type.kind == pointer && v.target().p == nil {
		return true
	}
	if f.Type.kind == pointer {
		v = v.target()
	}
	return !slices.ContainsFunc(n.fields, func(g *Field) bool { return g.Line != "" && !g.Unique(g.Of(v)) })
}
