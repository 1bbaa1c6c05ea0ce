package spec

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// free are types of texts that may be anything here, and why.
var free = map[string]string{
	"types.UID":                        "a name",
	"v1.PodConditionType":              "anybody may define one (readinessGates)",
	"v1.ResourceName":                  "anybody may define one; validated by its form",
	"v1.Capability":                    "the kernel's, which may be newer; the runtime refuses one that it doesn't know",
	"v1.StorageMedium":                 "API servers don't check it; the volume can't be made",
	"v1.TaintEffect":                   "a toleration with an unknown one tolerates nothing",
	"v1.TolerationOperator":            "an unknown one tolerates nothing",
	"v1.NodeSelectorOperator":          "an unknown one selects no node",
	"v1.LabelSelectorOperator":         "for the scheduler and controllers",
	"v1.UnsatisfiableConstraintAction": "for the scheduler",
	"v1.NodeInclusionPolicy":           "for the scheduler",
	"v1.PersistentVolumeAccessMode":    "of a claim's template, for a controller",
	"v1.PersistentVolumeMode":          "of a claim's template, for a controller",
	"v1.AzureDataDiskCachingMode":      "of a volume that isn't supported",
	"resource.Format":                  "inside of quantities",
	"v1.ManagedFieldsOperationType":    "of a claim's template, for the API server",
	"v1.AzureDataDiskKind":             "of a volume that isn't supported",
}

// TestEnumsAreComplete: each type of text in a pod's spec is in the table, or is known to be free.
func TestEnumsAreComplete(t *testing.T) {
	known, seen := enums(), map[reflect.Type]bool{}
	var look func(reflect.Type)
	look = func(at reflect.Type) {
		if seen[at] {
			return
		}
		seen[at] = true
		switch at.Kind() {
		case reflect.Pointer, reflect.Slice:
			look(at.Elem())
		case reflect.Map:
			look(at.Key())
			look(at.Elem())
		case reflect.Struct:
			for i := range at.NumField() {
				if at.Field(i).IsExported() {
					look(at.Field(i).Type)
				}
			}
		case reflect.String:
			if _, is := known[at]; !is && at.PkgPath() != "" {
				if _, is := free[at.String()]; !is {
					t.Errorf("%s: neither in the table nor known to be free", at)
				}
			}
		}
	}
	look(reflect.TypeFor[v1.PodSpec]())
	for at := range known {
		if !seen[at] {
			t.Errorf("%s isn't of a pod's spec", at)
		}
	}
}

// filled has one of everything, each text of a known type "Bogus".
func filled(known map[reflect.Type][]string) (*v1.Pod, []string) {
	p := &v1.Pod{}
	var paths []string
	var fill func(v reflect.Value, at string)
	fill = func(v reflect.Value, at string) {
		switch v.Kind() {
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), at)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), at+"[0]")
		case reflect.Struct:
			for i := range v.NumField() {
				f := v.Type().Field(i)
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if name != "" {
					name = "." + name
				}
				if f.IsExported() {
					fill(v.Field(i), at+name)
				}
			}
		case reflect.String:
			if _, is := known[v.Type()]; is {
				v.SetString("Bogus")
				paths = append(paths, at)
			}
		}
	}
	fill(reflect.ValueOf(&p.Spec).Elem(), "spec")
	return p, paths
}

// TestUnknownValues: each is refused, by its path; each known one, and none, is taken.
func TestUnknownValues(t *testing.T) {
	p, want := filled(enums())
	var got []string
	for _, err := range UnknownValues(p) {
		got = append(got, err.Field)
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) < 60 || !slices.Equal(got, want) {
		t.Errorf("refused %d: %q\nwant %d: %q", len(got), got, len(want), want)
	}
	for kind, list := range enums() {
		for _, text := range append([]string{""}, list...) {
			good, _ := filled(map[reflect.Type][]string{kind: list})
			set(reflect.ValueOf(&good.Spec).Elem(), kind, text)
			if errs := UnknownValues(good); len(errs) > 0 {
				t.Errorf("%s %q: %v", kind, text, errs)
			}
		}
	}
	huge := &v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "HugePages-2Mi"}}}}}}
	if errs := UnknownValues(huge); len(errs) > 0 {
		t.Error(errs)
	}
	if text := Refusal(UnknownValues(&v1.Pod{Spec: v1.PodSpec{RestartPolicy: "Sometimes", DNSPolicy: "Never"}})); text != `spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never" (and 1 more like it)` {
		t.Error(text)
	}
}

// set gives all texts of a type this value.
func set(v reflect.Value, kind reflect.Type, text string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			set(v.Elem(), kind, text)
		}
	case reflect.Slice:
		for i := range v.Len() {
			set(v.Index(i), kind, text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				set(v.Field(i), kind, text)
			}
		}
	case reflect.String:
		if v.Type() == kind {
			v.SetString(text)
		}
	}
}

// TestManifestsWithUnknownValues are refused, too, whichever field it is; where it may not be set at all, for that.
func TestManifestsWithUnknownValues(t *testing.T) {
	p, paths := filled(enums())
	refused := Validate(p)
	for _, path := range paths {
		if !slices.ContainsFunc(refused, func(err *field.Error) bool {
			return err.Field == path || strings.HasPrefix(path, err.Field+".") || strings.HasPrefix(path, err.Field+"[")
		}) {
			t.Errorf("%s isn't refused", path)
		}
	}
	get := &v1.HTTPGetAction{Scheme: "Bogus", Port: intstr.FromInt32(80), Path: "/"}
	probe := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a", Image: "b", ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: get}}, Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{HTTPGet: get}}}}}}
	SetDefaults(probe)
	for _, path := range []string{"spec.containers[0].readinessProbe.httpGet.scheme", "spec.containers[0].lifecycle.preStop.httpGet.scheme"} {
		if !slices.ContainsFunc(Validate(probe), func(err *field.Error) bool { return err.Field == path }) {
			t.Errorf("%s isn't refused", path)
		}
	}
}
