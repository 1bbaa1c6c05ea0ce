package main

import (
	"fmt"
	"regexp"
	"strings"
)

const (
	// ours begins the names of all functions of this program.
	ours = "github.com/deckhand-node/deckhand/"
	// shownLines is how many lines of one goroutine's stack are shown, shownGoroutines of
	// how many goroutines.
	shownLines, shownGoroutines = 24, 40
)

var goroutine = regexp.MustCompile(`^goroutine \d+ .*\[.*\]:$`)

// shorten leaves of a dump of all goroutines, as a panic and a timeout leave it, what may say
// why: the stacks that go through this program, without their ends. The first one, which
// is the panic's own, stays as well. Anything else stays as it is.
func shorten(output []string) []string {
	var kept []string
	stacks, shown, left := 0, 0, 0
	lines := 0 // of this stack, while in one
	in, drop := false, false
	for i, line := range output {
		switch text := strings.TrimSpace(line); {
		case goroutine.MatchString(text):
			in, lines = true, 0
			drop = stacks > 0 && (shown >= shownGoroutines || !throughUs(output[i+1:]))
			stacks++
			if drop {
				left++
			} else {
				shown++
			}
		case in && text == "":
			in = false
			if drop {
				continue // with the empty line after it
			}
		}
		if !in {
			kept = append(kept, line)
			continue
		}
		if lines++; !drop && lines <= shownLines {
			kept = append(kept, line)
		}
	}
	if left > 0 {
		kept = append(kept, fmt.Sprintf("(and %d more goroutines)\n", left))
	}
	return kept
}

// throughUs reports whether the stack at the beginning of lines has a function of this program.
func throughUs(lines []string) bool {
	for _, line := range lines {
		if strings.TrimSpace(line) == "" {
			return false
		}
		if strings.HasPrefix(line, ours) {
			return true
		}
	}
	return false
}
