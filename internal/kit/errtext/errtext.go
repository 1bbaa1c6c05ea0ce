// Package errtext reads the texts of errors. They are all that there is of the errors of other programs, such as the
// container runtime.
package errtext

import (
	"regexp"
	"strconv"
	"strings"
)

// quoted matches a string that Go's %q has formatted, and the message of a line of a log (logfmt).
var quoted = regexp.MustCompile(`(\bmsg=)?"(?:[^"\\]|\\.)*"`)

// A text of more than longest bytes, or with more than mostQuoted different strings, has no unquoted part: a pod may
// have chosen it, and reading it would take long.
const longest, mostQuoted = 16 << 10, 16

// Unquoted returns the text of an error without the strings that it quotes. These may come from pods: runc quotes the
// command that it can't start, and repeats its path: `exec: "/a b": stat /a b: no such file or directory`. Such
// repetitions are removed, too, unless the string is a single word. A message that was logged is kept, without the
// strings that it quotes itself: runc's errors may arrive as lines of its log.
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
