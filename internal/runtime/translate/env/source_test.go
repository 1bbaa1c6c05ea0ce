package env_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/object/objecttest"
	"github.com/deckhand-node/deckhand/internal/runtime/translate/env"
)

func configMapKey(name, object, key string, optional *bool) v1.EnvVar {
	return from(name, v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: named(object), Key: key, Optional: optional}})
}

func secretKey(name, object, key string, optional *bool) v1.EnvVar {
	return from(name, v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: named(object), Key: key, Optional: optional}})
}

func fileKey(name, volume, key string, optional *bool) v1.EnvVar {
	return from(name, v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: volume, Path: "a/f.env", Key: key, Optional: optional}})
}

func allOf(configMap string, prefix string, optional *bool) v1.EnvFromSource {
	return v1.EnvFromSource{Prefix: prefix, ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: named(configMap), Optional: optional}}
}

func allOfSecret(secret string, prefix string, optional *bool) v1.EnvFromSource {
	return v1.EnvFromSource{Prefix: prefix, SecretRef: &v1.SecretEnvSource{LocalObjectReference: named(secret), Optional: optional}}
}

func someObjects() *world {
	w := newWorld()
	w.configMap("conf", map[string]string{"k": "$(A)$$", "empty": "", "dots.and-dashes": "d"})
	w.configMaps["ns/conf"].BinaryData = map[string][]byte{"image": {0xff, 0xd8}}
	w.secret("pass", map[string]string{"k": "s3cret $(A)", "empty": ""})
	w.configMaps["elsewhere/only"] = &v1.ConfigMap{Data: map[string]string{"k": "not ours"}}
	w.files["scratch/a/f.env"] = map[string]string{"K": "from\nfile $(A)", "EMPTY": ""}
	return w
}

func TestKeys(t *testing.T) {
	w := someObjects()
	got := w.with(t,
		literal("A", "1"),
		configMapKey("C", "conf", "k", nil), secretKey("S", "pass", "k", nil), fileKey("F", "scratch", "K", nil),
		configMapKey("CE", "conf", "empty", nil), secretKey("SE", "pass", "empty", nil), fileKey("FE", "scratch", "EMPTY", ptr.To(false)),
		literal("ALL", "$(C)|$(S)|$(F)|$(CE)"),
	)
	want := map[string]string{ // what comes from elsewhere isn't expanded, but may be referred to
		"A": "1", "C": "$(A)$$", "S": "s3cret $(A)", "F": "from\nfile $(A)", "CE": "", "SE": "", "FE": "", "ALL": "$(A)$$|s3cret $(A)|from\nfile $(A)|",
	}
	if got.err != nil || fmt.Sprint(got.vars) != fmt.Sprint(want) || len(got.events) != 0 {
		t.Errorf("%v", got)
	}
	if want := []string{"services of default", "services of ns", "ConfigMap ns/conf", "Secret ns/pass", "file scratch/a/f.env"}; !slices.Equal(w.asked, want) {
		t.Errorf("looked up %q", w.asked)
	}
}

