package podspec

import (
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// A pod that uses every field there is, but for those that exclude each other.
func TestEverythingValid(t *testing.T) {
	data, err := os.ReadFile("testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict(data, p); err != nil {
		t.Fatal(err)
	}
	SetDefaults(p)
	if errs := Validate(p); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
}
