package document

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/deckhand-node/deckhand/internal/config/paths"
)

// suggest offers the field of the struct v that name comes nearest to: one that
// differs in upper and lower case, or by one or two slips of the hand.
func suggest(v reflect.Value, name string) string {
	const most = 2
	best, least := "", most+1
	for f := range paths.Fields(v) {
		if slips := distance(strings.ToLower(f.Name), strings.ToLower(name), most); slips < least && slips*2 < len(name) {
			best, least = f.Name, slips
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// distance counts the slips that make a into b: a byte too many, too few or
// another, or two that changed places (optimal string alignment). It counts no
// further than to most+1.
func distance(a, b string, most int) int {
	if max(len(a)-len(b), len(b)-len(a)) > most {
		return most + 1
	}
	// The rows of the table for the bytes of a: two before, before, and now.
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
