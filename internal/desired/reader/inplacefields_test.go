package reader_test

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/deckhand-node/deckhand/internal/desired/reader"
)

// bare are rules that hide no field behind a default.
var bare = reader.EditRules{
	SetDefaults: func(*v1.Pod) {},
	QOSClass:    func(*v1.Pod) v1.PodQOSClass { return v1.PodQOSBurstable },
}

// fill gives every field below v a value: one element in lists, one key in maps.
func fill(v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*x = resource.MustParse("1")
		return
	case *metav1.Time:
		*x = metav1.Unix(1, 0)
		return
	case *metav1.FieldsV1:
		x.SetRawString("{}")
		return
	case *intstr.IntOrString:
		*x = intstr.FromInt32(1)
		return
	case *v1.ResourceList:
		*x = v1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1"), "ephemeral-storage": resource.MustParse("1")}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value)
		v.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetInt(1)
	}
}

// mutations calls try with every single change of a value below v in turn, and takes
// it back: each value changed, each pointer, list and map emptied, each list made longer.
func mutations(v reflect.Value, path string, try func(what string)) {
	with := func(what string, other reflect.Value) {
		before := reflect.New(v.Type()).Elem()
		before.Set(v)
		v.Set(other)
		try(path + what)
		v.Set(before)
	}
	switch x := v.Interface().(type) {
	case resource.Quantity:
		with("", reflect.ValueOf(resource.MustParse("2")))
		return
	case metav1.Time:
		with("", reflect.ValueOf(metav1.NewTime(x.Add(time.Hour))))
		return
	case metav1.FieldsV1:
		with("", reflect.ValueOf(*metav1.NewFieldsV1("[]")))
		return
	case intstr.IntOrString:
		with("", reflect.ValueOf(intstr.FromString("x")))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			at := path
			if name != "" {
				at += "." + name
			}
			mutations(v.Field(i), at, try)
		}
	case reflect.Pointer:
		with(" emptied", reflect.Zero(v.Type()))
		mutations(v.Elem(), path, try)
	case reflect.Slice:
		with(" emptied", reflect.Zero(v.Type()))
		with(" extended", reflect.AppendSlice(reflect.AppendSlice(reflect.Zero(v.Type()), v), v))
		mutations(v.Index(0), path+"[0]", try)
	case reflect.Map:
		with(" emptied", reflect.Zero(v.Type()))
		for _, key := range v.MapKeys() {
			other := reflect.MakeMap(v.Type())
			for _, k := range v.MapKeys() {
				other.SetMapIndex(k, v.MapIndex(k))
			}
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			mutations(value, fmt.Sprintf("%s[%s]", path, key), func(what string) {
				other.SetMapIndex(key, value)
				before := v.Interface()
				v.Set(other)
				try(what)
				v.Set(reflect.ValueOf(before))
			})
			value.SetZero()
		}
	case reflect.String:
		with("", reflect.ValueOf("other").Convert(v.Type()))
	case reflect.Bool:
		with("", reflect.ValueOf(!v.Bool()).Convert(v.Type()))
	default:
		with("", reflect.ValueOf(v.Int()+1).Convert(v.Type()))
	}
}

// full is a pod in which every field of metadata and spec is set. One init container
// is a sidecar, the other isn't.
func full() *v1.Pod {
	p := &v1.Pod{}
	fill(reflect.ValueOf(&p.ObjectMeta).Elem())
	fill(reflect.ValueOf(&p.Spec).Elem())
	always := v1.ContainerRestartPolicyAlways
	sidecar := p.Spec.InitContainers[0].DeepCopy()
	sidecar.Name, sidecar.RestartPolicy = "sidecar", &always
	p.Spec.InitContainers = append([]v1.Container{*sidecar}, p.Spec.InitContainers...)
	return p
}

// allowed are the only changes that are applied in place.
var allowed = regexp.MustCompile(`^(` + strings.Join([]string{
	`metadata\.(labels|annotations)(\[key\]| emptied)?`,
	`spec\.(containers|initContainers)\[[01]\]\.image`,
	`spec(\.containers\[0\]|\.initContainers\[0\])?\.resources\.(limits|requests)\[(cpu|memory)\]`,
	`spec\.ephemeralContainers extended`,
}, "|") + `)$`)

// Whatever field the API has or comes to have: unless it is known to be changeable,
// a change of it makes another pod.
func TestEveryField(t *testing.T) {
	old, new := full(), full()
	if ok, why := reader.InPlace(old, new, bare); !ok {
		t.Fatalf("a pod can't become what it is: %s", why)
	}
	tried := map[string]bool{}
	try := func(what string) {
		tried[what] = true
		ok, why := reader.InPlace(old, new, bare)
		if ok != allowed.MatchString(what) {
			t.Errorf("%s: in place %v, why %q", what, ok, why)
		}
		path, _, emptied := strings.Cut(what, " ")
		switch {
		case ok:
		case emptied && !strings.HasPrefix(why, path):
			t.Errorf("%s: the reason is %q, which isn't about it", what, why)
		case !emptied && !strings.HasPrefix(why, path+" changed") && !strings.HasSuffix(path, ".name"):
			t.Errorf("%s: the reason is %q", what, why)
		}
	}
	mutations(reflect.ValueOf(&new.ObjectMeta).Elem(), "metadata", try)
	mutations(reflect.ValueOf(&new.Spec).Elem(), "spec", try)
	mutations(reflect.ValueOf(&new.Spec.InitContainers[1]).Elem(), "spec.initContainers[1]", try)
	t.Logf("tried %d changes", len(tried))
	for _, what := range []string{
		"spec.containers[0].image", "spec.initContainers[1].image", "spec.initContainers[0].resources.limits[cpu]",
		"spec.initContainers[1].resources.limits[cpu]", "spec.resources.requests[memory]", "spec.ephemeralContainers[0].resources.limits[cpu]",
		"spec.containers[0].resizePolicy[0].restartPolicy", "spec.volumes[0].hostPath.path", "metadata.labels emptied",
	} {
		if !tried[what] {
			t.Errorf("%s wasn't tried; tried %q", what, slices.Sorted(maps.Keys(tried)))
		}
	}
	if ok, why := reader.InPlace(old, new, bare); !ok {
		t.Errorf("a change wasn't taken back: %s", why)
	}
}
