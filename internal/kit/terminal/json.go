package terminal

import (
	"strconv"
	"unicode/utf8"
)

// JSON returns a JSON text in which characters that steer a terminal are written as escape sequences. Its meaning is
// the same. If there are no such characters, it returns the slice text itself.
func JSON(text []byte) []byte {
	var out []byte
	done := 0
	for i := 0; i < len(text); {
		if c := text[i]; c < utf8.RuneSelf && c != 0x7f { // JSON has no unescaped control in strings
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		if steers(r) || r == utf8.RuneError && size == 1 {
			out = append(out, text[done:i]...)
			out = append(out, `\u`...)
			// The code points of all these characters have at most four hexadecimal digits.
			hex := strconv.FormatInt(0x10000|int64(r), 16)
			out = append(out, hex[1:]...)
			done = i + size
		}
		i += size
	}
	if out == nil {
		return text
	}
	return append(out, text[done:]...)
}
