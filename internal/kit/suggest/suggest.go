// Package suggest finds the valid name that a user most likely meant by a misspelt name, for "did you mean ...?". It is
// pure.
package suggest

import (
	"iter"
	"strings"
)

// Of returns the valid name from which name differs by the fewest typing errors; most is the largest number allowed.
// If there are several, it returns the first; if there is none, an empty string. Case is ignored. It is fast even if
// name is very long.
func Of(name string, known iter.Seq[string], most int) string {
	name = strings.ToLower(name)
	best, least := "", most+1
	for k := range known {
		if n := slips(name, strings.ToLower(k), least-1); n < least {
			best, least = k, n
		}
	}
	return best
}

// slips counts the typing errors between a and b: an extra, missing or different byte, or two bytes swapped (optimal
// string alignment). It stops counting at most+1.
func slips(a, b string, most int) int {
	if max(len(a)-len(b), len(b)-len(a)) > most {
		return most + 1
	}
	// The last three rows of the table for the bytes of a; row is the current one.
	var older, old []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		older, old, row = old, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := old[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, old[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], older[j-1]+1)
			}
		}
	}
	return min(row[len(b)], most+1)
}
