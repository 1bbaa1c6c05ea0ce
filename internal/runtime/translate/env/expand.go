package env

import (
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Expand replaces $(NAME) by what lookup knows of NAME, as the API describes it
// for env, command and args: a reference that can't be resolved stays as it is,
// and $$ stands for a single $, so that $$(NAME) is never a reference.
func Expand(s string, lookup func(name string) (string, bool)) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			b.WriteString(s)
			return b.String()
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
				b.WriteString(s[i:])
				return b.String()
			}
			if v, ok := lookup(rest[1:end]); ok {
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

// Strings expands each of list with the environment env.
func Strings(list []string, env []*runtimeapi.KeyValue) []string {
	if len(list) == 0 {
		return nil
	}
	lookup := func(name string) (string, bool) {
		for _, kv := range env {
			if kv.GetKey() == name {
				return string(kv.GetValue()), true
			}
		}
		return "", false
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = Expand(s, lookup)
	}
	return out
}
