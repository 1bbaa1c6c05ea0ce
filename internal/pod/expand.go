package pod

import "strings"

// MaxText is the size limit in bytes of an argument or an environment variable in Linux (execve(2), MAX_ARG_STRLEN
// with pages of 4 KiB). The size of a variable includes its name; both include the final NUL. A command with a
// longer argument or variable can't be executed.
const MaxText = 128 << 10

// Expand replaces $(NAME) by the value that lookup returns for NAME, as the API describes it for env, command, args and
// subPathExpr: a reference that can't be resolved stays as it is, and $$ stands for a single $, so that $$(NAME) is
// never a reference.
//
// ok is false if the result is as long as MaxText or longer. Without this limit, the values of variables that refer
// to other variables could grow exponentially.
func Expand(s string, lookup func(name string) (string, bool)) (expanded string, ok bool) {
	if len(s) >= MaxText {
		return "", false
	}
	if !strings.Contains(s, "$") {
		return s, true
	}
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			b.WriteString(s)
			return b.String(), b.Len() < MaxText
		}
		b.WriteString(s[:i])
		rest := s[i+1:]
		switch rest[0] {
		case '$':
			b.WriteByte('$')
			s = rest[1:]
		case '(':
			end := strings.IndexByte(rest, ')')
			if end < 0 {
				b.WriteString("$(") // an unterminated reference is literal; a $$ may follow
				s = rest[1:]
				continue
			}
			if v, ok := lookup(rest[1:end]); ok {
				if b.Len()+len(v) >= MaxText {
					return "", false
				}
				b.WriteString(v)
			} else {
				b.WriteString(s[i : i+1+end+1])
			}
			s = rest[end+1:]
		default:
			b.WriteByte('$')
			s = rest
		}
	}
}
