package spec

import "testing"

func BenchmarkValidate(b *testing.B) {
	p := everything(b)
	b.ReportAllocs()
	for b.Loop() {
		SetDefaults(p)
		if errs := Validate(p); len(errs) > 0 {
			b.Fatal(errs.ToAggregate())
		}
	}
}
