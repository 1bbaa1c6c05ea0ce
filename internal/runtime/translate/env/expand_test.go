package env_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/translate/env"
)

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
