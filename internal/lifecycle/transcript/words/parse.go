package words

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Split splits a line at its spaces, except inside quotes, brackets and the parentheses at its end.
func Split(line string) ([]string, error) {
	var out []string
	begin, depth, quoted := -1, 0, false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quoted:
			switch c {
			case '\\':
				i++
			case '"':
				quoted = false
			}
			continue
		case c == ' ' && depth == 0:
			if begin >= 0 {
				out = append(out, line[begin:i])
			}
			begin = -1
			continue
		case c == '(' && begin < 0:
			if !strings.HasSuffix(line, ")") {
				return nil, errors.New("a text in parentheses has to go on to the end of the line")
			}
			return append(out, line[i:]), nil
		case c == '"':
			quoted = true
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		}
		if begin < 0 {
			begin = i
		}
	}
	if quoted || depth != 0 {
		return nil, errors.New("a quote or bracket isn't closed")
	}
	if begin >= 0 {
		out = append(out, line[begin:])
	}
	return out, nil
}

// Unquote returns the string that a word stands for.
func Unquote(word string) (string, error) {
	if strings.HasPrefix(word, `"`) {
		s, err := strconv.Unquote(word)
		if err != nil {
			return "", fmt.Errorf("%s isn't a quoted text", word)
		}
		return s, nil
	}
	return word, nil
}

// ParseTime parses the output of AppendTime.
func ParseTime(word string, base time.Time) (time.Time, error) {
	if word == "-" {
		return time.Time{}, nil
	}
	if strings.HasPrefix(word, "+") || strings.HasPrefix(word, "-") {
		d, err := time.ParseDuration(word)
		if err != nil {
			return time.Time{}, fmt.Errorf("%q isn't a time like +1.5s", word)
		}
		return base.Add(d), nil
	}
	t, err := time.Parse(time.RFC3339Nano, word)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is neither a time like +1.5s nor one like 2026-01-31T12:00:00Z", word)
	}
	return t.UTC(), nil
}

// Set parses words of AppendHead and AppendFields into a struct. Fields that the words don't name keep their values.
func (t *Type) Set(v Value, list []string, base time.Time) error {
	return t.setWords(t.reflected(v), list, base)
}

func (t *Type) setWords(v reflect.Value, list []string, base time.Time) error {
	heads, begun := t.head, map[string]bool{}
	for _, word := range list {
		var err error
		name, value, keyed := strings.Cut(word, "=")
		switch {
		case strings.HasPrefix(word, "(") && t.tail != nil:
			t.tail.set(v).SetString(word[1 : len(word)-1])
		case strings.HasPrefix(word, `"`) || !keyed && !t.IsFlag(word):
			if len(heads) == 0 {
				return fmt.Errorf("%s: nothing of that name can be set here", word)
			}
			err = heads[0].Type.parse(heads[0].set(v), word, base)
			heads = heads[1:]
		default:
			if !keyed {
				value = "true"
			}
			err = t.setKey(v, name, value, base, begun)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
	}
	return nil
}

func (t *Type) setKey(v reflect.Value, name, value string, base time.Time, begun map[string]bool) error {
	name, rest, inner := strings.Cut(name, ".")
	f := t.byName[name]
	if f == nil {
		return fmt.Errorf("there is no field %s", name)
	}
	w := f.set(v)
	// The first key of a nested struct resets it, so that fields without a key are zero.
	if inner && begun != nil && !begun[name] {
		begun[name] = true
		w.SetZero()
	}
	if same := t.byName[strings.TrimPrefix(value, "@")]; !inner && strings.HasPrefix(value, "@") && same != nil &&
		same.Type == f.Type && f.Type.nested() != nil {
		w.Set(same.set(v))
		return nil
	}
	if !inner {
		return f.Type.parse(w, value, base)
	}
	n := f.Type.nested()
	if n == nil {
		return fmt.Errorf("%s has no fields", name)
	}
	if f.Type.kind == pointer {
		if w.IsNil() {
			w.Set(reflect.New(n.rt))
		}
		w = w.Elem()
	}
	return n.setKey(w, rest, value, base, nil)
}

// parse parses the output of AppendWord.
func (t *Type) parse(v reflect.Value, word string, base time.Time) error {
	switch t.kind {
	case text:
		s, err := Unquote(word)
		v.SetString(s)
		return err
	case instant, metaTime:
		at, err := ParseTime(word, base)
		if t.kind == metaTime {
			v = v.Field(0)
		}
		v.Set(reflect.ValueOf(at))
		return err
	case boolean, integer, unsigned, duration:
		return t.parseNumber(v, word)
	}
	if word == "-" {
		v.SetZero()
		return nil
	}
	if t.kind == pointer && t.elem.flat() {
		p := reflect.New(t.elem.rt)
		v.Set(p)
		return t.elem.parse(p.Elem(), word, base)
	}
	if t.kind == list && t.elem.flat() {
		return t.parseList(v, word, base)
	}
	v.SetZero()
	if err := json.Unmarshal([]byte(word), v.Addr().Interface()); err != nil {
		return fmt.Errorf("isn't the JSON of such a value: %w", err)
	}
	return nil
}

func (t *Type) parseNumber(v reflect.Value, word string) error {
	switch t.kind {
	case boolean:
		if word != "true" && word != "false" {
			return errors.New("has to be true or false")
		}
		v.SetBool(word == "true")
	case duration:
		d, err := time.ParseDuration(word)
		if err != nil {
			return errors.New("has to be a duration like 1.5s")
		}
		v.SetInt(int64(d))
	case integer:
		n, err := strconv.ParseInt(word, 10, t.rt.Bits())
		if err != nil {
			return errors.New("has to be an integer")
		}
		v.SetInt(n)
	case unsigned:
		n, err := strconv.ParseUint(word, 10, t.rt.Bits())
		if err != nil {
			return errors.New("has to be an integer and not negative")
		}
		v.SetUint(n)
	}
	return nil
}

func (t *Type) parseList(v reflect.Value, word string, base time.Time) error {
	inner, ok := strings.CutPrefix(word, "[")
	if !ok || !strings.HasSuffix(inner, "]") {
		return errors.New("has to be a list like [a,b]")
	}
	inner = inner[:len(inner)-1]
	v.SetZero()
	for i, quoted, begin := 0, false, 0; i <= len(inner); i++ {
		switch {
		case i < len(inner) && quoted && inner[i] == '\\':
			i++
		case i < len(inner) && inner[i] == '"':
			quoted = !quoted
		case i == len(inner) || inner[i] == ',' && !quoted:
			e := reflect.New(t.elem.rt).Elem()
			if err := t.elem.parse(e, inner[begin:i], base); err != nil {
				return err
			}
			v.Set(reflect.Append(v, e))
			begin = i + 1
		}
	}
	return nil
}
