package show

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
)

const (
	jsonPath      = "jsonpath="
	customColumns = "custom-columns="
)

// query is a format that selects fields: kubectl's jsonpath=TEMPLATE and custom-columns=SPEC. go-template isn't
// supported, because text/template finds methods by name, so that the linker would have to keep every method of every
// type (test/packaging, TestUnusedMethodsAreLeftOut).
type query struct {
	// template is the jsonpath template; nil for columns.
	template *jsonpath.JSONPath
	heading  []string
	columns  []*jsonpath.JSONPath
}

// CheckPath returns an error if the path of a field is invalid.
func CheckPath(path string) error {
	_, err := parsePath(path)
	return err
}

// CheckFormat returns an error if a format that selects fields is invalid.
func CheckFormat(format string) error {
	_, _, err := parseQuery(format)
	return err
}

// parseQuery returns false for formats that select no fields.
func parseQuery(format string) (*query, bool, error) {
	if text, ok := strings.CutPrefix(format, jsonPath); ok {
		template, err := parsePath(text)
		return &query{template: template}, true, err
	}
	text, ok := strings.CutPrefix(format, customColumns)
	if !ok {
		return nil, false, nil
	}
	q := &query{}
	for part := range strings.SplitSeq(text, ",") {
		name, path, found := strings.Cut(part, ":")
		if !found || name == "" || path == "" {
			return nil, true, fmt.Errorf(
				"custom-columns are written as NAME:PATH,NAME:PATH, such as POD:.metadata.name, not %q", part)
		}
		column, err := parsePath(path)
		if err != nil {
			return nil, true, err
		}
		q.heading, q.columns = append(q.heading, name), append(q.columns, column)
	}
	return q, true, nil
}

// parsePath parses a template, or a path without braces.
func parsePath(text string) (*jsonpath.JSONPath, error) {
	if !strings.Contains(text, "{") {
		text = "{." + strings.TrimPrefix(text, ".") + "}"
	}
	path := jsonpath.New("path").AllowMissingKeys(true)
	if err := path.Parse(text); err != nil {
		return nil, fmt.Errorf("path %q: %w", text, err)
	}
	return path, nil
}

// data returns a value as decoded JSON. Integers are decoded as integers, not as floating-point numbers.
func data(value any) (any, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var result any
	err = json.Unmarshal(text, &result)
	return result, err
}

func (q *query) write(w io.Writer, value any) error {
	fields, err := data(value)
	if err != nil {
		return err
	}
	if q.template != nil {
		var text bytes.Buffer // so that an error leaves no partial output
		if err := q.template.Execute(&text, fields); err != nil {
			return err
		}
		_, err := w.Write(text.Bytes())
		return err
	}
	items := []any{fields}
	if object, ok := fields.(map[string]any); ok {
		if list, ok := object["items"].([]any); ok {
			items = list
		}
	}
	var rows [][]string
	if q.heading != nil {
		rows = append(rows, slices.Clone(q.heading))
	}
	for _, item := range items {
		row := make([]string, len(q.columns))
		for i, column := range q.columns {
			found, err := pick(column, item)
			if err != nil {
				return err
			}
			var texts []string
			for _, v := range found {
				texts = append(texts, fmt.Sprint(v.Interface()))
			}
			row[i] = orNone(strings.Join(texts, ","))
		}
		rows = append(rows, row)
	}
	return new(Table).Write(w, rows...)
}

// pick returns the values at a path, without nulls.
func pick(path *jsonpath.JSONPath, item any) ([]reflect.Value, error) {
	results, err := path.FindResults(item)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Concat(results...), func(v reflect.Value) bool {
		return !v.IsValid() || !v.CanInterface() || v.Interface() == nil
	}), nil
}

// sortBy sorts items by the value at a path: numbers numerically, others as strings, and items without a value first.
func sortBy[T any](items []T, path string, object func(T) any) error {
	parsed, err := parsePath(path)
	if err != nil {
		return err
	}
	type keyed struct {
		key  any
		item T
	}
	keys, anything := make([]keyed, len(items)), false
	for i, item := range items {
		keys[i].item = item
		fields, err := data(object(item))
		if err != nil {
			return err
		}
		found, err := pick(parsed, fields)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			keys[i].key, anything = found[0].Interface(), true
		}
	}
	if !anything && len(items) > 0 {
		return errors.New("--sort-by: nothing has a field " + path)
	}
	slices.SortStableFunc(keys, func(a, b keyed) int { return compare(a.key, b.key) })
	for i := range keys {
		items[i] = keys[i].item
	}
	return nil
}

func compare(a, b any) int {
	x, xIsNumber := number(a)
	y, yIsNumber := number(b)
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	case xIsNumber && yIsNumber && x != y:
		return cmp.Compare(x, y)
	}
	return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}
