package reference

import "strings"

// nearest is the field, or the part of one, that a path most likely means: the same but
// for a few letters, or only the last part of it. It is empty if none comes close.
func nearest(all []Entry, path string) string {
	const longest = 128
	if len(path) > longest {
		return ""
	}
	// A third of the letters may be wrong, but no more than three.
	best, least := "", min(len(path)/3, 3)+1
	for _, e := range all {
		for name := range parts(e.Field.Path) {
			if d := distance(strings.ToLower(path), strings.ToLower(name)); d < least {
				best, least = e.Field.Path, d
				if strings.HasPrefix(e.Field.Path, name) {
					best = name
				}
			}
		}
	}
	return best
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

// distance is the Levenshtein distance: the fewest letters to add, remove or replace to
// make b from a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
