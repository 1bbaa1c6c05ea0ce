package env_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate/env"
)

func TestLiterals(t *testing.T) {
	got := newWorld().with(t,
		literal("A", "$(B)"), // B isn't defined yet
		literal("B", "2"),
		literal("C", "$(B)$(A)"),
		literal("B", "3$(B)"), // refers to the one before
		literal("EMPTY", ""),
		literal("ESCAPED", "$$(B) $$$(B)"),
		literal("any name: it's ok", "$(any name: it's ok)"),
	)
	want := map[string]string{"A": "$(B)", "B": "32", "C": "2$(B)", "EMPTY": "", "ESCAPED": "$(B) $32", "any name: it's ok": "$(any name: it's ok)"}
	if got.err != nil || strings.Join(got.order, ",") != "A,B,C,EMPTY,ESCAPED,any name: it's ok" || fmt.Sprint(got.vars) != fmt.Sprint(want) {
		t.Fatalf("%v", got)
	}
}

func TestValuesThatCannotBe(t *testing.T) {
	w := newWorld()
	for value, want := range map[string]string{
		"s3cret\x00":                    "container main: environment variable V: its value has a NUL byte, which no environment variable can have: put it into a volume instead",
		strings.Repeat("s3cret", 22000): "container main: environment variable V: it has more than the 128 KiB that Linux takes, with its references replaced: make it shorter",
	} {
		w.secret("s", map[string]string{"k": value})
		for _, v := range []v1.EnvVar{literal("V", value), from("V", v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: named("s"), Key: "k"}})} {
			got := w.with(t, v)
			if got.err == nil || got.err.Error() != want {
				t.Errorf("unexpected error: %v", got.err)
			}
			var problem *env.Error
			object, ok := pod.Object{}, v.ValueFrom != nil
			if ok {
				object = pod.Object{Kind: "Secret", Namespace: "ns", Name: "s"}
			}
			if !errors.As(got.err, &problem) || problem.Object != object {
				t.Errorf("%+v", problem)
			}
		}
	}
	// The longest that there may be: Linux counts the final NUL.
	if got := w.with(t, literal("V", strings.Repeat("x", 128<<10-len("V=\x00")))); got.err != nil {
		t.Error(got.err)
	}
	if got := w.with(t, literal("V", strings.Repeat("x", 128<<10-len("V=\x00")+1))); got.err == nil {
		t.Error("a variable that can't be run was taken")
	}
}

// Bytes that aren't UTF-8 would arrive as others, so they are refused whatever source they are from, and aren't quoted.
func TestValuesThatAreNoText(t *testing.T) {
	const value = "s3cret\xff\xfe"
	const words = "its value isn't UTF-8, and container runtimes can't hand on anything else: put it into a volume instead"
	w := newWorld()
	w.secret("s", map[string]string{"k": value})
	w.configMap("m", map[string]string{"k": value})
	w.configMap("b", nil)
	w.configMaps["ns/b"].BinaryData = map[string][]byte{"k": []byte(value)}
	w.files["vol/file"] = map[string]string{"k": value}
	variable := func(source v1.EnvVarSource) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.Containers[0].Env = []v1.EnvVar{from("V", source)} }
	}
	all := func(source v1.EnvFromSource) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{source} }
	}
	for name, c := range map[string]struct {
		change func(*v1.Pod)
		want   string
	}{
		"value":           {func(p *v1.Pod) { p.Spec.Containers[0].Env = []v1.EnvVar{literal("V", value)} }, words},
		"secretKeyRef":    {variable(v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: named("s"), Key: "k"}}), words},
		"configMapKeyRef": {variable(v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: named("m"), Key: "k"}}), words},
		"binaryData":      {variable(v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: named("b"), Key: "k"}}), "it is in binaryData, which isn't for environments"},
		"fileKeyRef":      {variable(v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "vol", Path: "file", Key: "k"}}), words},
		"fieldRef": {func(p *v1.Pod) {
			p.Annotations["x"] = value
			p.Spec.Containers[0].Env = []v1.EnvVar{fieldRef("metadata.annotations['x']")}
		}, words},
		"envFrom a Secret":    {all(allOfSecret("s", "", nil)), `key "k" of Secret ns/s: ` + words},
		"envFrom a ConfigMap": {all(allOf("m", "", nil)), `key "k" of ConfigMap ns/m: ` + words},
		"envFrom binaryData":  {all(allOf("b", "", nil)), ""},
		"any text":            {func(p *v1.Pod) { p.Spec.Containers[0].Env = []v1.EnvVar{literal("V", "é\uFFFD\n\x01🚢")} }, ""},
	} {
		p := thePod()
		c.change(p)
		got := w.resolve(t, p)
		if (got.err != nil) != (c.want != "") || got.err != nil && !strings.HasSuffix(got.err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, got.err, c.want)
		}
		if got.err != nil && strings.Contains(got.err.Error(), "s3cret") {
			t.Errorf("%s: the error quotes the value: %v", name, got.err)
		}
	}
}

func fieldRef(path string) v1.EnvVar {
	return from("V", v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}})
}

