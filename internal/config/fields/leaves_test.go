package fields

import (
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

func leafAt(t *testing.T, path string) leaf {
	t.Helper()
	for _, l := range leaves() {
		if l.Path == path {
			return l
		}
	}
	t.Fatalf("there is no %s", path)
	return leaf{}
}

func TestPathsFollowTheJSONNames(t *testing.T) {
	for path, name := range map[string]string{
		"apiVersion":                          "APIVersion", // inlined
		"resolvConf":                          "ResolverConfig",
		"authentication.x509.clientCAFile":    "ClientCAFile",
		"logging.options.json.infoBufferSize": "InfoBufferSize", // inlined, in a struct of a struct
		"tracing.endpoint":                    "Endpoint",       // behind a pointer
		"logging.flushFrequency":              "FlushFrequency", // a struct with a form of its own
	} {
		if l := leafAt(t, path); l.Name != name {
			t.Errorf("%s: %s, want %s", path, l.Name, name)
		}
	}
}

func TestLeavesOf(t *testing.T) {
	var c v1beta1.KubeletConfiguration
	value := func(path string) reflect.Value {
		for _, l := range leavesOf(&c) {
			if l.Path == path {
				return l.Value
			}
		}
		t.Fatalf("there is no %s", path)
		return reflect.Value{}
	}
	if v := value("userNamespaces.idsPerPod"); v.IsValid() {
		t.Errorf("%v is in a struct that isn't there", v)
	}
	c.UserNamespaces = &v1beta1.UserNamespaces{IDsPerPod: ptr.To[int64](65536)}
	if v := value("userNamespaces.idsPerPod"); !v.IsValid() || valueText(v) != "65536" {
		t.Errorf("got %v", v)
	}
	c.Logging.Options.JSON.InfoBufferSize = resource.QuantityValue{Quantity: resource.MustParse("64Ki")}
	if v := value("logging.options.json.infoBufferSize"); valueText(v) != "64Ki" {
		t.Errorf("got %v", v)
	}
	if v := value("logging.options.text.infoBufferSize"); valueText(v) != "0" {
		t.Errorf("got %v: that of the other format", v)
	}
	if len(leavesOf(&c)) != len(leaves()) {
		t.Error("some fields are only in a configuration, or only in the type")
	}
}

func TestValues(t *testing.T) {
	for _, c := range []struct {
		value any
		text  string
		zero  bool
		kind  string
	}{
		{"", "", true, "string"},
		{"x", "x", false, "string"},
		{false, "false", true, "true or false"},
		{ptr.To(false), "false", false, "true or false"},
		{(*bool)(nil), "", true, "true or false"},
		{ptr.To(""), "", false, "string"},
		{int32(0), "0", true, "integer"},
		{ptr.To(0.9), "0.9", false, "number"},
		{metav1.Duration{}, "0s", true, "duration"},
		{metav1.Duration{Duration: 4 * time.Hour}, "4h", false, "duration"},
		{metav1.Duration{Duration: 10 * time.Minute}, "10m", false, "duration"},
		{metav1.Duration{Duration: 90 * time.Second}, "1m30s", false, "duration"},
		{metav1.Duration{Duration: time.Hour + time.Second}, "1h0m1s", false, "duration"},
		{metav1.Duration{Duration: 100 * time.Millisecond}, "100ms", false, "duration"},
		{logsapi.TimeOrMetaDuration{SerializeAsString: true}, "0s", true, "duration"},
		{logsapi.TimeOrMetaDuration{Duration: metav1.Duration{Duration: time.Second}}, "1s", false, "duration"},
		{resource.QuantityValue{}, "0", true, "quantity"},
		{resource.QuantityValue{Quantity: resource.MustParse("0")}, "0", true, "quantity"},
		{resource.QuantityValue{Quantity: resource.MustParse("1Ki")}, "1Ki", false, "quantity"},
		{[]string{}, "", true, "list of strings"},
		{[]string{"b", "a"}, "b, a", false, "list of strings"},
		{[]int32(nil), "", true, "list of integers"},
		{map[string]bool{"b": true, "a": false}, "a: false, b: true", false, "map of names to true or false"},
		{map[string][]string{}, "", true, "map of names to lists of strings"},
		{logsapi.VModuleConfiguration{}, "", true, "list of mappings"},
	} {
		v := reflect.ValueOf(c.value)
		if text, zero, kind := valueText(v), isZero(v), kindOf(v.Type()); text != c.text || zero != c.zero || kind != c.kind {
			t.Errorf("%#v: %q, zero %v, %s; want %q, zero %v, %s", c.value, text, zero, kind, c.text, c.zero, c.kind)
		}
	}
}
