package fields

import (
	"strings"

	"github.com/deckhand-node/deckhand/internal/kit/suggest"
)

// like returns the path of the field or struct that an invalid path most likely means: its path, or the end of its
// path, is the same except for a few letters. It returns "" if none is similar.
func like(all []Entry, path string) string {
	names := map[string]string{} // maps each name by which a user may call a field to the field's full path
	known := func(yield func(string) bool) {
		for _, e := range all {
			for name := range parts(e.Field.Path) {
				if _, ok := names[name]; ok {
					continue
				}
				names[name] = e.Field.Path
				if strings.HasPrefix(e.Field.Path, name) {
					names[name] = name
				}
				if !yield(name) {
					return
				}
			}
		}
	}
	// A third of the letters may differ, but at most three.
	return names[suggest.Of(path, known, min(len(path)/3, 3))]
}

// parts yields all names by which a user may call a field: its path, its parents ("logging.options", "logging"), and
// the path without its first, first two, ... parts.
func parts(path string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if !yield(path) {
			return
		}
		for i, r := range path {
			if r == '.' && (!yield(path[:i]) || !yield(path[i+1:])) {
				return
			}
		}
	}
}
