package worker

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// restarts are the pods of each call of Stop.
type restarts chan []string

func (r restarts) Stop(_ context.Context, restart bool, names ...types.NamespacedName) error {
	var list []string
	for _, n := range names {
		list = append(list, n.Name)
	}
	if !restart {
		list = append(list, "for good")
	}
	r <- list
	return errors.New("no disk")
}

// TestResumer: pods that the node has evicted are restarted each time that the node isn't under pressure, and no others.
func TestResumer(t *testing.T) {
	statuses, calm, restarted := podstatus.NewStore(), wake.NewSlot(), make(restarts)
	publish := func(name, reason string, phase v1.PodPhase, disrupted v1.ConditionStatus, policy v1.RestartPolicy, source pod.Source) {
		p := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: policy}}
		p.Name, p.UID = name, types.UID(name)
		statuses.Publish(p.UID, pod.Report{Desired: &pod.Desired{Pod: p, Source: source}, Status: &v1.PodStatus{Phase: phase, Reason: reason,
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}, {Type: v1.DisruptionTarget, Status: disrupted}}}})
	}
	const always, failed, yes = v1.RestartPolicyAlways, v1.PodFailed, v1.ConditionTrue
	publish("evicted", "Evicted", failed, yes, always, pod.SourceFile)
	publish("from-a-url", "Evicted", failed, yes, v1.RestartPolicyOnFailure, pod.SourceHTTP)
	publish("never", "Evicted", failed, yes, v1.RestartPolicyNever, pod.SourceFile)
	publish("ends", "Evicted", v1.PodRunning, yes, always, pod.SourceFile)
	publish("over-its-limit", "Evicted", failed, v1.ConditionFalse, always, pod.SourceFile)
	publish("preempted", "Preempting", failed, yes, always, pod.SourceFile)
	publish("run", "Evicted", failed, yes, always, pod.SourceRun)
	publish("of-a-cluster", "Evicted", failed, yes, always, pod.SourceAPI)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- NewResumer(statuses, restarted, calm, logr.Discard()).Run(ctx) }()
	for range 2 { // the first restart has failed
		calm.Wake()
		if got := <-restarted; !slices.Equal(got, []string{"evicted", "from-a-url"}) {
			t.Errorf("restarted: %q", got)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
