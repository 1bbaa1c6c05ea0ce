package podobjecttest

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/podobject"
)

// told is a list or an event that a watch passes.
type told struct {
	// kind is empty for a list.
	kind watch.EventType
	pods []*v1.Pod
}

type sight chan told

func (s sight) Listed(all apiclient.List) {
	var list []*v1.Pod
	for _, o := range all.Objects {
		list = append(list, o.(*v1.Pod))
	}
	s <- told{"", list}
}

func (s sight) Changed(kind watch.EventType, o kruntime.Object) {
	s <- told{kind, []*v1.Pod{o.(*v1.Pod)}}
}

func (s sight) Malformed(apiclient.Malformed) {}

func (s sight) Away(error) {}

// Run tests the behaviour that podobject relies on. create creates a pod of this name for the node, as another client
// would, in namespace default, and with the finalizer unless that is empty.
func Run(t *testing.T, pods podobject.Pods, create func(name, finalizer string) *v1.Pod) {
	ctx := t.Context()
	there := create("there", "")
	watching, stop := context.WithCancel(ctx)
	seen, done := make(sight, 100), make(chan struct{})
	go func() { defer close(done); pods.Watch(watching, seen) }()
	defer func() { stop(); <-done }()
	tells := func(what string, is func(told) bool) {
		t.Helper()
		for s := range seen { // the test's timeout ends a futile wait
			if is(s) {
				return
			}
		}
	}
	tells("listed", func(s told) bool { return s.kind == "" && len(s.pods) == 1 && s.pods[0].UID == there.UID })
	p := create("a", "")
	tells("added", func(s told) bool { return s.kind == watch.Added && s.pods[0].UID == p.UID })

	patch := func(status string) *v1.Pod {
		t.Helper()
		next, err := pods.PatchStatus(ctx, "default",
			"a", fmt.Appendf(nil, `{"metadata": {"uid": %q}, "status": %s}`, p.UID, status))
		if err != nil {
			t.Fatalf("patch of %s: %v", status, err)
		}
		return next
	}
	patch(`{"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}, {"type": "example.com/gate", "status": "True"}], "podIPs": [{"$patch": "replace"}, {"ip": "10.0.0.1"}], "podIP": "10.0.0.1", "reason": "x"}`)
	tells("patched", func(s told) bool { return s.kind == watch.Modified && s.pods[0].Status.Phase == v1.PodRunning })
	next := patch(`{"conditions": [{"type": "Ready", "status": "False"}, {"type": "Initialized", "status": "True"}], "podIPs": [{"$patch": "replace"}, {"ip": "10.0.0.2"}], "podIP": "10.0.0.2", "reason": null}`)
	if st := next.Status; len(st.Conditions) != 3 || len(st.PodIPs) != 1 || st.PodIPs[0].IP != "10.0.0.2" ||
		st.Reason != "" || st.Phase != v1.PodRunning {
		t.Errorf("a patch isn't merged: %+v", st)
	}
	same := patch(`{"phase": "Running"}`)
	if same.ResourceVersion != next.ResourceVersion {
		t.Errorf("a patch that changes nothing made version %s of %s", same.ResourceVersion, next.ResourceVersion)
	}
	if next = patch(`{"conditions": [{"type": "Initialized", "$patch": "delete"}]}`); len(next.Status.Conditions) != 2 {
		t.Errorf("conditions %+v", next.Status.Conditions)
	}
	if err := second(pods.PatchStatus(ctx, "default",
		"a", []byte(`{"metadata": {"uid": "other"}, "status": {"phase": "Failed"}}`))); !podobject.Replaced(err) {
		t.Errorf("patch of another UID: %v", err)
	}
	if err := pods.Delete(ctx, "default", "a", "other"); !podobject.Replaced(err) {
		t.Errorf("delete of another UID: %v", err)
	}
	patch(`{"phase": "Succeeded"}`)
	if err := pods.Delete(ctx, "default", "a", p.UID); err != nil {
		t.Errorf("delete: %v", err)
	}
	tells("deleted", func(s told) bool { return s.kind == watch.Deleted && s.pods[0].UID == p.UID })
	for what, err := range map[string]error{
		"patch of a pod that isn't there": second(
			pods.PatchStatus(ctx, "default", "a", []byte(`{"status": {"phase": "Failed"}}`))),
		"delete of one": pods.Delete(ctx, "default", "a", p.UID),
	} {
		if !errors.IsNotFound(err) || !podobject.Replaced(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if again := create("a", ""); again.UID == p.UID {
		t.Errorf("another pod has the UID %s, too", again.UID)
	}
	held := create("held", "example.com/finalizer")
	if err := pods.Delete(ctx, "default", "held", held.UID); err != nil {
		t.Errorf("delete with a finalizer: %v", err)
	}
	tells("kept by its finalizer", func(s told) bool {
		g := s.pods[0].DeletionGracePeriodSeconds
		return s.kind == watch.Modified && s.pods[0].UID == held.UID && g != nil && *g == 0
	})
}

// RunMirror tests the behaviour that package mirror relies on, with this mirror pod.
func RunMirror(t *testing.T, pods podobject.Pods, mirror *v1.Pod) {
	ctx := t.Context()
	mirror.Status.Phase = v1.PodRunning
	made, err := pods.Create(ctx, mirror)
	if err != nil {
		t.Fatal(err)
	}
	if made.UID == "" || made.Status.Phase != v1.PodPending ||
		made.Annotations[v1.MirrorPodAnnotationKey] != mirror.Annotations[v1.MirrorPodAnnotationKey] {
		t.Errorf("made %+v", made)
	}
	if err := second(pods.Create(ctx, mirror)); !errors.IsAlreadyExists(err) {
		t.Errorf("made again: %v", err)
	}
	if err := pods.Delete(ctx, made.Namespace, made.Name, made.UID); err != nil {
		t.Errorf("delete: %v", err)
	}
	again, err := pods.Create(ctx, mirror)
	if err != nil || again.UID == made.UID {
		t.Fatalf("made anew: %v, %v", again, err)
	}
	if err := pods.Delete(ctx, again.Namespace, again.Name, again.UID); err != nil {
		t.Errorf("delete: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }
