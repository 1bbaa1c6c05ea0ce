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

// command is what runs in a container, and how messages show it: the values of
// variables are often secret, and messages go into events, status and the journal.
type command struct {
	// spec is as the pod has it; args is what runs, with references replaced.
	spec, args []string
	// values are those of the variables that were referred to, by name.
	values map[string]string
}

// plain is a command without references.
func plain(cmd []string) command { return command{spec: cmd, args: cmd} }

// expand replaces references to the container's variables in a probe's command. Only
// those with a literal value are known here, and hooks have none replaced at all
// (kubernetes/kubernetes#42273, #129502).
func expand(cmd []string, c *v1.Container) (command, error) {
	if c == nil || !strings.Contains(strings.Join(cmd, ""), "$") {
		return plain(cmd), nil
	}
	out := command{spec: cmd, args: make([]string, len(cmd)), values: make(map[string]string)}
	lookup := func(name string) (string, bool) {
		for i := len(c.Env) - 1; i >= 0; i-- { // of two with a name the last one counts
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

// String is the command as the pod has it.
func (c command) String() string { return fmt.Sprintf("%q", strings.Join(c.spec, " ")) }

// conceal puts the pod's own words back into what a runtime says, which may quote
// the command that it was given, or a part of it.
func (c command) conceal(said string) string {
	swaps := make([]swap, 0, len(c.values)) // most commands have none
	for i, arg := range c.args {
		if arg != c.spec[i] {
			swaps = append(swaps, swapsFor(arg, c.spec[i])...)
		}
	}
	for name, value := range c.values {
		swaps = append(swaps, swapsFor(value, "$("+name+")")...)
	}
	// What is part of something longer comes after it; the rest is for a stable order.
	slices.SortFunc(swaps, func(a, b swap) int {
		return cmp.Or(cmp.Compare(len(b.old), len(a.old)), cmp.Compare(a.old, b.old), cmp.Compare(a.by, b.by))
	})
	return replace(said, swaps)
}

// swap is a text to be concealed, and what stands for it.
type swap struct{ old, by string }

// unmistakable is from how many bytes on a text is concealed wherever it is found.
// What is shorter has to stand by itself: an "a" would be found in every word.
const unmistakable = 6

// swapsFor are for a text as it is, and quoted once and twice: containerd quotes
// runc's errors, in which runc quotes.
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

// replace goes through s once, so that what was put in isn't replaced again. The
// first of swaps that fits counts.
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

// alone reports whether s[from:to] is no part of a longer word.
func alone(s string, from, to int) bool {
	before, _ := utf8.DecodeLastRuneInString(s[:from])
	after, _ := utf8.DecodeRuneInString(s[to:])
	return !inWord(before) && !inWord(after)
}

func inWord(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_')
}
