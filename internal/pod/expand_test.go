package pod_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/pod"
)

func TestExpand(t *testing.T) {
	lookup := func(name string) (string, bool) {
		v, ok := map[string]string{"A": "1", "B": "$(A)", "EMPTY": "", "a.b-c": "dots"}[name]
		return v, ok
	}
	for in, want := range map[string]string{
		"plain":             "plain",
		"$(A)":              "1",
		"x$(A)y$(A)":        "x1y1",
		"$(B)":              "$(A)", // a value isn't expanded again
		"$(NONE)":           "$(NONE)",
		"$(EMPTY)":          "",
		"$$(A)":             "$(A)",
		"$$$(A)":            "$1",
		"$$$$(A)":           "$$(A)",
		"$A":                "$A",
		"$":                 "$",
		"a$":                "a$",
		"$$":                "$",
		"$(A":               "$(A",
		"$(":                "$(",
		"kill $(cat $$":     "kill $(cat $",
		"$($(A":             "$($(A",
		"$()":               "$()",
		"$(a.b-c)":          "dots",
		"$(NONE)$(A)":       "$(NONE)1",
		"$ (A)":             "$ (A)",
		"${A} `A` $(A) $$A": "${A} `A` 1 $A",
	} {
		if got, ok := pod.Expand(in, lookup); !ok || got != want {
			t.Errorf("Expand(%q) = %q, want %q", in, got, want)
		}
	}
}

// What has no reference that can be resolved, and no $$, comes out as it went in.
func TestExpandLeavesTheRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`([a-z$() ]{0,12})`).Draw(t, "text")
		got, _ := pod.Expand(s, func(string) (string, bool) { return "", false })
		if want := s; !strings.Contains(s, "$$") && got != want {
			t.Fatalf("%q became %q", s, got)
		}
		if again, _ := pod.Expand(strings.ReplaceAll(s, "$", "$$"), func(string) (string, bool) { return "never", true }); again != s {
			t.Fatalf("%q, escaped, became %q", s, again)
		}
	})
}
