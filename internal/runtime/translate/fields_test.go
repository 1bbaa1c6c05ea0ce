package translate_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// elsewhere are the types whose own fields are other packages' business, and have tests there.
var elsewhere = map[string]string{
	"ContainerResizePolicy": "internal/lifecycle",
	"ContainerRestartRule":  "internal/lifecycle",
	"EnvFromSource":         "internal/runtime/translate/env",
	"EnvVar":                "internal/runtime/translate/env",
	"LifecycleHandler":      "internal/worker/handler",
	"Probe":                 "internal/worker/probe",
	"ResourceRequirements":  "internal/runtime/translate",
	"VolumeDevice":          "internal/runtime/translate",
	"VolumeMount":           "internal/volume",
}

// TestEveryFieldHasARow fails when the API gains a field that nobody has thought about.
func TestEveryFieldHasARow(t *testing.T) {
	covered := map[string]bool{}
	for _, table := range [][]row{containerFields, podSecurityFields, securityFields} {
		for _, r := range table {
			for _, name := range strings.Fields(r.covers) {
				covered[name] = true
			}
			if r.by != "" {
				exists(t, r.covers, r.by)
			}
		}
	}
	for name, dir := range elsewhere {
		exists(t, name, dir)
	}
	met := map[string]bool{}
	for _, root := range []any{v1.Container{}, v1.PodSecurityContext{}, v1.SecurityContext{}} {
		visit(t, reflect.TypeOf(root), covered, met)
	}
	for name := range covered {
		if kind, field, ok := strings.Cut(name, "."); ok && !met[name] {
			t.Errorf("a row covers field %s of %s, which isn't among what these types have", field, kind)
		}
	}
	for name := range elsewhere {
		if !met[name] {
			t.Errorf("type %s isn't among what these types have", name)
		}
	}
}

// visit looks for a row of each of the type's fields, and of the fields of their types in turn.
func visit(t *testing.T, kind reflect.Type, covered, met map[string]bool) {
	for kind.Kind() == reflect.Pointer || kind.Kind() == reflect.Slice || kind.Kind() == reflect.Map {
		kind = kind.Elem()
	}
	if kind.Kind() != reflect.Struct || kind.PkgPath() != reflect.TypeFor[v1.Pod]().PkgPath() || met[kind.Name()] {
		return
	}
	met[kind.Name()] = true
	if elsewhere[kind.Name()] != "" {
		return
	}
	for i := range kind.NumField() {
		name := kind.Name() + "." + kind.Field(i).Name
		met[name] = true
		if !covered[name] {
			t.Errorf("no row covers %s: what becomes of it?", name)
		}
		visit(t, kind.Field(i).Type, covered, met)
	}
}

func exists(t *testing.T, what, dir string) {
	if _, err := os.Stat("../../../" + dir); err != nil {
		t.Errorf("%s: who acts on it? %v", what, err)
	}
}
