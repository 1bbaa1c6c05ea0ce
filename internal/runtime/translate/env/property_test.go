package env_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// marker is in every value of a Secret or an env file, and nowhere else.
const marker = "S3CRET"

var names = rapid.SampledFrom([]string{"A", "B", "C", "b=d", "WEB_SERVICE_HOST", "KUBERNETES_PORT"})

func data(secret bool) *rapid.Generator[map[string]string] {
	values := rapid.SampledFrom([]string{"", "x", "$(A)", "$$", "y y"})
	if secret {
		values = rapid.SampledFrom([]string{marker, marker + "$(B)", marker + "\x00", marker + strings.Repeat("z", 128<<10)})
	}
	return rapid.MapOfN(names, values, 0, 4)
}

// randomWorld has some of the objects that randomPod refers to.
func randomWorld(t *rapid.T) *world {
	w := newWorld()
	if rapid.Bool().Draw(t, "kubernetes") {
		theAPI(w)
	}
	if rapid.Bool().Draw(t, "service") {
		w.service("ns", "web", "10.0.0.3", v1.ServicePort{Port: 80})
	}
	for _, name := range []string{"x", "y"} {
		if rapid.IntRange(0, 9).Draw(t, "there") > 0 {
			w.configMap(name, data(false).Draw(t, "ConfigMap "+name))
		}
		if rapid.IntRange(0, 9).Draw(t, "there") > 0 {
			w.secret(name, data(true).Draw(t, "Secret "+name))
		}
		if rapid.IntRange(0, 9).Draw(t, "there") > 0 {
			w.files[name+"/a/f.env"] = data(true).Draw(t, "file "+name)
		}
	}
	return w
}

func randomPod(t *rapid.T) *v1.Pod {
	p := thePod()
	c := &p.Spec.Containers[0]
	optional := rapid.SampledFrom([]*bool{nil, new(bool), ptrTrue()})
	objects := rapid.SampledFrom([]string{"x", "y"})
	for range rapid.IntRange(0, 3).Draw(t, "envFrom") {
		prefix := rapid.SampledFrom([]string{"", "A", "P_"}).Draw(t, "prefix")
		if rapid.Bool().Draw(t, "secret") {
			c.EnvFrom = append(c.EnvFrom, allOfSecret(objects.Draw(t, "of"), prefix, optional.Draw(t, "optional")))
		} else {
			c.EnvFrom = append(c.EnvFrom, allOf(objects.Draw(t, "of"), prefix, optional.Draw(t, "optional")))
		}
	}
	for range rapid.IntRange(0, 5).Draw(t, "env") {
		name, object, key := names.Draw(t, "name"), objects.Draw(t, "from"), names.Draw(t, "key")
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			c.Env = append(c.Env, configMapKey(name, object, key, optional.Draw(t, "optional")))
		case 1:
			c.Env = append(c.Env, secretKey(name, object, key, optional.Draw(t, "optional")))
		case 2:
			c.Env = append(c.Env, fileKey(name, object, key, optional.Draw(t, "optional")))
		default:
			c.Env = append(c.Env, literal(name, rapid.StringMatching(`(\$?\$?\(A\)|\$\(WEB_SERVICE_HOST\)|\$\(b=d\)|x)*`).Draw(t, "value")))
		}
	}
	return p
}

func ptrTrue() *bool { b := true; return &b }

// Whatever is asked for and whatever there is: what comes of it follows the rules, or an
// error says what is wrong, and neither it nor an event has a secret in it.
func TestResolveByTheRules(t *testing.T) {
	made, failed := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		w, p := randomWorld(rt), randomPod(rt)
		spec := p.DeepCopy()
		got := w.resolve(t, p)
		if fmt.Sprint(p) != fmt.Sprint(spec) {
			rt.Fatal("the pod was changed")
		}
		said := fmt.Sprint(got.events)
		if got.err != nil {
			said += got.err.Error()
		}
		if strings.Contains(said, marker) {
			rt.Fatalf("a secret was told: %s", said)
		}
		asked := slices.Sorted(slices.Values(w.asked))
		if len(slices.Compact(slices.Clone(asked))) != len(asked) {
			rt.Fatalf("something was looked up twice: %q", asked)
		}
		if got.err == nil {
			made++
		} else {
			failed++
		}
		want, ok := model(w, p)
		if ok != (got.err == nil) {
			rt.Fatalf("expected %t: %v", ok, got.err)
		}
		if ok && !maps.Equal(got.vars, want) {
			rt.Fatalf("%q, not %q", got.vars, want)
		}
	})
	if made == 0 || failed == 0 {
		t.Errorf("%d environments were made, %d failed: this tests nothing", made, failed)
	}
}

