package view

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
	"github.com/deckhand-node/deckhand/internal/resources/stats"
)

// TestTasks: a wait for processes names the node's number of them and the groups with most.
func TestTasks(t *testing.T) {
	v := New(Config{Tasks: func(context.Context) stats.Tasks {
		return stats.Tasks{Tasks: capacity.Tasks{Count: 32000, Max: 32768}, Most: []stats.PodTasks{
			{Name: "default/hog", Group: "/kubepods/podh", PIDs: counters.PIDs{Current: 30000, Limit: counters.Unlimited}},
			{Name: "default/web", Group: "/kubepods/podw", PIDs: counters.PIDs{Current: 20, Limit: 100}}}}
	}})
	got := v.causes(t.Context(), &podstatus.Entry{}, &pod.Wait{Code: pod.WaitRetry, Action: pod.CreateSandbox, For: pod.WaitForProcesses})
	if want := []string{"the node has 32000 of at most 32768 processes and threads", "pod default/hog has 30000 (control group /kubepods/podh)",
		"pod default/web has 20 of at most 100 (control group /kubepods/podw)"}; !cmp.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
