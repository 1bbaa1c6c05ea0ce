package fields

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
)

// Entry is one field as the reference has it.
type Entry struct {
	Field Field
	Topic string
	// Type says in words what values it takes.
	Type string
	// Default is what holds where it isn't set, as a value or in words.
	Default string

	many bool // it is a list or a map
}

// Entries makes the reference. setDefaults fills in the documented defaults of an empty
// configuration.
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

// Select keeps the entries at or below the paths: "logging" is all of logging, an element
// of a list or map ("evictionHard[memory.available]") its field, and the beginning of paths
// ("imageGC") all that begin so. No paths are all entries. A path that is no field's is an error, with what may have
// been meant.
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

// beginning are the fields whose paths begin with what somebody remembers of them:
// "imageGC". Where it names a field, or a part of some, that is meant alone.
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