// model is the documented rules, told as simply as they can be; ok is false if there is
// no such environment.
func model(w *world, p *v1.Pod) (vars map[string]string, ok bool) {
	vars = map[string]string{}
	if len(w.services["default"]) > 0 {
		maps.Copy(vars, ofTheAPI)
	}
	if len(w.services["ns"]) > 0 {
		maps.Copy(vars, map[string]string{
			"WEB_SERVICE_HOST": "10.0.0.3", "WEB_SERVICE_PORT": "80", "WEB_PORT": "tcp://10.0.0.3:80", "WEB_PORT_80_TCP": "tcp://10.0.0.3:80",
			"WEB_PORT_80_TCP_PROTO": "tcp", "WEB_PORT_80_TCP_PORT": "80", "WEB_PORT_80_TCP_ADDR": "10.0.0.3",
		})
	}
	set := func(name, value string) bool {
		vars[name] = value
		return !strings.Contains(value, "\x00") && len(value) < 128<<10
	}
	c := &p.Spec.Containers[0]
	for _, f := range c.EnvFrom {
		var data map[string]string
		var there, optional bool
		if f.ConfigMapRef != nil {
			data, there = w.data("ConfigMap", f.ConfigMapRef.Name)
			optional = f.ConfigMapRef.Optional != nil && *f.ConfigMapRef.Optional
		} else {
			data, there = w.data("Secret", f.SecretRef.Name)
			optional = f.SecretRef.Optional != nil && *f.SecretRef.Optional
		}
		if !there && !optional {
			return nil, false
		}
		for k, v := range data {
			if !strings.Contains(k, "=") && !set(f.Prefix+k, v) {
				return nil, false
			}
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			if !set(e.Name, modelExpansion(e.Value, vars)) {
				return nil, false
			}
			continue
		}
		var data map[string]string
		var key string
		var optional *bool
		switch f := e.ValueFrom; {
		case f.ConfigMapKeyRef != nil:
			data, _ = w.data("ConfigMap", f.ConfigMapKeyRef.Name)
			key, optional = f.ConfigMapKeyRef.Key, f.ConfigMapKeyRef.Optional
		case f.SecretKeyRef != nil:
			data, _ = w.data("Secret", f.SecretKeyRef.Name)
			key, optional = f.SecretKeyRef.Key, f.SecretKeyRef.Optional
		case f.FileKeyRef != nil:
			data = w.files[f.FileKeyRef.VolumeName+"/a/f.env"]
			key, optional = f.FileKeyRef.Key, f.FileKeyRef.Optional
		}
		value, there := data[key]
		if there && !set(e.Name, value) || !there && (optional == nil || !*optional) {
			return nil, false
		}
	}
	return vars, true
}

// modelExpansion knows the references that randomPod makes.
func modelExpansion(value string, vars map[string]string) string {
	var pairs []string
	for _, name := range []string{"A", "WEB_SERVICE_HOST", "b=d"} {
		pairs = append(pairs, "$$("+name+")", "$("+name+")")
		if v, ok := vars[name]; ok {
			pairs = append(pairs, "$("+name+")", v)
		}
	}
	return strings.NewReplacer(pairs...).Replace(value)
}

func (w *world) data(kind, name string) (map[string]string, bool) {
	if kind == "ConfigMap" {
		m, ok := w.configMaps["ns/"+name]
		if !ok {
			return nil, false
		}
		return m.Data, true
	}
	s, ok := w.secrets["ns/"+name]
	if !ok {
		return nil, false
	}
	data := map[string]string{}
	for k, v := range s.Data {
		data[k] = string(v)
	}
	return data, true
}
