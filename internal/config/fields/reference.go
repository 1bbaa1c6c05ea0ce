package fields

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
)

// Entry is one field in the reference.
type Entry struct {
	Field Field
	Topic string
	// Type describes the field's values.
	Type string
	// Default is the default, as a value or as a description.
	Default string

	many bool // the field is a list or a map
}

// Entries returns an entry for each field. setDefaults sets the documented defaults in an empty configuration.
func Entries(setDefaults func(*v1beta1.KubeletConfiguration)) []Entry {
	var c v1beta1.KubeletConfiguration
	setDefaults(&c)
	byPath := map[string]leaf{}
	for _, l := range leavesOf(&c) {
		byPath[l.Path] = l
	}
	var all []Entry
	for _, t := range Topics() {
		for _, f := range t.Fields {
			l := byPath[f.Path]
			e := Entry{Field: f, Topic: t.Name, Type: kindOf(l.Type), Default: f.Default}
			e.many = l.Type.Kind() == reflect.Map || l.Type.Kind() == reflect.Slice
			if l.Value.IsValid() && e.Default == "" {
				e.Default = valueText(l.Value)
			}
			e.Default = cmp.Or(e.Default, "none")
			all = append(all, e)
		}
	}
	return all
}

// Select returns the entries at or below the paths: "logging" selects all fields of logging, an element of a list or
// map ("evictionHard[memory.available]") its field, and a prefix ("imageGC") all fields with that prefix. No paths
// select all entries. A path without a field is an error, with a suggestion.
func Select(all []Entry, paths ...string) ([]Entry, error) {
	if len(paths) == 0 {
		return all, nil
	}
	var wanted []Entry
	taken := map[string]bool{}
	for _, path := range paths {
		found := at(all, path)
		if len(found) == 0 {
			found = beginning(all, path)
		}
		if len(found) == 0 {
			return nil, unknown(all, path)
		}
		for _, e := range found {
			if !taken[e.Field.Path] {
				taken[e.Field.Path] = true
				wanted = append(wanted, e)
			}
		}
	}
	return wanted, nil
}

func at(all []Entry, path string) []Entry {
	var found []Entry
	for _, e := range all {
		p := e.Field.Path
		inside := e.many && (strings.HasPrefix(path, p+"[") || strings.HasPrefix(path, p+"."))
		if p == path || strings.HasPrefix(p, path+".") || inside {
			found = append(found, e)
		}
	}
	return found
}

// beginning returns the fields whose paths begin with text, such as "imageGC". Select calls it only if no field has the
// path text.
func beginning(all []Entry, text string) []Entry {
	var found []Entry
	for _, e := range all {
		if text != "" && strings.HasPrefix(e.Field.Path, text) {
			found = append(found, e)
		}
	}
	return found
}

func unknown(all []Entry, path string) error {
	if meant := like(all, path); meant != "" {
		return fmt.Errorf("there is no field %q; did you mean %s?", path, meant)
	}
	return fmt.Errorf("there is no field %q; without a path all fields are listed", path)
}
