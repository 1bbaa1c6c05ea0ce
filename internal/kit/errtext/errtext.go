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

// Unquoted returns the text of an error without the strings that it quotes. These may come from pods: runc quotes the
// command that it can't start, and repeats its path: `exec: "/a b": stat /a b: no such file or directory`. Such
// repetitions are removed, too, unless the string is a single word. A message that was logged is kept, without the
// strings that it quotes itself: runc's errors may arrive as lines of its log.
func Unquoted(text string) string {
	for _, q := range quoted.FindAllString(text, -1) {
		inner, logged := strings.CutPrefix(q, "msg=")
		s, err := strconv.Unquote(inner)
		if err == nil && logged {
			text = strings.ReplaceAll(text, q, "msg="+Unquoted(s))
			continue
		}
		text = strings.ReplaceAll(text, q, `""`)
		if err == nil && strings.Contains(s, " ") {
			text = strings.ReplaceAll(text, s, "")
		}
	}
	return text
}
