package paths_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/config/configtest"
	"github.com/deckhand-node/deckhand/internal/config/paths"
)

func TestLeaves(t *testing.T) {
	c := &v1beta1.KubeletConfiguration{
		TypeMeta:      metav1.TypeMeta{Kind: "KubeletConfiguration"},
		StaticPodPath: "/x",
		FailSwapOn:    ptr.To(false),
		EvictionHard:  map[string]string{"b": "2", "a": "1"},
		EvictionSoft:  map[string]string{},
		ClusterDNS:    []string{"c"},
		Tracing:       &tracingapi.TracingConfiguration{Endpoint: ptr.To("e")},
		SyncFrequency: metav1.Duration{Duration: time.Second},
	}
	got := map[string]string{}
	var order []string
	for path, value := range paths.Leaves(c) {
		got[path] = fmt.Sprint(value)
		order = append(order, path)
	}
	for path, want := range map[string]string{
		"staticPodPath": "/x", "failSwapOn": "false", "evictionHard[a]": "1", "evictionHard[b]": "2", "evictionSoft": "map[]",
		"clusterDNS": "[c]", "tracing.endpoint": "e", "tracing.samplingRatePerMillion": "<nil>", "syncFrequency": "{1s}",
		"featureGates": "<nil>", "oomScoreAdj": "<nil>", "userNamespaces": "<nil>", "authentication.webhook.enabled": "<nil>",
		"logging.options.json.splitStream": "false", "logging.vmodule": "<nil>", "maxPods": "0",
	} {
		if got[path] != want {
			t.Errorf("%s is %q, want %q", path, got[path], want)
		}
	}
	for _, none := range []string{"kind", "apiVersion", "evictionHard", "tracing", "logging", "logging.options.json"} {
		if _, ok := got[none]; ok {
			t.Errorf("%s is no leaf", none)
		}
	}
	if order[0] != "enableServer" || slices.Index(order, "evictionHard[a]") > slices.Index(order, "evictionHard[b]") {
		t.Errorf("the order is %v", order)
	}
	for range paths.Leaves(c) {
		break // an iterator that went on would panic
	}
}

func TestDiff(t *testing.T) {
	type config = v1beta1.KubeletConfiguration
	minute := metav1.Duration{Duration: time.Minute}
	taint := func(at metav1.Time) config {
		return config{RegisterWithTaints: []v1.Taint{{Key: "a", TimeAdded: &at}}}
	}
	memory := func(amount string) config {
		limits := v1.ResourceList{v1.ResourceMemory: resource.MustParse(amount)}
		return config{ReservedMemory: []v1beta1.MemoryReservation{{Limits: limits}}}
	}
	now := metav1.Unix(1e9, 0)
	for name, test := range map[string]struct {
		a, b config
		want []string
	}{
		"types don't count": {config{TypeMeta: metav1.TypeMeta{Kind: "a"}}, config{}, nil},
		"durations":         {config{SyncFrequency: minute, CPUCFSQuotaPeriod: &minute}, config{SyncFrequency: metav1.Duration{Duration: 60 * time.Second}, CPUCFSQuotaPeriod: ptr.To(minute)}, nil},
		"how a time is written": {
			config{Logging: logsapi.LoggingConfiguration{FlushFrequency: logsapi.TimeOrMetaDuration{Duration: minute}}},
			config{Logging: logsapi.LoggingConfiguration{FlushFrequency: logsapi.TimeOrMetaDuration{Duration: minute, SerializeAsString: true}}}, nil},
		"quantities":       {memory("1Gi"), memory("1024Mi"), nil},
		"other quantities": {memory("1Gi"), memory("1G"), []string{"reservedMemory"}},
		"times":            {taint(now), taint(metav1.Time{Time: now.UTC()}), nil},
		"other times":      {taint(now), taint(metav1.Unix(1, 0)), []string{"registerWithTaints"}},
		"empty or none":    {config{EvictionHard: map[string]string{}, ClusterDNS: []string{}}, config{}, nil},
		"pointer or none":  {config{FailSwapOn: ptr.To(false), Tracing: &tracingapi.TracingConfiguration{}}, config{}, []string{"failSwapOn", "tracing"}},
		"struct or none":   {config{}, config{Tracing: &tracingapi.TracingConfiguration{Endpoint: ptr.To("")}}, []string{"tracing.endpoint"}},
		"maps":             {config{EvictionHard: map[string]string{"a": "1", "b": "2", "c": "3"}}, config{EvictionHard: map[string]string{"b": "2", "c": "4", "d": ""}}, []string{"evictionHard[a]", "evictionHard[c]", "evictionHard[d]"}},
		"lists":            {config{ClusterDNS: []string{"a", "b"}}, config{ClusterDNS: []string{"b", "a"}}, []string{"clusterDNS"}},
		"sorted":           {config{StaticPodPath: "a", Address: "b"}, config{}, []string{"address", "staticPodPath"}},
	} {
		for _, got := range [][]string{paths.Diff(&test.a, &test.b), paths.Diff(&test.b, &test.a)} {
			if !slices.Equal(got, test.want) {
				t.Errorf("%s: %v, want %v", name, got, test.want)
			}
		}
	}
}

