package worker

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// TestPodsAreCounted: as Kubernetes' node suite expects of kubelet_working_pods, kubelet_active_pods and
// kubelet_mirror_pods ("the mirror pod should terminate successfully"). A static pod whose manifest is gone is an
// orphan with a mirror pod until it has ended, and a pod that a person deletes is desired until its object is gone.
func TestPodsAreCounted(t *testing.T) {
	of := func(uid types.UID, source pod.Source) *pod.Desired {
		return &pod.Desired{Source: source, Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}}
	}
	static, gone := of("static", pod.SourceFile), of("gone", pod.SourceFile)
	runs, deleted, done := of("runs", pod.SourceAPI), of("deleted", pod.SourceAPI), of("done", pod.SourceAPI)
	entry := func(d *pod.Desired, phase v1.PodPhase, stopping string) *podstatus.Entry {
		p := *d.Pod
		p.Status.Phase = phase
		return &podstatus.Entry{Pod: &p, Report: pod.Report{Desired: d, Stopping: stopping != "", StoppingWhy: stopping}}
	}
	entries := []*podstatus.Entry{
		entry(static, v1.PodRunning, ""), entry(gone, v1.PodRunning, "its manifest is gone"),
		entry(runs, v1.PodPending, ""), entry(deleted, v1.PodRunning, "it was deleted"),
		entry(done, v1.PodSucceeded, ""),
	}
	want := metrics.PodCounts{
		Desired: map[bool]int{true: 1, false: 3}, Active: map[bool]int{true: 1, false: 2}, Mirrors: 2,
		Containers: map[pod.ContainerState]int{}, PendingResizes: map[string]int{},
		Working: map[metrics.WorkerState]int{
			{Lifecycle: "sync", Static: true}: 1, {Lifecycle: "terminating", Orphan: true, Static: true}: 1,
			{Lifecycle: "sync"}: 1, {Lifecycle: "terminating"}: 1, {Lifecycle: "terminated"}: 1,
		},
	}
	desired := []*pod.Desired{static, runs, deleted, done}
	if diff := cmp.Diff(want, CountPods(desired, nil, entries, false)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c := CountPods(desired, nil, entries, true); c.Mirrors != 0 {
		t.Errorf("%d mirror pods without an API server", c.Mirrors)
	}
}
