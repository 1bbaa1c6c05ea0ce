package events

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

func podNamed(name string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	p.Spec.InitContainers = []v1.Container{{Name: "setup"}}
	p.Spec.Containers = []v1.Container{{Name: "web"}, {Name: "side"}}
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	return p
}

func TestEntryOfAPod(t *testing.T) {
	for container, path := range map[string]string{
		"":      "",
		"web":   "spec.containers{web}",
		"side":  "spec.containers{side}",
		"setup": "spec.initContainers{setup}",
		"debug": "spec.ephemeralContainers{debug}",
		"gone":  "",
	} {
		r := New(1)
		r.Event(podNamed("a"), pod.Event{Type: "Warning", Reason: "BackOff", Message: "m", Container: container})
		want := Entry{ID: 1, Seq: 1, Count: 1, Type: "Warning", Reason: "BackOff", Message: "m", Component: "deckhand",
			Object: v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "a", UID: "uid-a", FieldPath: path}}
		got := r.List()
		want.First, want.Last = got[0].First, got[0].Last
		if diff := cmp.Diff([]Entry{want}, got); diff != "" {
			t.Errorf("container %q (-want +got):\n%s", container, diff)
		}
	}
}

func TestLongMessagesAreCut(t *testing.T) {
	r := New(10)
	long := strings.Repeat("é", maxMessage)
	for _, message := range []string{long + "1", long + "2", long + "1", "bad \xff byte"} {
		r.Event(podNamed("a"), pod.Event{Reason: "Unhealthy", Message: message})
	}
	var counts []int
	for _, e := range r.List() {
		counts = append(counts, e.Count)
		if len(e.Message) > maxMessage || !utf8.ValidString(e.Message) {
			t.Errorf("kept %d bytes: %q", len(e.Message), e.Message)
		}
	}
	// Messages that differ only in what was cut off aren't the same.
	if diff := cmp.Diff([]int{1, 2, 1}, counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}