func TestDiffFindsEveryChange(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := configtest.Draw(r, "config")
		if diff := paths.Diff(c, c.DeepCopy()); len(diff) > 0 {
			r.Fatalf("a copy differs in %v", diff)
		}
		var all []mutation
		changed := c.DeepCopy()
		collect(&all, "", reflect.ValueOf(changed).Elem())
		m := rapid.SampledFrom(all).Draw(r, "mutation")
		m.apply()
		if diff := paths.Diff(c, changed); !slices.Equal(diff, []string{m.path}) {
			r.Fatalf("a change of %s is found as %v", m.path, diff)
		}
	})
}

// mutation changes one setting.
type mutation struct {
	path  string
	apply func()
}

// String is how rapid shows it.
func (m mutation) String() string { return m.path }

// collect finds a mutation of every leaf of v.
func collect(all *[]mutation, path string, v reflect.Value) {
	add := func(path string, apply func()) { *all = append(*all, mutation{path, apply}) }
	switch {
	case path == "apiVersion" || path == "kind":
	case paths.HasOwnForm(v.Type()):
		add(path, func() { changeForm(v) })
	case v.Kind() == reflect.Struct:
		for f := range paths.Fields(v) {
			collect(all, paths.Below(path, f.Name), f.Value)
		}
	case v.Kind() == reflect.Pointer && v.IsNil():
		add(path, func() { v.Set(reflect.New(v.Type().Elem())) })
	case v.Kind() == reflect.Pointer:
		collect(all, path, v.Elem())
	case v.Kind() == reflect.Map:
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		set := func(key, elem reflect.Value) { v.SetMapIndex(key.Convert(v.Type().Key()), elem) }
		add(paths.Of(path, "fresh"), func() { set(reflect.ValueOf("fresh"), reflect.Zero(v.Type().Elem())) })
		for _, key := range v.MapKeys() {
			add(paths.Of(path, key), func() { set(key, reflect.Value{}) })
		}
	case v.Kind() == reflect.Slice:
		add(path, func() { v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem()))) })
	default:
		add(path, func() { change(v) })
	}
}

func change(v reflect.Value) {
	switch {
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "x")
	case v.CanInt():
		v.SetInt(v.Int() ^ 1)
	case v.CanUint():
		v.SetUint(v.Uint() ^ 1)
	default:
		v.SetFloat(v.Float()/2 + 1)
		if v.Float() == 2 {
			v.SetFloat(1)
		}
	}
}

func changeForm(v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *metav1.Duration:
		x.Duration ^= 1
	case *logsapi.TimeOrMetaDuration:
		x.Duration.Duration ^= 1
	case *resource.Quantity:
		x.Add(resource.MustParse("1"))
	case *resource.QuantityValue:
		x.Add(resource.MustParse("1"))
	case *metav1.Time:
		x.Time = x.Add(time.Second)
	}
}
