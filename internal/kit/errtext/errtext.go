// Package errtext reads the texts of errors. Errors of other programs, such as the container runtime, arrive as texts
// only.
package errtext

import (
	"regexp"
	"strconv"
	"strings"
)

// quoted matches a string that Go's %q has formatted. If the string is the message of a log line in the logfmt format,
// it also matches the key msg before it.
var quoted = regexp.MustCompile(`(\bmsg=)?"(?:[^"\\]|\\.)*"`)

// longest and mostQuoted limit the texts that Unquoted reads: a text of more than longest bytes, or with more than
// mostQuoted different quoted strings, counts as quoted completely. A pod may have chosen such a text, and reading it
// would take long.
const longest, mostQuoted = 16 << 10, 16

// Unquoted returns the text of an error without the strings that it quotes. The quoted strings may come from pods: runc
// quotes the command that it can't start, and repeats its path: `exec: "/a b": stat /a b: no such file or directory`.
// Such repetitions are removed, too, unless the string is a single word. runc's errors may arrive as lines of its log;
// then the logged message stays, without the strings that the message itself quotes.
func Unquoted(text string) string {
	if len(text) > longest {
		return ""
	}
	var out strings.Builder
	var repeated []string
	for {
		at := quoted.FindStringIndex(text)
		if at == nil {
			break
		}
		out.WriteString(text[:at[0]])
		inner, logged := strings.CutPrefix(text[at[0]:at[1]], "msg=")
		text = text[at[1]:]
		s, err := strconv.Unquote(inner)
		if err == nil && logged {
			out.WriteString("msg=" + Unquoted(s))
			continue
		}
		out.WriteString(`""`)
		if err != nil || !strings.Contains(s, " ") {
			continue
		}
		if repeated = append(repeated, s); len(repeated) > mostQuoted {
			return ""
		}
		text = strings.ReplaceAll(text, s, "")
	}
	all := out.String() + text
	for _, s := range repeated {
		all = strings.ReplaceAll(all, s, "")
	}
	return all
}
