// Package plain makes text fit to be shown that containers, manifests or files from
// elsewhere may have written.
package plain

import (
	"strings"
	"unicode"
)

// Line returns text as one line, without what would steer a terminal.
func Line(text string) string {
	return strings.Join(strings.Fields(strings.Map(visible, text)), " ")
}

// Keep returns a line as it is spaced, without what would steer a terminal.
func Keep(line string) string {
	return strings.Map(visible, line)
}

func visible(r rune) rune {
	switch {
	case r == '\n' || r == '\t':
		return ' '
	case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
		return unicode.ReplacementChar
	}
	return r
}