func TestWhatIsMissing(t *testing.T) {
	failing := errors.New("no connection")
	for _, tc := range []struct {
		v      v1.EnvVar
		want   string
		object pod.Object
	}{
		{configMapKey("V", "none", "k", nil), `configmap "none" not found in namespace "ns": create it, or mark the reference as optional`, pod.Object{Kind: "ConfigMap", Namespace: "ns", Name: "none"}},
		{configMapKey("V", "only", "k", nil), `configmap "only" not found in namespace "ns": create it, or mark the reference as optional`, pod.Object{Kind: "ConfigMap", Namespace: "ns", Name: "only"}},
		{secretKey("V", "none", "k", ptr.To(false)), `secret "none" not found in namespace "ns": create it, or mark the reference as optional`, pod.Object{Kind: "Secret", Namespace: "ns", Name: "none"}},
		{configMapKey("V", "conf", "none", nil), `couldn't find key "none" in ConfigMap ns/conf`, pod.Object{Kind: "ConfigMap", Namespace: "ns", Name: "conf"}},
		{secretKey("V", "pass", "none", nil), `couldn't find key "none" in Secret ns/pass`, pod.Object{Kind: "Secret", Namespace: "ns", Name: "pass"}},
		{configMapKey("V", "conf", "image", nil), `couldn't find key "image" in ConfigMap ns/conf: it is in binaryData, which isn't for environments`, pod.Object{Kind: "ConfigMap", Namespace: "ns", Name: "conf"}},
		{fileKey("V", "none", "K", nil), `env file "a/f.env" not found in volume none: an init container has to write it`, pod.Object{}},
		{fileKey("V", "scratch", "NONE", nil), `couldn't find key "NONE" in env file "a/f.env" of volume scratch`, pod.Object{}},
	} {
		got := someObjects().with(t, tc.v)
		var problem *env.Error
		if !errors.As(got.err, &problem) || got.err.Error() != "container main: environment variable V: "+tc.want || problem.Container != "main" {
			t.Errorf("%s\nnot %s", got.err, tc.want)
			continue
		}
		if object, ok := problem.WaitsFor(); object != tc.object || ok != (tc.object != pod.Object{}) {
			t.Errorf("%s: waits for %v, %t", tc.want, object, ok)
		}
		// Optional, it is left out, and $(V) isn't replaced.
		optional := tc.v.DeepCopy()
		switch f := optional.ValueFrom; {
		case f.ConfigMapKeyRef != nil:
			f.ConfigMapKeyRef.Optional = ptr.To(true)
		case f.SecretKeyRef != nil:
			f.SecretKeyRef.Optional = ptr.To(true)
		case f.FileKeyRef != nil:
			f.FileKeyRef.Optional = ptr.To(true)
		}
		if got := someObjects().with(t, *optional, literal("W", "$(V)")); got.err != nil || fmt.Sprint(got.vars) != "map[W:$(V)]" {
			t.Errorf("optional: %v", got)
		}
		// An optional one doesn't replace what an earlier one set.
		if got := someObjects().with(t, literal("V", "old"), *optional); got.err != nil || got.vars["V"] != "old" {
			t.Errorf("optional: %v", got)
		}
	}
	// What can't be asked isn't missing, also for what is optional.
	for asked, v := range map[string]v1.EnvVar{
		"ConfigMap ns/conf":    configMapKey("V", "conf", "k", ptr.To(true)),
		"Secret ns/pass":       secretKey("V", "pass", "k", ptr.To(true)),
		"file scratch/a/f.env": fileKey("V", "scratch", "K", ptr.To(true)),
	} {
		w := someObjects()
		w.fails[asked] = failing
		got := w.with(t, v)
		var problem *env.Error
		if !errors.Is(got.err, failing) || !errors.As(got.err, &problem) || problem.Where != "environment variable V" {
			t.Errorf("%s: %v", asked, got.err)
			continue
		}
		if object, ok := problem.WaitsFor(); ok && object.String() != asked || ok == strings.HasPrefix(asked, "file") {
			t.Errorf("%s: waits for %v, %t", asked, object, ok)
		}
	}
}

// Who misses an object whose manifest has a mistake isn't told to create it.
func TestRefusedObject(t *testing.T) {
	key := object.Key{Kind: object.ConfigMap, Namespace: "ns", Name: "large"}
	w := someObjects()
	_, w.fails["ConfigMap ns/large"] = objecttest.View(object.NewSet(nil, true).WithRefused(map[object.Key]string{key: "/etc/m/large.yaml"})).ConfigMap(t.Context(), "ns", "large")
	if got := w.with(t, configMapKey("V", "large", "k", nil)); got.err == nil || !strings.Contains(got.err.Error(), "(/etc/m/large.yaml defines it, but there is a mistake in that") || strings.Contains(got.err.Error(), "create it") {
		t.Errorf("got %v", got.err)
	}
	if got := w.with(t, configMapKey("V", "large", "k", ptr.To(true))); got.err != nil || len(got.vars) > 0 {
		t.Errorf("an optional one: %v", got)
	}
}

