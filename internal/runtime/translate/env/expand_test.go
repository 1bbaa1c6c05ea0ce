package env_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/runtime/translate/env"
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
		if got, ok := env.Expand(in, lookup); !ok || got != want {
			t.Errorf("Expand(%q) = %q, want %q", in, got, want)
		}
	}
}

// What has no reference that can be resolved, and no $$, comes out as it went in.
func TestExpandLeavesTheRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`([a-z$() ]{0,12})`).Draw(t, "text")
		got, _ := env.Expand(s, func(string) (string, bool) { return "", false })
		if want := s; !strings.Contains(s, "$$") && got != want {
			t.Fatalf("%q became %q", s, got)
		}
		if again, _ := env.Expand(strings.ReplaceAll(s, "$", "$$"), func(string) (string, bool) { return "never", true }); again != s {
			t.Fatalf("%q, escaped, became %q", s, again)
		}
	})
}

// References to references double with each variable: what comes of it mustn't take the agent's memory.
func TestExpansionIsBounded(t *testing.T) {
	c := &v1.Container{Name: "m", Env: []v1.EnvVar{{Name: "V0", Value: "ha"}}}
	for i := range 60 {
		c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprintf("V%d", i+1), Value: fmt.Sprintf("$(V%d)$(V%d)", i, i)})
	}
	_, _, err := env.Resolve(t.Context(), &v1.Pod{}, c, env.Facts{}, none())
	var problem *env.Error
	if !errors.As(err, &problem) || problem.Where != "environment variable V16" || !strings.Contains(err.Error(), "128 KiB") {
		t.Errorf("unexpected error: %v", err)
	}
	c.Env = c.Env[:15]
	vars, _, err := env.Resolve(t.Context(), &v1.Pod{}, c, env.Facts{}, none())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := env.Strings([]string{"echo", strings.Repeat("$(V14)", 1000)}, vars); err == nil || !strings.Contains(err.Error(), "item 2") {
		t.Errorf("unexpected error: %v", err)
	}
}

// Many that are each short enough are too long together.
func TestTheWholeIsBounded(t *testing.T) {
	half := strings.Repeat("x", 64<<10)
	c := &v1.Container{Name: "m", Env: []v1.EnvVar{{Name: "V", Value: half}}}
	for i := range 94 {
		c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprintf("V%d", i), Value: "$(V)"})
	}
	for range 100 { // these take no more room than the one
		c.Env = append(c.Env, v1.EnvVar{Name: "V", Value: half})
	}
	if _, _, err := env.Resolve(t.Context(), &v1.Pod{}, c, env.Facts{}, none()); err != nil {
		t.Fatal(err)
	}
	c.Env = append(c.Env, v1.EnvVar{Name: "LAST", Value: "$(V)"})
	if _, _, err := env.Resolve(t.Context(), &v1.Pod{}, c, env.Facts{}, none()); err == nil || !strings.Contains(err.Error(), "environment variable LAST: with it the environment has more than the 6 MiB") {
		t.Errorf("unexpected error: %v", err)
	}
	args := make([]string, 96)
	for i := range args {
		args[i] = "$(V)"
	}
	vars := []*runtimeapi.KeyValue{{Key: "V", Value: []byte(half)}}
	if _, err := env.Strings(args[:95], vars); err != nil {
		t.Error(err)
	}
	if _, err := env.Strings(args, vars); err == nil || !strings.Contains(err.Error(), "item 96") {
		t.Errorf("unexpected error: %v", err)
	}
}

// Arguments refer to all that the container has, service variables among it.
func TestStrings(t *testing.T) {
	vars := []*runtimeapi.KeyValue{{Key: "A", Value: []byte("1")}, {Key: "WEB_SERVICE_HOST", Value: []byte("10.96.0.7")}}
	got, err := env.Strings([]string{"$(A)", "http://$(WEB_SERVICE_HOST)/$$(A)/$(B)", ""}, vars)
	if want := []string{"1", "http://10.96.0.7/$(A)/$(B)", ""}; err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := env.Strings(nil, vars); got != nil || err != nil {
		t.Errorf("no list became %q, %v", got, err)
	}
}
