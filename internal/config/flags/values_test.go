package flags

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubelet/config/v1beta1"
)

func TestTaints(t *testing.T) {
	var got []v1.Taint
	value := newTaintsValue(&got)
	if err := value.Set("example.com/a=b:NoSchedule,a:NoExecute,a:PreferNoSchedule"); err != nil {
		t.Fatal(err)
	}
	want := []v1.Taint{{Key: "example.com/a", Value: "b", Effect: "NoSchedule"}, {Key: "a", Effect: "NoExecute"}, {Key: "a", Effect: "PreferNoSchedule"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	text := value.String()
	if err := value.Set(text); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q reads as %v, %v", text, got, err)
	}
	if err := value.Set("a=b,c:NoSchedule,d:x"); err == nil || strings.Count(err.Error(), "\n") != 1 || len(got) != 1 {
		t.Errorf("want two errors and one taint, got %v and %v", err, got)
	}
}

func TestReservedMemory(t *testing.T) {
	var got []v1beta1.MemoryReservation
	value := newMemoryValue(&got)
	const text = "0:hugepages-2Mi=4Mi,memory=1Gi;1:memory=2Gi"
	for _, set := range []string{"", text} {
		if err := value.Set(set); err != nil || value.Given() != (set != "") {
			t.Errorf("%q: said %v, error %v", set, value.Given(), err)
		}
	}
	if value.String() != text || len(got) != 2 || got[1].Limits.Memory().Value() != 2<<30 {
		t.Errorf("got %v, as text %s", got, value)
	}
	if err := value.Set("2:memory=1Gi;3:memory"); err == nil || len(got) != 2 {
		t.Errorf("half of a bad text was taken: %v, error %v", got, err)
	}
}

func TestQuantity(t *testing.T) {
	var got resource.QuantityValue
	value := newQuantityValue(&got)
	for text, want := range map[string]int64{"1Ki": 1024, "2E": 2e18, "3Ei": 3 << 60, "1e3": 1000, "0": 0} {
		if err := value.Set(text); err != nil || got.Value() != want {
			t.Errorf("%s is %d, error %v", text, got.Value(), err)
		}
	}
	for _, text := range []string{"", "x", "1e1000", "1e-999999999", "1E+00009"} {
		if err := value.Set(text); err == nil {
			t.Errorf("%q was taken as %v", text, got.String())
		}
	}
}

func TestVersionOfABadBuild(t *testing.T) {
	value := newVersion("devel")
	if err := value.Set("v1.36.3"); err == nil || value.Reported != "" {
		t.Errorf("reported %q, error %v", value.Reported, err)
	}
}

// failing fails with what it is given.
type failing struct{}

func (failing) Set(text string) error {
	if text == "two" {
		return errors.Join(errors.New("one"), errors.New("two"))
	}
	return errors.New(text)
}
func (failing) String() string { return "" }
func (failing) Type() string   { return "failing" }

func TestDeferred(t *testing.T) {
	own, fixed := &deferredValue{Value: failing{}}, &deferredValue{Value: failing{}, Message: "no"}
	for _, d := range []*deferredValue{own, fixed} {
		for _, text := range []string{"two", "secret"} {
			if err := d.Set(text); err != nil {
				t.Error(err)
			}
		}
	}
	if got := own.Problems(); !reflect.DeepEqual(got, []string{"one", "two", "secret"}) {
		t.Errorf("own %q", got)
	}
	if got := fixed.Problems(); !reflect.DeepEqual(got, []string{"no", "no"}) {
		t.Errorf("fixed %q", got)
	}
}
