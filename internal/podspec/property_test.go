package podspec

import (
	"math/rand/v2"
	"os"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/deckhand-node/deckhand/internal/manifest"
)

// checkAny is what must hold for any pod whatsoever.
func checkAny(t *testing.T, p *v1.Pod) {
	t.Helper()
	Validate(p) // never panics, defaulted or not
	SetDefaults(p)
	once := p.DeepCopy()
	SetDefaults(p)
	if diff := cmp.Diff(once, p); diff != "" {
		t.Errorf("SetDefaults changed a pod it had defaulted:\n%s", diff)
	}
	first := describe(Validate(p))
	if diff := cmp.Diff(once, p); diff != "" {
		t.Errorf("Validate changed the pod:\n%s", diff)
	}
	if diff := cmp.Diff(first, describe(Validate(p))); diff != "" {
		t.Errorf("Validate says different things of the same pod:\n%s", diff)
	}
}

// filler sets every field of a pod at random, nil and empty included.
type filler struct{ r *rand.Rand }

func (f filler) fill(v reflect.Value, depth int) {
	if q, ok := v.Addr().Interface().(*resource.Quantity); ok {
		*q = *resource.NewMilliQuantity(f.r.Int64N(1<<40)-1<<20, resource.DecimalSI)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if depth > 0 && f.r.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), depth-1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				f.fill(v.Field(i), depth)
			}
		}
	case reflect.Slice:
		if depth > 0 && v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), f.r.IntN(3), 3))
			for i := range v.Len() {
				f.fill(v.Index(i), depth-1)
			}
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range f.r.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key, depth-1)
			f.fill(value, depth-1)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		words := []string{"", "a", "A b", "cpu", "hugepages-2Mi", "hugepages-", "../x", "metadata.labels['", "kernel.sem", "In", "Always", "Never", "linux", "Localhost", "None", "\x00", "é", "["}
		v.SetString(words[f.r.IntN(len(words))])
	case reflect.Bool:
		v.SetBool(f.r.IntN(2) == 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(int32(f.r.Uint32())) >> f.r.IntN(32))
	}
}

func TestAnyPod(t *testing.T) {
	for seed := range uint64(300) {
		p := &v1.Pod{}
		filler{rand.New(rand.NewPCG(seed, 1))}.fill(reflect.ValueOf(p).Elem(), 9)
		checkAny(t, p)
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

// FuzzPod reads pods as the agent does: what package manifest lets through must
// be safe here.
func FuzzPod(f *testing.F) {
	everything, err := os.ReadFile("testdata/everything.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(everything)
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod"}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{}],"initContainers":[{}],"volumes":[{}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, d := range manifest.Decode(data) {
			if d.Pod == nil {
				continue
			}
			checkAny(t, d.Pod)
			for _, e := range Validate(d.Pod) {
				if line := d.LineOf(e.Field); line < 1 {
					t.Errorf("no line for %s", e.Field)
				}
			}
		}
	})
}
