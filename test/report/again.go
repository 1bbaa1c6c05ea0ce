package main

import (
	"maps"
	"slices"
	"strings"
)

// mostAgain is how many tests may fail by chance.
const mostAgain = 5

// part is some tests of a package.
type part struct {
	path string
	// tests is the expression that -run takes.
	tests string
}

// again is what to run once more: the tests that failed, if they are few and none of them met
// more than its own check: a data race, a panic, a time-out, a failed build and a skipped test are no chance.
func (t *tally) again() []part {
	failed := map[string]map[string]bool{}
	count := 0
	for _, p := range t.bad {
		if p.test == "" && t.badTests[p.pkg] > 0 && !slices.ContainsFunc(p.output, isGrave) {
			continue // its tests' end is the package's
		}
		if p.test == "" || !strings.HasPrefix(p.what, "FAIL ") || strings.HasSuffix(p.what, neverEnded) || slices.ContainsFunc(p.output, isGrave) {
			return nil
		}
		name, _, _ := strings.Cut(p.test, "/")
		if failed[p.pkg] == nil {
			failed[p.pkg] = map[string]bool{}
		}
		if !failed[p.pkg][name] {
			failed[p.pkg][name] = true
			count++
		}
	}
	if count > mostAgain {
		return nil
	}
	var parts []part
	for _, pkg := range slices.Sorted(maps.Keys(failed)) {
		parts = append(parts, part{pkg, "^(" + strings.Join(slices.Sorted(maps.Keys(failed[pkg])), "|") + ")$"})
	}
	return parts
}

func isGrave(line string) bool {
	return strings.Contains(line, "WARNING: DATA RACE") || strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
}
