package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// TestResumer: pods that the node has evicted are restarted one by one while the node isn't under pressure, and no others.
func TestResumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		statuses, changed := podstatus.NewStore(), wake.NewSlot()
		publish := func(name, reason string, phase v1.PodPhase, disrupted v1.ConditionStatus, policy v1.RestartPolicy, source pod.Source, priority int32, stopping bool) {
			p := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: policy, Priority: &priority}}
			p.Name, p.UID = name, types.UID(name)
			statuses.Publish(p.UID, pod.Report{Desired: &pod.Desired{Pod: p, Source: source}, Stopping: stopping, Status: &v1.PodStatus{Phase: phase, Reason: reason,
				Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}, {Type: v1.DisruptionTarget, Status: disrupted}}}})
		}
		const always, failed, yes = v1.RestartPolicyAlways, v1.PodFailed, v1.ConditionTrue
		evicted := func(name string, priority int32) {
			publish(name, "Evicted", failed, yes, always, pod.SourceFile, priority, false)
		}
		publish("never", "Evicted", failed, yes, v1.RestartPolicyNever, pod.SourceFile, 9, false)
		publish("ends", "Evicted", v1.PodRunning, yes, always, pod.SourceFile, 9, false)
		publish("over-its-limit", "Evicted", failed, v1.ConditionFalse, always, pod.SourceFile, 9, false)
		publish("preempted", "Preempting", failed, yes, always, pod.SourceFile, 9, false)
		publish("run", "Evicted", failed, yes, always, pod.SourceRun, 9, false)
		publish("of-a-cluster", "Evicted", failed, yes, always, pod.SourceAPI, 9, false)
		publish("stopped", "Evicted", failed, yes, always, pod.SourceFile, 9, true)
		evicted("a", 1)
		evicted("b", 5)
		publish("from-a-url", "Evicted", failed, yes, v1.RestartPolicyOnFailure, pod.SourceHTTP, 0, false)

		var calm, broken atomic.Bool
		var mu sync.Mutex
		var restarted []string
		r := NewResumer(ResumerConfig{Statuses: statuses, Calm: calm.Load, Log: logr.Discard(),
			Watch: func() (<-chan struct{}, func()) { return changed, func() {} },
			Restart: func(n types.NamespacedName) error {
				if broken.Load() {
					return errors.New("no disk")
				}
				mu.Lock()
				restarted = append(restarted, n.Name)
				mu.Unlock()
				publish(n.Name, "", v1.PodRunning, yes, always, pod.SourceFile, 0, false)
				return nil
			}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		expect := func(when string, names ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(restarted, names) {
				t.Errorf("%s: restarted %q, want %q", when, restarted, names)
			}
			restarted = nil
		}
		time.Sleep(time.Hour)
		expect("under pressure")
		calm.Store(true)
		changed.Wake()
		expect("one at a time", "b")
		changed.Wake()
		expect("too soon")
		time.Sleep(resumeGap)
		expect("after a gap", "a")
		broken.Store(true)
		time.Sleep(resumeGap)
		expect("it fails")
		broken.Store(false)
		time.Sleep(resumeRetry)
		expect("it is tried again", "from-a-url")
		evicted("b", 5)
		expect("evicted again at once")
		time.Sleep(firstHold)
		expect("after a while", "b")
		evicted("b", 5)
		time.Sleep(2*firstHold - 2*time.Minute) // it was restarted 80 s before
		expect("evicted again and again")
		time.Sleep(time.Minute)
		expect("after a longer while", "b")
		time.Sleep(24 * time.Hour)
		evicted("b", 5)
		expect("evicted after a day", "b")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
