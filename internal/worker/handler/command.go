package handler

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// command is a command to run in a container. Messages show it without the values of variables, which are often
// secret, because messages go into events, status and the journal.
type command struct {
	// spec is the command of the pod's spec; args is the command to run, with references expanded.
	spec, args []string
	// values are the values of the referenced variables, by name.
	values map[string]string
}

// plain returns a command without references to variables.
func plain(cmd []string) command { return command{spec: cmd, args: cmd} }

// expand expands references to the container's variables in a probe's command. Only variables with a literal value
// are available here. Commands of hooks aren't expanded at all (kubernetes/kubernetes#42273, #129502).
func expand(cmd []string, c *v1.Container) (command, error) {
	if c == nil || !strings.Contains(strings.Join(cmd, ""), "$") {
		return plain(cmd), nil
	}
	out := command{spec: cmd, args: make([]string, len(cmd)), values: make(map[string]string)}
	lookup := func(name string) (string, bool) {
		for i := len(c.Env) - 1; i >= 0; i-- { // the last one of the same name counts
			if c.Env[i].Name != name {
				continue
			}
			if c.Env[i].ValueFrom != nil {
				return "", false
			}
			out.values[name] = c.Env[i].Value
			return c.Env[i].Value, true
		}
		return "", false
	}
	for i, arg := range cmd {
		var ok bool
		if out.args[i], ok = pod.Expand(arg, lookup); !ok {
			return command{}, fmt.Errorf(
				"argument %d of the probe's command is longer than Linux takes, with its references replaced: make "+
					"it shorter", i)
		}
	}
	return out, nil
}

// String returns the command as in the pod's spec, without the values of variables.
func (c command) String() string { return fmt.Sprintf("%q", strings.Join(c.spec, " ")) }

// conceal replaces expanded parts of the command in a runtime's message with those of the spec. The message may quote
// the command or a part of it.
func (c command) conceal(message string) string {
	swaps := make([]swap, 0, len(c.values)) // most commands refer to no variable
	for i, arg := range c.args {
		if arg != c.spec[i] {
			swaps = append(swaps, swapsFor(arg, c.spec[i])...)
		}
	}
	for name, value := range c.values {
		swaps = append(swaps, swapsFor(value, "$("+name+")")...)
	}
	// Longer strings come before their parts; the other keys make the order stable.
	slices.SortFunc(swaps, func(a, b swap) int {
		return cmp.Or(cmp.Compare(len(b.old), len(a.old)), cmp.Compare(a.old, b.old), cmp.Compare(a.by, b.by))
	})
	return replace(message, swaps)
}

// swap is a string to conceal, and its replacement.
type swap struct{ old, by string }

// unmistakable is the minimum length in bytes of strings that are concealed wherever they occur. A shorter string is
// concealed only if it is a word by itself: "a" occurs in nearly every text.
const unmistakable = 6

// swapsFor returns the swaps for a string as it is, quoted once and quoted twice: containerd quotes runc's errors,
// which contain quotes.
func swapsFor(old, by string) []swap {
	var swaps []swap
	for range 3 {
		if old == "" || len(swaps) > 0 && old == swaps[len(swaps)-1].old {
			break
		}
		swaps = append(swaps, swap{old, by})
		quoted := strconv.Quote(old)
		old = quoted[1 : len(quoted)-1]
	}
	return swaps
}

// replace goes through s once, so that replacements aren't replaced again. The first matching swap counts.
func replace(s string, swaps []swap) string {
	if len(swaps) == 0 {
		return s
	}
	var b strings.Builder
	for at := 0; at < len(s); {
		i := slices.IndexFunc(swaps, func(w swap) bool {
			return strings.HasPrefix(s[at:], w.old) && (len(w.old) >= unmistakable || alone(s, at, at+len(w.old)))
		})
		if i >= 0 {
			b.WriteString(swaps[i].by)
			at += len(swaps[i].old)
			continue
		}
		b.WriteByte(s[at])
		at++
	}
	return b.String()
}

// alone reports whether s[from:to] isn't part of a longer word.
func alone(s string, from, to int) bool {
	before, _ := utf8.DecodeLastRuneInString(s[:from])
	after, _ := utf8.DecodeRuneInString(s[to:])
	return !inWord(before) && !inWord(after)
}

func inWord(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_')
}
