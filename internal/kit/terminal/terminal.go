// Package terminal makes text from containers, manifests, runtimes and files safe to display: the result contains no
// characters that control the terminal or change the writing direction. It is pure.
package terminal

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns text as one line, without control characters that steer a terminal.
func Line(text string) string {
	return strings.Join(strings.Fields(Keep(text)), " ")
}

// Keep returns a line with its spacing. It replaces control characters that steer a terminal by U+FFFD, and line
// breaks and tabs by a space.
func Keep(line string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case steers(r):
			return unicode.ReplacementChar
		}
		return r
	}, line)
}

// Is reports whether a text is one line that Keep would not change.
func Is(text string) bool { return is(text, false) }

// IsBlock is Is for a text that may have line breaks and tabs.
func IsBlock(text string) bool { return is(text, true) }

func is(text string, block bool) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case c >= utf8.RuneSelf:
			return isWide(text[i:], block)
		case block && (c == '\n' || c == '\t'):
		case c < ' ', c == 0x7f:
			return false
		}
	}
	return true
}

// isWide does the same check by runes, which is slower, for text that isn't ASCII.
func isWide(text string, block bool) bool {
	for i, r := range text {
		switch {
		case block && (r == '\n' || r == '\t'):
		case steers(r):
			return false
		case r == utf8.RuneError:
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return false // an invalid byte: some terminals treat it as a control character
			}
		}
	}
	return true
}

// steers reports whether a terminal would obey a character instead of showing it.
func steers(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// Writer removes control characters that steer a terminal from text, except line breaks and tabs. It isn't safe for
// concurrent use.
type Writer struct {
	w io.Writer
	// rest is the beginning of an incomplete character.
	rest []byte
}

// NewWriter returns a Writer that writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write accepts all of b. If the text ends within a character, the incomplete character is buffered.
func (p *Writer) Write(b []byte) (int, error) {
	text := append(p.rest, b...)
	whole := len(text)
	for i := len(text) - 1; i >= max(0, len(text)-utf8.UTFMax+1); i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				whole = i
			}
			break
		}
	}
	_, err := io.WriteString(p.w, strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && steers(r) {
			return unicode.ReplacementChar
		}
		return r
	}, string(text[:whole])))
	p.rest = append([]byte(nil), text[whole:]...)
	return len(b), err
}
