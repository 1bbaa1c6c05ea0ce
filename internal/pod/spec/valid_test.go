package spec

import (
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// everything is a pod that uses every field there is, but for those that exclude
// each other, before defaults.
func everything(t testing.TB) *v1.Pod {
	t.Helper()
	data, err := os.ReadFile("testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict(data, p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEverythingValid(t *testing.T) {
	p := everything(t)
	SetDefaults(p)
	if errs := Validate(p); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
}
