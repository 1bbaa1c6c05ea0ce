package fields

import (
	"strings"

	"github.com/deckhand-node/deckhand/internal/kit/suggest"
)

// like is the field, or the part of one, that a path most likely means: the same but
// for a few letters, or only the last part of it. It is empty if none comes close.
func like(all []Entry, path string) string {
	names := map[string]string{} // what a name stands for
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
	// A third of the letters may be wrong, but no more than three.
	return names[suggest.Of(path, known, min(len(path)/3, 3))]
}

// parts calls a field by all that a person may have in mind: "logging.options",
// "logging", and the whole from its second part on, its third, ...
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
