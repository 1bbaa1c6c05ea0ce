package yaml

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// phrase translates an error of the YAML parser for the author of the file.
type phrase struct {
	message, means string
	// line finds the line of the error; nil if the parser reports the right line.
	line func(e Error, lines []string) int
}

func phrases() []phrase {
	return []phrase{
		{"did not find expected key",
			"a name with a colon is expected here: is the line indented like those above it, and every quote above " +
				"it closed?", failing},
		{"did not find expected '-' indicator",
			`an item after "- " is expected here: is the line indented like those above it?`, failing},
		{"did not find expected ',' or ']'", `a list in brackets is missing its "]" or a comma`, oneOn},
		{"did not find expected ',' or '}'", `a mapping in braces is missing its "}" or a comma`, oneOn},
		{"did not find expected node content", "a value is expected here: is a bracket left open?", oneOn},
		{"did not find expected <document start>", "the document has ended before this line", oneOn},
		{"mapping values are not allowed in this context",
			`a name with a colon can't stand here: is the line indented like those above it, or is a string with ": " in it missing quotes?`, nil},
		{"could not find expected ':'",
			"a name and a value are expected here: put a colon after the name, and a space after the colon", nil},
		{"found unexpected end of stream", "a quoted string that begins here isn't closed", nil},
		{"found character that cannot start any token",
			"a value can't begin with this character: put it in quotes", nil},
		{"did not find expected alphabetic or numeric character",
			"a value can't begin with this character: put it in quotes", nil},
		{"found unknown escape character",
			"unknown escape after a backslash in double quotes: use single quotes, or two backslashes", nil},
		{"exceeded max depth", "it is nested too deeply", nil},
	}
}

// oneOn is the line of an error for a missing token. For such errors, the parser counts lines from 0; for invalid
// tokens it counts from 1.
func oneOn(e Error, _ []string) int { return e.Line + 1 }

// failing finds the line of an error that the parser reports with the line where the surrounding mapping or list
// begins. It returns the first line for which parsing the text up to this line fails with the same error. For a very
// long file, it returns the parser's line, because each step of the search parses most of the file.
func failing(e Error, lines []string) int {
	const longest = 2000
	if len(lines) > longest {
		return e.Line
	}
	return 1 + sort.Search(len(lines)-1, func(i int) bool {
		_, err := Parse([]byte(strings.Join(lines[:i+1], "\n")), 1, 2)
		return err != nil && err.Message == e.Message
	})
}

// tab is the error message for indentation with tabs.
const tab = "indented with a tab, which YAML doesn't allow: use spaces"

// unknownAnchor matches the parser's error for an alias that refers to no anchor. The alias's name in it may be the
// beginning of an unquoted secret.
var unknownAnchor = regexp.MustCompile(`unknown anchor '(.*)' referenced`)

// Explain returns an error of Parse for data with a clearer message and the right line. It quotes nothing of the
// data, which may be secret.
func Explain(e Error, data []byte) Error {
	lines := splitLines(data)
	if found := unknownAnchor.FindStringSubmatch(e.Message); found != nil {
		return Error{Line: lineWith(lines, "*"+found[1]),
			Message: `a value that begins with "*" stands for another, and there is none of that name: put it in quotes if it is meant as a string`}
	}
	if line, what := oddCharacter(lines); what != "" {
		return Error{Line: line, Message: "it is not plain text: there is " + what}
	}
	for _, p := range phrases() {
		if !strings.Contains(e.Message, p.message) {
			continue
		}
		if p.line != nil {
			e.Line = p.line(e, lines)
		}
		e.Line, e.Message = max(e.Line, 1), p.means // for the first line, the parser reports no line
		break
	}
	// If a tab is the cause, the parser sometimes reports the line before it.
	for line := max(e.Line, 1); line <= min(e.Line+1, len(lines)); line++ {
		if strings.ContainsRune(indentation(lines[line-1]), '\t') {
			return Error{Line: line, Message: tab}
		}
	}
	e.Line = min(e.Line, len(lines)) // an error at the end of the file may have the line after the last one
	return e
}

// splitLines splits data into lines as YAML does, without the empty line at the end.
func splitLines(data []byte) []string {
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029",
		"\n").Replace(string(bytes.TrimPrefix(data, []byte("\ufeff"))))
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

func lineWith(lines []string, text string) int {
	return 1 + max(0, slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, text) }))
}

func indentation(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " \t"))] }

// oddCharacter finds the first byte or character that plain text doesn't contain.
func oddCharacter(lines []string) (line int, what string) {
	for i, text := range lines {
		for at, r := range text {
			_, size := utf8.DecodeRuneInString(text[at:])
			switch {
			case r == utf8.RuneError && size == 1:
				return i + 1, fmt.Sprintf("a byte (0x%02x) that isn't UTF-8", text[at])
			case r != '\t' && unicode.IsControl(r):
				return i + 1, fmt.Sprintf("a control character (%U)", r)
			}
		}
	}
	return 0, ""
}
