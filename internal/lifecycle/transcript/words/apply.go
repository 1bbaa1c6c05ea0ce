package words

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Apply applies a line of AppendChanges, split into words and without lead, to a struct. Targets of pointers aren't
// changed but replaced.
func (t *Type) Apply(at Value, line []string, base time.Time) error {
	v := t.reflected(at)
	if len(line) == 0 {
		return errors.New("an empty line says nothing")
	}
	if line[0] == gone {
		if len(line) < 2 {
			return errors.New("gone says nothing without what is gone")
		}
		return t.apply(v, line[1], line[2:], true, base)
	}
	return t.apply(v, line[0], line[1:], false, base)
}

func (t *Type) apply(v reflect.Value, what string, rest []string, gone bool, base time.Time) error {
	for _, f := range t.fields {
		if f.Line == what {
			return f.applyToList(f.set(v), rest, gone, base)
		}
		if f.Line == "" && (f.Name == what || f.older == what) {
			return f.applyToField(f.set(v), rest, gone, base)
		}
	}
	for _, f := range t.fields {
		if n := f.Type.nested(); n != nil && f.Type.kind == pointer && n.hasLine(what) {
			f.renew(f.set(v))
			return n.apply(f.set(v).Elem(), what, rest, gone, base)
		}
	}
	return fmt.Errorf("nothing is known of %q", what)
}

func (t *Type) hasLine(what string) bool {
	return slices.ContainsFunc(t.fields, func(f *Field) bool { return f.Line == what })
}

// renew replaces a pointer's target with a copy of it, or with a new value.
func (f *Field) renew(v reflect.Value) {
	p := reflect.New(f.Type.elem.rt)
	if !v.IsNil() {
		p.Elem().Set(v.Elem())
	}
	v.Set(p)
}

func (f *Field) applyToField(v reflect.Value, rest []string, gone bool, base time.Time) error {
	n := f.Type.nested()
	switch {
	case gone:
		v.SetZero()
		return nil
	case n == nil:
		if len(rest) != 1 {
			return fmt.Errorf("%s has one value", f.Name)
		}
		return f.Type.parse(v, rest[0], base)
	case f.Type.kind == pointer:
		f.renew(v)
		v = v.Elem()
	}
	return n.setWords(v, rest, base)
}

func (f *Field) applyToList(v reflect.Value, rest []string, gone bool, base time.Time) error {
	t := f.Type.elem
	heads := min(len(t.head), len(rest))
	for i := range heads {
		if word := rest[i]; word[0] != '"' && (t.IsFlag(word) || slices.Contains([]byte(word), '=')) {
			heads = i
			break
		}
	}
	e := reflect.New(t.rt).Elem()
	if err := t.setWords(e, rest[:heads], base); err != nil {
		return err
	}
	rest = rest[heads:]
	old := f.Type.indexOf(located(v), located(e))
	place := v.Len()
	if len(rest) > 0 && old < 0 {
		if word, ok := strings.CutPrefix(rest[0], placeKey); ok {
			n, err := strconv.Atoi(word)
			if err != nil || n < 0 || n > place {
				return fmt.Errorf("%s has to be a number from 0 to %d", rest[0], place)
			}
			place, rest = n, rest[1:]
		}
	}
	fresh := reflect.MakeSlice(v.Type(), 0, v.Len()+1)
	switch {
	case gone && old < 0:
		return fmt.Errorf("there was no such %s", f.Line)
	case gone:
		fresh = reflect.AppendSlice(reflect.AppendSlice(fresh, v.Slice(0, old)), v.Slice(old+1, v.Len()))
	case old >= 0:
		fresh = reflect.AppendSlice(fresh, v)
		e = fresh.Index(old)
	default:
		fresh = reflect.AppendSlice(fresh, v.Slice(0, place))
		fresh = reflect.Append(fresh, e)
		fresh = reflect.AppendSlice(fresh, v.Slice(place, v.Len()))
		e = fresh.Index(place)
	}
	v.Set(fresh)
	if gone {
		return nil
	}
	return t.setWords(e, rest, base)
}
