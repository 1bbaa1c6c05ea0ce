package document

import (
	"encoding/json"
	"fmt"
	"regexp"
	"unicode/utf8"
)

// notYAML matches all escapes of JSON, of which YAML doesn't know two ("\/", and
// characters beyond 16 bits in two halves), and the characters that JSON has as
// they are, but in YAML are not allowed or end a line.
var notYAML = regexp.MustCompile(`\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|.)|[\x{7f}-\x{9f}\x{2028}\x{2029}\x{feff}\x{fffe}\x{ffff}]`)

// fromJSON rewrites a JSON text, if data is one, so that it is YAML, which it
// nearly is. Lines stay as they are.
func fromJSON(data []byte) []byte {
	if !json.Valid(data) {
		return data
	}
	return notYAML.ReplaceAllFunc(data, func(found []byte) []byte {
		if found[0] != '\\' {
			r, _ := utf8.DecodeRune(found)
			return fmt.Appendf(nil, `\u%04x`, r)
		}
		var text string
		if string(found) != `\/` && len(found) == 2 || json.Unmarshal([]byte(`"`+string(found)+`"`), &text) != nil {
			return found
		}
		return []byte(text)
	})
}
