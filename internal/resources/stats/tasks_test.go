package stats_test

import (
	"testing"
)

// TestTasks: the three pods with most processes come first, with their groups.
func TestTasks(t *testing.T) {
	n := newNode(t)
	for i, name := range []string{"a", "b", "c", "d"} {
		o := n.add(name, nil, idle())
		for range i {
			n.start(n.group(o)+"/c"+name, idle())
		}
	}
	got := n.sampler().Tasks(t.Context())
	if got.Count < 10 || got.Max < got.Count || len(got.Most) != 3 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []string{"d", "c", "b"} {
		if p := got.Most[i]; p.Name != "ns/"+want || p.Current != uint64(4-i) || p.Group != n.group(n.pods[3-i]) {
			t.Errorf("place %d: %+v, want pod %s", i, p, want)
		}
	}
}
