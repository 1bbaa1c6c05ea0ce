package env

import (
	"fmt"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxText is how long Linux lets one argument or variable be, name and final NUL
// included (execve(2), MAX_ARG_STRLEN with pages of 4 KiB): what is longer can't be run.
const maxText = 128 << 10

const tooLong = "more than the 128 KiB that Linux takes, with its references replaced: make it shorter"

// Expand replaces $(NAME) by what lookup knows of NAME, as the API describes it
// for env, command and args: a reference that can't be resolved stays as it is,
// and $$ stands for a single $, so that $$(NAME) is never a reference.
//
// ok is false if the result is longer than Linux can take: references to
// references could grow without end otherwise.
func Expand(s string, lookup func(name string) (string, bool)) (expanded string, ok bool) {
	if len(s) >= maxText {
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
			return b.String(), b.Len() < maxText
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
				b.WriteString("$(") // which refers to nothing, and what follows may have a $$ yet
				s = rest[1:]
				continue
			}
			if v, ok := lookup(rest[1:end]); ok {
				if b.Len()+len(v) >= maxText {
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

// Strings expands each of list with the environment env. It fails if one becomes
// too long to be run, or all of them together.
func Strings(list []string, env []*runtimeapi.KeyValue) ([]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	var known map[string]string // made when it is needed: most commands refer to nothing
	lookup := func(name string) (string, bool) {
		if known == nil {
			known = make(map[string]string, len(env))
			for _, kv := range env {
				known[kv.GetKey()] = string(kv.GetValue())
			}
		}
		value, ok := known[name]
		return value, ok
	}
	out, size := make([]string, len(list)), 0
	for i, s := range list {
		var ok bool
		if out[i], ok = Expand(s, lookup); !ok {
			return nil, fmt.Errorf("item %d has %s", i+1, tooLong)
		}
		if size += len(out[i]) + len("\x00"); size > maxEnvironment {
			return nil, fmt.Errorf("item %d and those before it have more than the 6 MiB that Linux takes, with their references replaced: make them shorter", i+1)
		}
	}
	return out, nil
}
