package errtext_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/kit/errtext"
)

// many are n quoted strings.
func many(n int) (text string) {
	for i := range n {
		text += fmt.Sprintf(`"a %04d"`, i)
	}
	return text
}

// TestUnquoted: nothing is left of a string that is quoted, nor of its repetitions, and all else is.
func TestUnquoted(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "",
		"write /x: no space":                 "write /x: no space",
		`exec: "x": not found`:               `exec: "": not found`,
		`plugin "loop" of loop`:              `plugin "" of loop`,
		`exec: "/a b": stat /a b: not found`: `exec: "": stat : not found`,
		`exec: "/a \" b\n\\": stat /a " b` + "\n" + `\: none`:   `exec: "": stat : none`,
		`"a" and "b c" and "b c"`:                               `"" and "" and ""`,
		`an odd "quote`:                                         `an odd "quote`,
		`level=error msg="exec: \"a b\": stat a b: none" pid=1`: `level=error msg=exec: "": stat : none pid=1`,
		`exec: "/msg=\"a b\"": stat /msg="a b": not found`:      `exec: "": stat : not found`,
		"exec: \"\xff \\x\": an escape that is none":            `exec: "": an escape that is none`,
		strings.Repeat(`"a b"`, 1<<18) + "no space":             "",
		many(1<<10) + ": no space":                              "",
		strings.Repeat(`"a b"`, 1000) + ": no space":            strings.Repeat(`""`, 1000) + ": no space",
	} {
		if got := errtext.Unquoted(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
