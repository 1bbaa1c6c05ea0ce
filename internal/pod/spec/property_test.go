package spec

import (
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/pod/manifest"
)

// reporter is what checkAny needs of a test, be it testing's or rapid's.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// checkAny is what must hold for any pod whatsoever.
func checkAny(t reporter, p *v1.Pod) {
	t.Helper()
	Validate(p) // never panics, defaulted or not
	SetDefaults(p)
	once := p.DeepCopy()
	SetDefaults(p)
	if diff := cmp.Diff(once, p); diff != "" {
		t.Errorf("SetDefaults changed a pod it had defaulted:\n%s", diff)
	}
	errs := Validate(p)
	for _, e := range errs {
		if e.Field == "" || e.Detail == "" {
			t.Errorf("%v doesn't say where it is wrong and what would be valid", e)
		}
	}
	first := describe(errs)
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

// leaves collects every value of a pod that can be changed by itself, and the
// pointers, lists and maps on the way to them.
func leaves(v reflect.Value, found []reflect.Value) []reflect.Value {
	if _, ok := v.Addr().Interface().(*resource.Quantity); ok {
		return append(found, v)
	}
	switch v.Kind() {
	case reflect.Pointer:
		found = append(found, v)
		if !v.IsNil() {
			found = leaves(v.Elem(), found)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				found = leaves(v.Field(i), found)
			}
		}
	case reflect.Slice:
		found = append(found, v)
		for i := range v.Len() {
			found = leaves(v.Index(i), found)
		}
	default:
		found = append(found, v)
	}
	return found
}

// mutate changes one value of a pod: to nothing, to an extreme, to a word that
// means something elsewhere, or, where it is a list, to one with an item less or twice.
func mutate(t *rapid.T, v reflect.Value) {
	if q, ok := v.Addr().Interface().(*resource.Quantity); ok {
		*q = *resource.NewMilliQuantity(rapid.Int64().Draw(t, "thousandths"), resource.DecimalSI)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		} else {
			v.SetZero()
		}
	case reflect.Slice:
		if n := v.Len(); n > 0 && rapid.Bool().Draw(t, "twice") {
			v.Set(reflect.Append(v, v.Index(rapid.IntRange(0, n-1).Draw(t, "item"))))
		} else if n > 0 {
			v.SetLen(n - 1)
		} else {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
	case reflect.Map:
		v.SetZero()
	case reflect.String:
		words := []string{"", "x", "http", "A b", "8080", "main", "sidecar", "Always", "Never", "OnFailure", "Restart", "RestartContainer", "windows", "SIGTERM", "cpu", "../x", "[::1]", "\x00é"}
		v.SetString(rapid.SampledFrom(words).Draw(t, "word"))
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int32, reflect.Int64:
		v.SetInt(rapid.SampledFrom([]int64{-1, 0, 1, 30, 31, 255, 256, 65535, 65536, math.MaxInt32, math.MinInt32}).Draw(t, "number"))
	}
}

// A good pod stays a pod that can be judged, however it is changed: what goes
// wrong near what is right is what people write.
func TestMutatedPod(t *testing.T) {
	good := everything(t)
	rapid.Check(t, func(t *rapid.T) {
		p := good.DeepCopy()
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			// Changing one thing can add or remove others.
			found := leaves(reflect.ValueOf(&p.Spec).Elem(), nil)
			mutate(t, found[rapid.IntRange(0, len(found)-1).Draw(t, "where")])
		}
		checkAny(t, p)
	})
}

// FuzzPod reads pods as the agent does: what package manifest lets through must
// be safe here.
func FuzzPod(f *testing.F) {
	text, err := os.ReadFile("testdata/everything.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
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
