package words

import (
	"bytes"
	"reflect"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Value is the address of a value. Only this file uses unsafe pointers. They cost a tenth of reflection, which
// matters because every decision of every pod is compared with the previous one. The zero Value stands for a zero
// value.
type Value struct{ p unsafe.Pointer }

// At returns the Value of a pointer's target. It has to be used with the Type of T.
func At[T any](p *T) Value { return Value{unsafe.Pointer(p)} }

// Of returns the value of the field in the struct v.
func (f *Field) Of(v Value) Value {
	if v.p == nil {
		return Value{}
	}
	return Value{unsafe.Add(v.p, f.offset)}
}

func (v Value) str() string           { return *(*string)(v.p) }
func (v Value) bool() bool            { return *(*bool)(v.p) }
func (v Value) time() time.Time       { return *(*time.Time)(v.p) }
func (v Value) target() Value         { return Value{*(*unsafe.Pointer)(v.p)} }
func (v Value) header() []byte        { return *(*[]byte)(v.p) } // of any slice: only address and length are used
func (v Value) first() Value          { return Value{unsafe.Pointer(unsafe.SliceData(v.header()))} }
func (v Value) bits(n uintptr) []byte { return unsafe.Slice((*byte)(v.p), n) }

// len returns the length of the list v.
func (v Value) len() int {
	if v.p == nil {
		return 0
	}
	return len(v.header())
}

// item returns element i of the list v, a list of t.
func (t *Type) item(v Value, i int) Value {
	return Value{unsafe.Add(v.first().p, uintptr(i)*t.elem.size)}
}

// reflected returns the value for operations that need reflection.
func (t *Type) reflected(v Value) reflect.Value {
	if v.p == nil {
		return reflect.New(t.rt).Elem()
	}
	return reflect.NewAt(t.rt, v.p).Elem()
}

// located converts a reflect.Value to a Value, copying it if it isn't addressable.
func located(v reflect.Value) Value {
	if !v.CanAddr() {
		c := reflect.New(v.Type()).Elem()
		c.Set(v)
		v = c
	}
	return Value{v.Addr().UnsafePointer()}
}

func (t *Type) int(v Value) int64 {
	switch t.size {
	case 1:
		return int64(*(*int8)(v.p))
	case 2:
		return int64(*(*int16)(v.p))
	case 4:
		return int64(*(*int32)(v.p))
	}
	return *(*int64)(v.p)
}

func (t *Type) uint(v Value) uint64 {
	switch t.size {
	case 1:
		return uint64(*(*uint8)(v.p))
	case 2:
		return uint64(*(*uint16)(v.p))
	case 4:
		return uint64(*(*uint32)(v.p))
	}
	return *(*uint64)(v.p)
}

// Zero reports whether a value is zero, or an empty list or map, and needn't be written.
func (t *Type) Zero(v Value) bool {
	if v.p == nil {
		return true
	}
	switch t.kind {
	case instant, metaTime:
		return v.time().IsZero()
	case boolean:
		return !v.bool()
	case integer, duration:
		return t.int(v) == 0
	case unsigned:
		return t.uint(v) == 0
	case text:
		return v.str() == ""
	case pointer:
		return v.target().p == nil
	case list:
		return v.len() == 0
	case mapping:
		return v.target().p == nil || t.reflected(v).Len() == 0
	case structure:
		for _, f := range t.fields {
			if !f.Type.Zero(f.Of(v)) {
				return false
			}
		}
		return true
	}
	return t.reflected(v).IsZero()
}

// Equal compares two values by meaning: times as instants, quantities by amount, an empty list or map as equal to
// nil.
func (t *Type) Equal(a, b Value) bool {
	if a.p == b.p {
		return true
	}
	if a.p == nil || b.p == nil {
		return t.Zero(a) && t.Zero(b)
	}
	switch t.kind {
	case instant, metaTime:
		return a.time().Equal(b.time())
	case boolean, integer, duration, unsigned:
		return bytes.Equal(a.bits(t.size), b.bits(t.size))
	case text:
		return a.str() == b.str()
	case pointer:
		x, y := a.target(), b.target()
		return x == y || x.p != nil && y.p != nil && t.elem.Equal(x, y)
	case list:
		return t.equalLists(a, b)
	case mapping:
		return a.target() == b.target() || t.equalMaps(t.reflected(a), t.reflected(b))
	case structure:
		return bytes.Equal(a.bits(t.size), b.bits(t.size)) || t.equalFields(a, b)
	}
	return equalOther(t.reflected(a).Interface(), t.reflected(b).Interface())
}

func (t *Type) equalFields(a, b Value) bool {
	for _, f := range t.fields {
		if !f.Type.Equal(f.Of(a), f.Of(b)) {
			return false
		}
	}
	return true
}

func (t *Type) equalLists(a, b Value) bool {
	n := a.len()
	if n != b.len() {
		return false
	}
	if n == 0 || a.first() == b.first() {
		return true
	}
	for i := range n {
		if !t.elem.Equal(t.item(a, i), t.item(b, i)) {
			return false
		}
	}
	return true
}

func (t *Type) equalMaps(a, b reflect.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	for it := a.MapRange(); it.Next(); {
		v := b.MapIndex(it.Key())
		if !v.IsValid() || !t.elem.Equal(located(it.Value()), located(v)) {
			return false
		}
	}
	return true
}

func equalOther(a, b any) bool {
	if q, ok := a.(resource.Quantity); ok {
		return q.Cmp(b.(resource.Quantity)) == 0
	}
	return reflect.DeepEqual(a, b)
}
