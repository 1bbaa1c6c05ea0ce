package transcript

import (
	"reflect"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// filler puts random values into whatever it is given, so that a field that is
// new is tested as well.
type filler struct {
	rt *rapid.T
	// next makes names of things in lists that nothing else has.
	next int
}

var strange = []string{"web", "", "-", "a b", `say "no"`, "two\nlines", "(x)", "a)", "a=b", "[x,y]", "ok", "place=0", "@kept", "grüße", "{", "failed", "cancelled", "+1s", "none", "gone", "container", "\x00", "of=x", `\`, "a,b", "keepLog", "x.y", "<&>", "\x1b[2J\x1b]0;owned\x07", "\u009b31m", "a\u202eb", "x\x7f", "\u0085", "\u2066", "\r"}

func (f *filler) fill(v reflect.Value, depth int) {
	switch p := v.Addr().Interface().(type) {
	case *time.Time:
		*p = f.time()
		return
	case *resource.Quantity:
		*p = *resource.NewMilliQuantity(int64(rapid.IntRange(0, 5000).Draw(f.rt, "quantity")), resource.DecimalSI)
		return
	case *intstr.IntOrString:
		if *p = intstr.FromInt32(int32(rapid.IntRange(0, 9).Draw(f.rt, "port"))); p.IntVal == 0 {
			*p = intstr.FromString(rapid.SampledFrom(strange).Draw(f.rt, "named port"))
		}
		return
	case *pod.ActionKind:
		*p = rapid.SampledFrom([]pod.ActionKind{pod.AdmitPod, pod.PreparePod, pod.CreateSandbox, pod.StopContainer, pod.EnsureImage, pod.SaveCheckpoint, pod.CreateContainer}).Draw(f.rt, "kind")
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(f.rt, "bool"))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(rapid.IntRange(-1, 100).Draw(f.rt, "int")))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(rapid.IntRange(0, 100).Draw(f.rt, "uint")))
	case reflect.String:
		v.SetString(rapid.SampledFrom(strange).Draw(f.rt, "string"))
	case reflect.Pointer:
		if depth > 0 && rapid.Bool().Draw(f.rt, "pointer") {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), depth-1)
		}
	case reflect.Slice:
		if depth > 0 {
			n := rapid.IntRange(0, 3).Draw(f.rt, "len")
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				f.fill(v.Index(i), depth-1)
			}
		}
	case reflect.Map:
		if depth > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range rapid.IntRange(0, 2).Draw(f.rt, "entries") {
				key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				f.fill(key, depth-1)
				f.fill(value, depth-1)
				v.SetMapIndex(key, value)
			}
		}
	case reflect.Struct:
		f.fillStruct(v, depth)
	}
}

// fillStruct fills some of the fields, most of a shallow struct, few of a deep one.
func (f *filler) fillStruct(v reflect.Value, depth int) {
	for i := range v.NumField() {
		if !v.Type().Field(i).IsExported() {
			continue
		}
		if v.NumField() < 6 || rapid.IntRange(0, 3).Draw(f.rt, "field") == 0 {
			f.fill(v.Field(i), depth-1)
		}
	}
	switch p := v.Addr().Interface().(type) {
	case *pod.Action:
		f.fill(v.FieldByName("Kind"), 0)
	case *pod.Sandbox:
		p.ID = f.name("sandbox")
	case *pod.Container:
		p.ID = f.name("container")
	case *pod.Probe:
		p.ID = f.name("instance")
	}
}

// name draws a name that is known already or a new one, a strange one at times.
func (f *filler) name(what string) string {
	f.next++
	return what + strange[rapid.IntRange(0, len(strange)-1).Draw(f.rt, "oddity")] + strconv.Itoa(f.next)
}

func (f *filler) time() time.Time {
	switch rapid.IntRange(0, 3).Draw(f.rt, "time") {
	case 0:
		return time.Time{}
	case 1:
		return time.Date(1970, 1, 1, 0, 0, 0, 1, time.FixedZone("east", 3600))
	}
	return epoch.Add(time.Duration(rapid.Int64Range(-1e12, 1e12).Draw(f.rt, "offset")))
}
