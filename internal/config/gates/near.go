package gates

import "strings"

// nearest is the gate whose name is most like one that isn't a gate's; empty if none
// is like it.
func nearest(name string, all []Gate) string {
	const ofLetters = 5 // one in so many may be wrong
	if len(name) > 2*longest(all) {
		return ""
	}
	best, least := "", len(name)/ofLetters+1
	for i := range all {
		if d := distance(strings.ToLower(name), strings.ToLower(all[i].Name)); d < least {
			best, least = all[i].Name, d
		}
	}
	return best
}

func longest(all []Gate) int {
	n := 0
	for i := range all {
		n = max(n, len(all[i].Name))
	}
	return n
}

// distance is the fewest letters to add, remove or change to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
