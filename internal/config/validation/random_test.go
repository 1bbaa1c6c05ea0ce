package validation_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/validation"
)

// patience is far more than any validation takes, also on a busy machine.
const patience = 5 * time.Second

// texts are what a field might hold, of this field or of another.
var texts = []string{
	"", "x", "\x00", "ä", "true", "none", "static", "Static", "restricted", "pods", "kube-reserved", "0", "-1", "1", "0-1", "0-999999999", "1-", "50%", "-1%", "NaN%", "1e999%",
	"1Gi", "500m", "1e9", "1e999999999", "1e-99999999", "Ei", "E", "e", ".", "-", "/", "//", "..", "/a/../b", "a/*", "*", "a:1", "1s", "-1s", "unix://", "http://[", "10.0.0.0/8", "::1",
	"memory.available", "memory", "cpu", "hugepages-2Mi", "full-pcpus-only", "max-allowable-numa-nodes", strings.Repeat("9", 1000), strings.Repeat("a.", 500),
}

// quantities can be read by the decoder, however long they take to compute with.
var quantities = []string{"0", "1", "-1", "1Gi", "500m", "1.5Gi", "1e99", "1e9999999", "-1e9999999", "1e-9"}

// mutate changes v and what is below it at random.
func mutate(t *rapid.T, v reflect.Value, path string) {
	if q, ok := v.Addr().Interface().(*resource.Quantity); ok {
		*q = resource.MustParse(rapid.SampledFrom(quantities).Draw(t, path))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() && rapid.IntRange(0, 3).Draw(t, path+" set") == 0 {
			v.Set(reflect.New(v.Type().Elem()))
		}
		if !v.IsNil() {
			mutate(t, v.Elem(), path)
		}
	case reflect.Struct:
		if _, ok := v.Interface().(metav1.Time); ok {
			return
		}
		for i := range v.NumField() {
			mutate(t, v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), size(t, path), 4))
		for i := range v.Len() {
			mutate(t, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range size(t, path) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.SetString(rapid.SampledFrom(texts).Draw(t, path+" key"))
			mutate(t, value, path+"["+key.String()+"]")
			v.SetMapIndex(key, value)
		}
	default:
		scalar(t, v, path)
	}
}

// size is mostly 0.
func size(t *rapid.T, path string) int { return max(rapid.IntRange(-4, 4).Draw(t, path+" size"), 0) }

// scalar leaves most values alone, so that checks which need others to be good are reached too.
func scalar(t *rapid.T, v reflect.Value, path string) {
	if rapid.IntRange(0, 3).Draw(t, path+" changed") > 0 {
		return
	}
	numbers := rapid.SampledFrom([]int64{math.MinInt64, math.MinInt32, -1, 0, 1, 23, 100, 65536, int64(time.Second), math.MaxInt32, math.MaxInt64})
	switch {
	case v.Kind() == reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, path))
	case v.Kind() == reflect.String:
		v.SetString(rapid.SampledFrom(texts).Draw(t, path))
	case v.CanInt():
		v.SetInt(numbers.Draw(t, path))
	case v.CanUint():
		v.SetUint(uint64(numbers.Draw(t, path)))
	case v.CanFloat():
		v.SetFloat(rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), -1, 0, 0.5, 2}).Draw(t, path))
	default:
		t.Fatalf("%s: there is no way to change a %s", path, v.Type())
	}
}

func randomConfiguration(t *rapid.T) {
	var c v1beta1.KubeletConfiguration
	mutate(t, reflect.ValueOf(&c).Elem(), "c")
	config.SetDefaults(&c)
	before := c.DeepCopy()
	start := time.Now()
	errs := validation.Validate(&c, someGates(c.FeatureGates))
	if took := time.Since(start); took > patience {
		t.Fatalf("it took %s", took)
	}
	if !reflect.DeepEqual(&c, before) && c.MemoryThrottlingFactor != nil && !math.IsNaN(*c.MemoryThrottlingFactor) {
		t.Fatal("the configuration was changed")
	}
	known := leaves(reflect.TypeFor[v1beta1.KubeletConfiguration](), "")
	for _, e := range errs {
		path := index.ReplaceAllString(e.Field, "")
		within := func(leaf string) bool { return leaf == path || strings.HasPrefix(leaf, path+".") }
		if !slices.ContainsFunc(known, within) || e.Message == "" {
			t.Fatalf("a problem nobody can act on: %v", e)
		}
	}
}

func TestRandomConfigurations(t *testing.T) { rapid.Check(t, randomConfiguration) }

func FuzzRandomConfigurations(f *testing.F) { f.Fuzz(rapid.MakeFuzz(randomConfiguration)) }

// Each text in each place where texts go, so that none of them is slow anywhere.
func TestNoTextIsSlow(t *testing.T) {
	for _, text := range append(texts, strings.Repeat("1,", 100_000)+"1") {
		c := v1beta1.KubeletConfiguration{
			ContainerLogMaxSize: text, ReservedSystemCPUs: text, PodCIDR: text, StaticPodURL: text, ClusterDomain: text,
			SystemReserved: map[string]string{"cpu": text, text: text}, QOSReserved: map[string]string{"memory": text},
			EvictionHard: map[string]string{"memory.available": text}, EvictionMinimumReclaim: map[string]string{"memory.available": text},
			AllowedUnsafeSysctls: []string{text}, PreloadedImagesVerificationAllowlist: []string{text},
			RegisterWithTaints: []v1.Taint{{Key: text, Value: text, Effect: v1.TaintEffect(text)}},
		}
		config.SetDefaults(&c)
		start := time.Now()
		validation.Validate(&c, someGates{})
		if took := time.Since(start); took > patience {
			t.Errorf("%.40q: it took %s", text, took)
		}
	}
}