func TestEndOfContext(t *testing.T) {
	w := someObjects()
	w.fails["ConfigMap ns/conf"] = fmt.Errorf("asking the server: %w", context.Canceled)
	if got := w.with(t, configMapKey("V", "conf", "k", nil)); !errors.Is(got.err, context.Canceled) {
		t.Errorf("unexpected error: %v", got.err)
	}
}

func TestEnvFrom(t *testing.T) {
	w := newWorld()
	w.configMap("one", map[string]string{"B": "one", "A": "one", "C": "$(A)"})
	w.configMap("two", map[string]string{"B": "two", "odd.name-1": "x"})
	w.configMaps["ns/two"].BinaryData = map[string][]byte{"BIN": []byte("b")}
	w.secret("three", map[string]string{"C": "three", "D": "$$three"})
	p := thePod()
	c := &p.Spec.Containers[0]
	c.EnvFrom = []v1.EnvFromSource{
		allOf("one", "", nil), allOf("two", "", nil), allOfSecret("three", "", nil), allOf("two", "my pre:fix ", nil),
		allOf("none", "", ptr.To(true)), allOfSecret("none", "", ptr.To(true)), {},
	}
	c.Env = []v1.EnvVar{literal("D", "$(D)+$(A)"), literal("E", "$(my pre:fix B)")}
	got := w.resolve(t, p)
	want := map[string]string{
		"A": "one", "B": "two", "C": "three", "D": "$$three+one", "E": "two",
		"odd.name-1": "x", "my pre:fix B": "two", "my pre:fix odd.name-1": "x",
	}
	if got.err != nil || fmt.Sprint(got.vars) != fmt.Sprint(want) || len(got.events) != 0 {
		t.Errorf("%v", got)
	}
	if want := "A,B,C,odd.name-1,D,my pre:fix B,my pre:fix odd.name-1,E"; strings.Join(got.order, ",") != want {
		t.Errorf("in the order %q", got.order)
	}
	if n := len(slices.Compact(slices.Sorted(slices.Values(w.asked)))); n != len(w.asked) {
		t.Errorf("looked up %q", w.asked)
	}
}

func TestEnvFromMissing(t *testing.T) {
	failing := errors.New("no connection")
	for _, tc := range []struct {
		from v1.EnvFromSource
		fail string
		want string
	}{
		{allOf("none", "", nil), "", `container main: envFrom[1]: configmap "none" not found in namespace "ns": create it, or mark the reference as optional`},
		{allOfSecret("none", "", ptr.To(false)), "", `container main: envFrom[1]: secret "none" not found in namespace "ns": create it, or mark the reference as optional`},
		{allOf("none", "", ptr.To(true)), "ConfigMap ns/none", "container main: envFrom[1]: can't read ConfigMap ns/none: no connection"},
		{allOfSecret("none", "", ptr.To(true)), "Secret ns/none", "container main: envFrom[1]: can't read Secret ns/none: no connection"},
		{allOfSecret("odd", "", nil), "", `container main: envFrom[1]: key "n" of Secret ns/odd: its value has a NUL byte, which no environment variable can have: put it into a volume instead`},
		{allOfSecret("long", "", nil), "", `container main: envFrom[1]: key "l" of Secret ns/long: it has more than the 128 KiB that Linux takes, with its references replaced: make it shorter`},
	} {
		w := newWorld()
		w.configMap("one", map[string]string{"A": "1"})
		w.secret("odd", map[string]string{"m": "fine", "n": "s3cret\x00"})
		w.secret("long", map[string]string{"l": strings.Repeat("s3cret", 22000)})
		if tc.fail != "" {
			w.fails[tc.fail] = failing
		}
		p := thePod()
		p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{allOf("one", "", nil), tc.from}
		got := w.resolve(t, p)
		var problem *env.Error
		if !errors.As(got.err, &problem) || got.err.Error() != tc.want {
			t.Errorf("%v\nnot %s", got.err, tc.want)
			continue
		}
		object, ok := problem.WaitsFor()
		if name := cmpName(tc.from); !ok || object.Namespace != "ns" || object.Name != name {
			t.Errorf("%s: waits for %v, %t", tc.want, object, ok)
		}
	}
}

