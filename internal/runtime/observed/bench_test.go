package observed

import (
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BenchmarkEvents is 2,000 pods coming up, of 4 events each, decoding not counted.
func BenchmarkEvents(b *testing.B) {
	w := newWorld()
	var events []*runtimeapi.ContainerEventResponse
	for i := range 2000 {
		sb, c := fmt.Sprintf("s%d", i), fmt.Sprintf("c%d", i)
		events = append(events, w.addSandbox(fmt.Sprintf("uid%d", i), sb, 0), w.addSandbox(fmt.Sprintf("uid%d", i), sb, 0))
		w.set(func() { w.containers = map[string]*container{} })
		events = append(events, w.addContainer(sb, c, "main", 0), w.start(c))
	}
	b.ReportAllocs()
	for b.Loop() {
		s := New(w, Options{Log: logr.Discard(), Wake: func(types.UID) {}})
		for _, e := range events {
			s.handle(e)
		}
	}
}

// BenchmarkRelist is a list of 2,000 pods of which nothing has changed.
func BenchmarkRelist(b *testing.B) {
	w := newWorld()
	for i := range 2000 {
		sb, c := fmt.Sprintf("s%d", i), fmt.Sprintf("c%d", i)
		w.addSandbox(fmt.Sprintf("uid%d", i), sb, 0)
		w.addContainer(sb, c, "main", 0)
	}
	s := New(w, Options{Log: logr.Discard(), Wake: func(types.UID) {}})
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Relist(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
