package podspec

import (
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func BenchmarkValidate(b *testing.B) {
	data, err := os.ReadFile("testdata/everything.yaml")
	if err != nil {
		b.Fatal(err)
	}
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict(data, p); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		SetDefaults(p)
		if errs := Validate(p); len(errs) > 0 {
			b.Fatal(errs.ToAggregate())
		}
	}
}