func cmpName(s v1.EnvFromSource) string {
	if s.ConfigMapRef != nil {
		return s.ConfigMapRef.Name
	}
	return s.SecretRef.Name
}

func TestInvalidNames(t *testing.T) {
	w := newWorld()
	w.configMap("conf", map[string]string{"b=b": "1", "": "2", "é": "3", "GOOD": "4", "fine too": "5", "\x7f": "6"})
	w.secret("pass", map[string]string{"x\ny": "s3cret", "OK": "7"})
	many := map[string]string{}
	for i := range 1000 {
		many[fmt.Sprintf("=%0100d", i)] = ""
	}
	w.configMap("many", many)
	p := thePod()
	p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{allOf("conf", "", nil), allOfSecret("pass", "P_", nil), allOf("many", "", nil)}
	got := w.resolve(t, p)
	if got.err != nil || fmt.Sprint(got.vars) != "map[GOOD:4 P_OK:7 fine too:5]" || len(got.events) != 3 {
		t.Fatalf("%v", got)
	}
	for i, want := range []string{
		"Keys [, b=b, \x7f, é] from the EnvFrom configMap ns/conf were skipped since they are considered invalid environment variable names.",
		"Keys [P_x\ny] from the EnvFrom secret ns/pass were skipped since they are considered invalid environment variable names.",
	} {
		if e := (pod.Event{Type: "Warning", Reason: "InvalidEnvironmentVariableNames", Container: "main", Message: want}); !reflect.DeepEqual(got.events[i], e) {
			t.Errorf("%+v", got.events[i])
		}
	}
	if m := got.events[2].Message; len(m) > 1024 || !strings.Contains(m, ", and 995 more] from the EnvFrom configMap ns/many") {
		t.Errorf("%d bytes: %s", len(m), m)
	}
	// A prefix makes a name of what alone is none.
	p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{allOf("conf", "P", nil)}
	if got := w.resolve(t, p); got.vars["P"] != "2" {
		t.Errorf("%v", got)
	}
}

// edited has another version of its ConfigMap each time it is asked.
type edited struct {
	*world
	asked int
}

func (e *edited) ConfigMap(context.Context, string, string) (*v1.ConfigMap, error) {
	e.asked++
	return &v1.ConfigMap{Data: map[string]string{"k": fmt.Sprint(e.asked)}}, nil
}

// TestOneVersionPerEnvironment: all of an environment is of one version of an object; the next container's is of the newest.
func TestOneVersionPerEnvironment(t *testing.T) {
	w := newWorld()
	from := &edited{world: w}
	p := thePod()
	p.Spec.Containers[0].Env = []v1.EnvVar{configMapKey("A", "conf", "k", nil), configMapKey("B", "conf", "k", nil)}
	p.Spec.Containers[1].Env = p.Spec.Containers[0].Env
	for n, want := range []string{"1", "2"} {
		list, events, err := env.Resolve(t.Context(), p, &p.Spec.Containers[n], facts, env.Sources{Objects: from, Files: w})
		if got := resultOf(t, list, events, err); err != nil || got.vars["A"] != want || got.vars["B"] != want {
			t.Errorf("container %d has %v, %v, want version %s", n, got.vars, err, want)
		}
	}
}
