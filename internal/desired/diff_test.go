package desired

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/pod"
)

func setOf(pods ...*pod.Desired) *Set {
	s := &Set{Pods: pods, Synced: true, byUID: map[types.UID]*pod.Desired{}}
	for _, p := range pods {
		s.byUID[p.Pod.UID] = p
	}
	return s
}

func TestDiffOfOnePod(t *testing.T) {
	base := claim(pod.SourceFile, "a", "web", "1", 0).Desired
	changed := func(change func(*pod.Desired)) *pod.Desired {
		d := *base
		d.Pod = base.Pod.DeepCopy()
		change(&d)
		return &d
	}
	tests := map[string]struct {
		old, new *pod.Desired
		want     string
	}{
		"new":            {nil, base, "add"},
		"gone":           {base, nil, "remove"},
		"the same":       {base, base, ""},
		"an equal copy":  {base, changed(func(*pod.Desired) {}), ""},
		"stale":          {base, changed(func(d *pod.Desired) { d.Stale = "bad" }), ""},
		"moved":          {base, changed(func(d *pod.Desired) { d.Origin = "b" }), ""},
		"status":         {base, changed(func(d *pod.Desired) { d.Pod.Status.Phase = v1.PodRunning }), ""},
		"spec":           {base, changed(func(d *pod.Desired) { d.Pod.Spec.Hostname = "x" }), "update"},
		"label":          {base, changed(func(d *pod.Desired) { d.Pod.Labels = map[string]string{"a": "b"} }), "update"},
		"another base":   {base, changed(func(d *pod.Desired) { d.Base = "b" }), "update"},
		"annotation":     {base, changed(func(d *pod.Desired) { d.Pod.Annotations = map[string]string{"a": "b"} }), "update"},
		"deletion":       {base, changed(func(d *pod.Desired) { d.Pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(9, 0)} }), ""},
		"another by UID": {base, changed(func(d *pod.Desired) { d.Pod.UID = "2" }), "add remove"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			old, new := setOf(), setOf()
			if test.old != nil {
				old = setOf(test.old)
			}
			if test.new != nil {
				new = setOf(test.new)
			}
			c := Diff(old, new)
			got := ""
			for _, part := range []struct {
				name string
				n    int
			}{{"add", len(c.Add)}, {"update", len(c.Update)}, {"remove", len(c.Remove)}} {
				if part.n > 0 && got != "" {
					got += " "
				}
				if part.n > 0 {
					got += part.name
				}
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A reader that applies all changes from the beginning has the pods of the newest set.
func TestChangesLeadToTheNewSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		known := map[types.UID]*pod.Desired{}
		var old *Set
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			var pods []*pod.Desired
			for _, uid := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"1", "2", "3", "4", "5"}), rapid.ID[string]).Draw(t, "uids") {
				before := known[types.UID(uid)]
				if before != nil && rapid.Bool().Draw(t, "unchanged") {
					pods = append(pods, before)
					continue
				}
				d := claim(pod.SourceFile, "a", "pod"+uid, uid, 0).Desired
				d.Pod.Spec.Hostname = rapid.SampledFrom([]string{"x", "y"}).Draw(t, "spec")
				pods = append(pods, d)
			}
			new := setOf(pods...)
			c := Diff(old, new)
			for _, p := range c.Remove {
				delete(known, p.Pod.UID)
			}
			for _, p := range c.Add {
				known[p.Pod.UID] = p
			}
			for _, p := range c.Update {
				if known[p.Pod.UID] == nil {
					t.Fatalf("pod %s changed from what wasn't there", p.Pod.Name)
				}
				known[p.Pod.UID] = p
			}
			if len(known) != len(pods) {
				t.Fatalf("%d pods known, want %d", len(known), len(pods))
			}
			for _, p := range pods {
				if k := known[p.Pod.UID]; k == nil || !sameWork(k, p) {
					t.Fatalf("pod %s isn't known", p.Pod.Name)
				}
			}
			old = new
		}
	})
}
