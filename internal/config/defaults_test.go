package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/config/validation"
	"github.com/deckhand-node/deckhand/internal/kit/goldentest"
)

func defaulted(t *testing.T, text string) *v1beta1.KubeletConfiguration {
	t.Helper()
	var c v1beta1.KubeletConfiguration
	if err := yaml.UnmarshalStrict([]byte(text), &c); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	SetDefaults(&c)
	return &c
}

// The golden file was checked by hand against the comments of the API type, and against
// what a kubelet 1.36.3 without settings shows at /configz. It differs from the latter in
// containerRuntimeEndpoint (the embedded runtime) and podLogsDir, whose documented default
// ends in a slash.
func TestDefaultsAreTheDocumentedOnes(t *testing.T) {
	text, err := yaml.Marshal(defaulted(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	goldentest.Compare(t, "testdata/defaults.yaml", string(text), *update)
}

// Fields without a default are in a file too: also that they have none is documented.
func TestEachFieldHasItsDefault(t *testing.T) {
	var b strings.Builder
	list(t, &b, reflect.ValueOf(defaulted(t, "userNamespaces: {}")).Elem(), "")
	goldentest.Compare(t, "testdata/every-default.txt", b.String(), *update)
}

// list writes each field below v with its value as JSON.
func list(t *testing.T, b *strings.Builder, v reflect.Value, path string) {
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if value.Kind() == reflect.Pointer && !value.IsNil() {
			value = value.Elem()
		}
		switch {
		case name == "-":
		case f.Anonymous && name == "":
			list(t, b, value, path)
		case value.Kind() == reflect.Struct && !reflect.PointerTo(value.Type()).Implements(reflect.TypeFor[json.Unmarshaler]()):
			list(t, b, value, path+name+".")
		default:
			text, err := json.Marshal(value.Interface())
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(b, "%s%s: %s\n", path, name, text)
		}
	}
}

// Also where the gate of a field is off, its default must do.
func TestDefaultsAreValid(t *testing.T) {
	for _, all := range []allGates{true, false} {
		if errs := validation.Validate(defaulted(t, "userNamespaces: {}"), all); len(errs) > 0 {
			t.Errorf("gates %v: %v", all, errs)
		}
	}
}

// allGates are all on, or all off.
type allGates bool

func (g allGates) Enabled(string) bool { return bool(g) }

// What was given stays, also where it is a zero that can be distinguished from none; and some
// defaults depend on other fields.
func TestDefaultsBesideWhatIsGiven(t *testing.T) {
	const others = `nodefs.available: 10%, nodefs.inodesFree: 5%, imagefs.available: 15%, imagefs.inodesFree: 5%`
	for _, c := range []struct{ given, want string }{
		{"{healthzPort: 0, oomScoreAdj: 0}", "{healthzPort: 0, oomScoreAdj: 0}"},
		{"{failSwapOn: false, failCgroupV1: false, enableServer: false}", "{failSwapOn: false, failCgroupV1: false, enableServer: false}"},
		{"resolvConf: ''", "resolvConf: ''"},
		{"enforceNodeAllocatable: []", "enforceNodeAllocatable: null"},
		{"fileCheckFrequency: 3s", "fileCheckFrequency: 3s"},
		{"{eventRecordQPS: 0, registryPullQPS: 0, kubeAPIQPS: 0, podPidsLimit: 0}", "{eventRecordQPS: 0, registryPullQPS: 0, kubeAPIQPS: 0, podPidsLimit: 0}"},
		{"{eventBurst: 0, imageMinimumGCAge: 0s, evictionPressureTransitionPeriod: 0s}", "{eventBurst: 100, imageMinimumGCAge: 2m0s, evictionPressureTransitionPeriod: 5m0s}"},
		{"", "{userNamespaces: null, tracing: null, serializeImagePulls: true}"},
		{"{userNamespaces: {}, tracing: {}}", "{userNamespaces: {idsPerPod: 65536}, tracing: {}}"},

		// Who sets how often the status is computed means how often it is reported, too.
		{"nodeStatusUpdateFrequency: 7s", "{nodeStatusUpdateFrequency: 7s, nodeStatusReportFrequency: 7s}"},
		{"{nodeStatusUpdateFrequency: 7s, nodeStatusReportFrequency: 0s}", "{nodeStatusUpdateFrequency: 7s, nodeStatusReportFrequency: 7s}"},
		{"{nodeStatusUpdateFrequency: 7s, nodeStatusReportFrequency: 9s}", "{nodeStatusUpdateFrequency: 7s, nodeStatusReportFrequency: 9s}"},
		{"nodeStatusReportFrequency: 9s", "{nodeStatusUpdateFrequency: 10s, nodeStatusReportFrequency: 9s}"},

		// Who sets a number of parallel pulls needn't also say that they aren't serial.
		{"maxParallelImagePulls: 3", "serializeImagePulls: false"},
		{"maxParallelImagePulls: 1", "serializeImagePulls: true"},
		{"{maxParallelImagePulls: 3, serializeImagePulls: true}", "serializeImagePulls: true"},

		// One threshold switches the others off, unless they are to be merged.
		{"evictionHard: {}", "evictionHard: null"},
		{"evictionHard: {memory.available: 1Gi}", "evictionHard: {memory.available: 1Gi}"},
		{"mergeDefaultEvictionSettings: true", "evictionHard: {memory.available: 100Mi, " + others + "}"},
		{"{mergeDefaultEvictionSettings: true, evictionHard: {}}", "evictionHard: {memory.available: 100Mi, " + others + "}"},
		{"{mergeDefaultEvictionSettings: true, evictionHard: {memory.available: 1Gi, pid.available: 5%}}", "evictionHard: {memory.available: 1Gi, pid.available: 5%, " + others + "}"},
	} {
		got := defaulted(t, c.given)
		all, want := settings(t, got), map[string]any{}
		if err := yaml.Unmarshal([]byte(c.want), &want); err != nil {
			t.Fatal(err)
		}
		for name, value := range want {
			if diff := cmp.Diff(value, all[name]); diff != "" {
				t.Errorf("%s: %s is wrong (-want +got):\n%s", c.given, name, diff)
			}
		}
		SetDefaults(got)
		if diff := cmp.Diff(all, settings(t, got)); diff != "" {
			t.Errorf("%s: defaults set once more (-once +twice):\n%s", c.given, diff)
		}
	}
}

// settings are the fields of c that the API writes, by name: nil and empty ones are left out.
func settings(t *testing.T, c *v1beta1.KubeletConfiguration) map[string]any {
	t.Helper()
	text, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := yaml.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