func TestFields(t *testing.T) {
	for path, want := range map[string]string{
		"metadata.name": "web", "metadata.namespace": "ns", "metadata.uid": "u", "metadata.labels['a/b']": "l", "metadata.labels['none']": "",
		"metadata.annotations['x']": "y", "spec.nodeName": "node", "spec.serviceAccountName": "sa", "status.podIP": "10.0.0.1",
		"status.podIPs": "10.0.0.1,fd00::1", "status.hostIP": "192.0.2.1", "status.hostIPs": "192.0.2.1,2001:db8::1",
	} {
		if got := newWorld().with(t, fieldRef(path)); got.err != nil || got.vars["V"] != want {
			t.Errorf("%s: %v, want %q", path, got, want)
		}
	}
	for _, path := range []string{"metadata.labels", "spec.hostname", "metadata.labels['x", ""} {
		if got := newWorld().with(t, fieldRef(path)); got.err == nil {
			t.Errorf("%q was taken", path)
		}
	}
	p := thePod()
	for _, path := range []string{"status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs"} {
		p.Spec.Containers[0].Env = []v1.EnvVar{fieldRef(path)}
		if _, _, err := env.Resolve(t.Context(), p, &p.Spec.Containers[0], env.Facts{}, none()); err == nil || !strings.Contains(err.Error(), "has no address") {
			t.Errorf("an unknown address: %v", err)
		}
	}
}

// What a field has isn't expanded: only literal values are.
func TestFieldsAreNotExpanded(t *testing.T) {
	p := thePod()
	p.Annotations["x"] = "$(A) $$"
	p.Spec.Containers[0].Env = []v1.EnvVar{literal("A", "1"), fieldRef("metadata.annotations['x']")}
	if got := newWorld().resolve(t, p); got.err != nil || got.vars["V"] != "$(A) $$" {
		t.Errorf("%v", got)
	}
}

func TestResourceFields(t *testing.T) {
	for _, tc := range []struct{ container, name, divisor, want string }{
		{"other", "limits.cpu", "", "2"}, // rounded up
		{"other", "limits.cpu", "0", "2"},
		{"other", "limits.cpu", "1", "2"},
		{"other", "limits.cpu", "1m", "1500"},
		{"other", "requests.cpu", "", "1"},
		{"other", "limits.memory", "", "104857600"},
		{"other", "limits.memory", "1Mi", "100"},
		{"other", "limits.memory", "1M", "105"},
		{"other", "limits.memory", "1G", "1"},
		{"other", "requests.memory", "", "0"},
		{"other", "limits.ephemeral-storage", "1Gi", "1"},
		{"other", "requests.ephemeral-storage", "1k", "10000"},
		{"other", "limits.hugepages-2Mi", "1Mi", "6"},
		{"other", "requests.hugepages-2Mi", "", "6291456"},
		{"", "limits.cpu", "", "4"}, // the node's, for the container sets none
		{"main", "limits.cpu", "1m", "4000"},
		{"", "limits.memory", "1Gi", "8"},
		{"", "limits.ephemeral-storage", "1G", "50"},
		{"", "limits.hugepages-2Mi", "", "0"}, // none without a limit
		{"", "requests.cpu", "", "0"},
		{"debug", "limits.memory", "1Gi", "8"}, // an ephemeral container
		{"setup", "limits.memory", "1Mi", "1"}, // an init container
		{"", "limits.gpu", "", "error"},
		{"", "cpu", "", "error"},
		{"", "limit.cpu", "", "error"},
		{"", "limits.cpu", "-1", "error"},
		{"nobody", "limits.cpu", "", "error"},
	} {
		p := thePod()
		p.Spec.InitContainers = []v1.Container{{Name: "setup", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi")}}}}
		p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
		ref := &v1.ResourceFieldSelector{ContainerName: tc.container, Resource: tc.name}
		if tc.divisor != "" {
			ref.Divisor = resource.MustParse(tc.divisor)
		}
		p.Spec.Containers[0].Env = []v1.EnvVar{from("V", v1.EnvVarSource{ResourceFieldRef: ref})}
		got := newWorld().resolve(t, p)
		if got.err != nil {
			got.vars["V"] = "error"
		}
		if got.vars["V"] != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

// The pod's limits come after the container's and before the node's.
func TestResourceFieldsOfPodLevel(t *testing.T) {
	for _, tc := range []struct{ container, name, want string }{
		{"main", "limits.cpu", "3"},
		{"main", "limits.memory", "8589934592"}, // not set at pod level: the node's
		{"main", "limits.hugepages-2Mi", "8388608"},
		{"other", "limits.cpu", "2"},
		{"other", "limits.hugepages-2Mi", "6291456"},
		{"main", "requests.cpu", "0"},
	} {
		p := thePod()
		p.Spec.Resources = &v1.ResourceRequirements{
			Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("3"), "hugepages-2Mi": resource.MustParse("8Mi")},
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
		}
		p.Spec.Containers[0].Env = []v1.EnvVar{from("V", v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: tc.container, Resource: tc.name}})}
		if got := newWorld().resolve(t, p); got.err != nil || got.vars["V"] != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

func TestNoSource(t *testing.T) {
	if got := newWorld().with(t, from("V", v1.EnvVarSource{})); got.err == nil || !strings.Contains(got.err.Error(), "names no source") {
		t.Errorf("%v", got)
	}
}
