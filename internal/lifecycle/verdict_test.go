package lifecycle_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
)

func TestCombine(t *testing.T) {
	verdict := func(reason pod.Reason, at int, grace ...int) *pod.PodTermination {
		e := &pod.PodTermination{At: epoch.Add(time.Duration(at) * time.Second), Reason: reason}
		for _, g := range grace {
			e.Grace = ptr.To(time.Duration(g) * time.Second)
		}
		return e
	}
	byExit := func(at int, grace ...int) *pod.PodTermination {
		e := verdict("Preempting", at, grace...)
		e.ByExit = true
		return e
	}
	type list = []*pod.PodTermination
	for _, tc := range []struct {
		name     string
		verdicts list
		want     *pod.PodTermination
	}{
		{"none", nil, nil},
		{"no verdict", list{nil, nil}, nil},
		{"one", list{nil, verdict("Evicted", 5, 1)}, verdict("Evicted", 5, 1)},
		{"one with the pod's own grace", list{verdict("Preempting", 5), nil}, verdict("Preempting", 5)},
		{"the first gives the reason, whatever the order", list{verdict("Evicted", 9, 30), verdict("Preempting", 5, 10)}, verdict("Preempting", 5, 10)},
		{"the nearest end counts", list{verdict("Preempting", 5, 60), verdict("Evicted", 9, 1)}, verdict("Preempting", 5, 5)},
		{"also beside the pod's own grace", list{verdict("Preempting", 5), verdict("Evicted", 9, 1)}, verdict("Preempting", 5, 5)},
		{"a later one without any grace", list{verdict("Preempting", 5), verdict("Evicted", 9, 0)}, verdict("Preempting", 5, 4)},
		{"one without any grace at the same time", list{verdict("Preempting", 5), verdict("Evicted", 5, 0)}, verdict("Preempting", 5, 0)},
		{"of verdicts at one time the first in the list", list{verdict("Evicted", 5, 2), verdict("Preempting", 5, 1)}, verdict("Evicted", 5, 1)},
		{"three", list{verdict("c", 7, 3), verdict("b", 6, 2), verdict("a", 5, 9)}, verdict("a", 5, 3)},
		{"all by how the containers end", list{byExit(5, 9), byExit(6, 1)}, byExit(5, 2)},
		{"the first by how the containers end", list{byExit(5), verdict("Evicted", 9, 1)}, verdict("Preempting", 5, 5)},
		{"the first so, and with the nearest end", list{byExit(5, 1), verdict("Evicted", 9)}, verdict("Preempting", 5, 1)},
		{"the second by how the containers end", list{byExit(9, 1), verdict("Evicted", 5)}, verdict("Evicted", 5, 5)},
	} {
		got := lifecycle.Combine(tc.verdicts...)
		if (got == nil) != (tc.want == nil) {
			t.Errorf("%s: %+v", tc.name, got)
		} else if got != nil && (got.Reason != tc.want.Reason || got.ByExit != tc.want.ByExit || !got.At.Equal(tc.want.At) || ptr.Deref(got.Grace, -1) != ptr.Deref(tc.want.Grace, -1)) {
			t.Errorf("%s: %+v with grace %v", tc.name, *got, ptr.Deref(got.Grace, -1))
		}
	}
}

// TestRejectionOfAnEarlierVersion: its answer comes with the edit, and says nothing of the pod as it is by now.
func TestRejectionOfAnEarlierVersion(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1", Generation: 1}}
	p.Spec.Containers = []v1.Container{{Name: "web", Image: "example.com/web:1"}}
	asked := lifecycle.Decide(lifecycle.Input{Now: epoch, Pod: p})
	edited := p.DeepCopy()
	edited.Generation = 2
	for _, tc := range []struct {
		pod  *v1.Pod
		want pod.ActionKind
	}{{p, pod.SaveCheckpoint}, {edited, pod.AdmitPod}} {
		d := lifecycle.Decide(lifecycle.Input{Now: epoch, Pod: tc.pod, Memory: asked.Memory,
			Results: []pod.Result{{Action: asked.Actions[0], At: epoch, Failure: &pod.Failure{Reason: "OutOfcpu", Rejected: true}}}})
		if len(d.Actions) == 0 || d.Actions[0].Kind != tc.want {
			t.Errorf("generation %d: %+v, want %s", tc.pod.Generation, d.Actions, tc.want)
		}
	}
}

// TestAdmissionComesAfterTheIdentity: what is granted under a UID that the manifest gives must not be taken for another
// pod's of that UID if the agent is killed right then.
func TestAdmissionComesAfterTheIdentity(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "given", Generation: 1}}
	p.Spec.Containers = []v1.Container{{Name: "web", Image: "example.com/web:1"}}
	in := lifecycle.Input{Now: epoch, Pod: p, Base: "first"}
	d := lifecycle.Decide(in)
	if len(d.Actions) != 1 || d.Actions[0].Kind != pod.SaveCheckpoint || d.Actions[0].Checkpoint.Base != "first" {
		t.Fatalf("first it does %+v", d.Actions)
	}
	in.Memory, in.Results = d.Memory, []pod.Result{{Action: d.Actions[0], At: epoch}}
	if d = lifecycle.Decide(in); len(d.Actions) != 1 || d.Actions[0].Kind != pod.AdmitPod {
		t.Errorf("then it does %+v", d.Actions)
	}
}
