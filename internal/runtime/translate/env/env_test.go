package env_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
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

func thePod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "u", Labels: map[string]string{"a/b": "l"}, Annotations: map[string]string{"x": "y"}},
		Spec: v1.PodSpec{NodeName: "node", ServiceAccountName: "sa", Containers: []v1.Container{
			{Name: "main"},
			{Name: "other", Resources: v1.ResourceRequirements{
				Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("1500m"), v1.ResourceMemory: resource.MustParse("100Mi")},
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")},
			}},
		}},
	}
}

var facts = env.Facts{
	PodIPs: []string{"10.0.0.1", "fd00::1"}, HostIPs: []string{"192.0.2.1"},
	Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi")},
}

func resolve(t *testing.T, vars ...v1.EnvVar) (map[string]string, []string, error) {
	t.Helper()
	p := thePod()
	p.Spec.Containers[0].Env = vars
	list, err := env.Resolve(p, &p.Spec.Containers[0], facts)
	got, order := map[string]string{}, []string{}
	for _, kv := range list {
		got[kv.Key] = string(kv.Value)
		order = append(order, kv.Key)
	}
	return got, order, err
}

func TestLiterals(t *testing.T) {
	got, order, err := resolve(t,
		v1.EnvVar{Name: "A", Value: "$(B)"}, // B isn't defined yet
		v1.EnvVar{Name: "B", Value: "2"},
		v1.EnvVar{Name: "C", Value: "$(B)$(A)"},
		v1.EnvVar{Name: "B", Value: "3"},
	)
	if err != nil || fmt.Sprint(order) != "[A B C]" || got["A"] != "$(B)" || got["B"] != "3" || got["C"] != "2$(B)" {
		t.Fatalf("%v %v %v", got, order, err)
	}
}

func TestFields(t *testing.T) {
	for path, want := range map[string]string{
		"metadata.name": "web", "metadata.namespace": "ns", "metadata.uid": "u", "metadata.labels['a/b']": "l", "metadata.labels['none']": "",
		"metadata.annotations['x']": "y", "spec.nodeName": "node", "spec.serviceAccountName": "sa", "status.podIP": "10.0.0.1",
		"status.podIPs": "10.0.0.1,fd00::1", "status.hostIP": "192.0.2.1", "status.hostIPs": "192.0.2.1",
	} {
		got, _, err := resolve(t, v1.EnvVar{Name: "V", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}})
		if err != nil || got["V"] != want {
			t.Errorf("%s: %q, %v, want %q", path, got["V"], err, want)
		}
	}
	for _, path := range []string{"metadata.labels", "spec.hostname", "metadata.labels['x", ""} {
		if _, _, err := resolve(t, v1.EnvVar{Name: "V", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}}); err == nil {
			t.Errorf("%q was taken", path)
		}
	}
	p := thePod()
	p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "V", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
	if _, err := env.Resolve(p, &p.Spec.Containers[0], env.Facts{}); err == nil || !strings.Contains(err.Error(), "isn't known") {
		t.Errorf("an unknown address: %v", err)
	}
}

func TestResourceFields(t *testing.T) {
	for _, tc := range []struct{ container, name, divisor, want string }{
		{"other", "limits.cpu", "", "2"}, // rounded up
		{"other", "limits.cpu", "1m", "1500"},
		{"other", "requests.cpu", "", "1"},
		{"other", "limits.memory", "1Mi", "100"},
		{"other", "limits.memory", "3Mi", "34"},
		{"other", "requests.memory", "", "0"},
		{"", "limits.cpu", "", "4"}, // the node's, for the container sets none
		{"", "limits.memory", "1Gi", "8"},
		{"", "limits.hugepages-2Mi", "", "0"},
		{"", "limits.gpu", "", "error"},
		{"", "cpu", "", "error"},
		{"nobody", "limits.cpu", "", "error"},
	} {
		ref := &v1.ResourceFieldSelector{ContainerName: tc.container, Resource: tc.name}
		if tc.divisor != "" {
			ref.Divisor = resource.MustParse(tc.divisor)
		}
		got, _, err := resolve(t, v1.EnvVar{Name: "V", ValueFrom: &v1.EnvVarSource{ResourceFieldRef: ref}})
		if err != nil {
			got["V"] = "error"
		}
		if got["V"] != tc.want {
			t.Errorf("%+v: %q (%v)", tc, got["V"], err)
		}
	}
}

func TestReferencesToWhatIsNotThere(t *testing.T) {
	name := v1.LocalObjectReference{Name: "conf"}
	sources := map[string]func(*bool) *v1.EnvVarSource{
		"ConfigMap": func(o *bool) *v1.EnvVarSource {
			return &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: name, Key: "k", Optional: o}}
		},
		"Secret": func(o *bool) *v1.EnvVarSource {
			return &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: name, Key: "k", Optional: o}}
		},
		"env file": func(o *bool) *v1.EnvVarSource {
			return &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "conf", Key: "k", Optional: o}}
		},
	}
	for kind, source := range sources {
		_, _, err := resolve(t, v1.EnvVar{Name: "V", ValueFrom: source(nil)})
		var e *env.Error
		if !errors.As(err, &e) || e.Container != "main" || e.Variable != "V" || !strings.Contains(e.Problem, kind) || !strings.Contains(e.Problem, `"conf"`) {
			t.Errorf("%s: %v", kind, err)
		}
		if got, _, err := resolve(t, v1.EnvVar{Name: "V", ValueFrom: source(ptr.To(true))}); err != nil || len(got) != 0 {
			t.Errorf("optional %s: %v, %v", kind, got, err)
		}
	}
	p := thePod()
	c := &p.Spec.Containers[0]
	c.EnvFrom = []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: name, Optional: ptr.To(true)}}}
	if _, err := env.Resolve(p, c, facts); err != nil {
		t.Error(err)
	}
	c.EnvFrom = append(c.EnvFrom, v1.EnvFromSource{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: name}})
	if _, err := env.Resolve(p, c, facts); err == nil || !strings.Contains(err.Error(), `envFrom: ConfigMap "conf"`) {
		t.Errorf("envFrom: %v", err)
	}
}

// References to references double with each variable: what comes of it mustn't take the agent's memory.
func TestExpansionIsBounded(t *testing.T) {
	c := &v1.Container{Name: "m", Env: []v1.EnvVar{{Name: "V0", Value: "ha"}}}
	for i := range 60 {
		c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprintf("V%d", i+1), Value: fmt.Sprintf("$(V%d)$(V%d)", i, i)})
	}
	_, err := env.Resolve(&v1.Pod{}, c, env.Facts{})
	var problem *env.Error
	if !errors.As(err, &problem) || problem.Variable != "V16" {
		t.Errorf("unexpected error: %v", err)
	}
	c.Env = c.Env[:15]
	vars, err := env.Resolve(&v1.Pod{}, c, env.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := env.Strings([]string{"echo", strings.Repeat("$(V14)", 1000)}, vars); err == nil || !strings.Contains(err.Error(), "item 2") {
		t.Errorf("unexpected error: %v", err)
	}
}
