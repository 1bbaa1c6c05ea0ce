package view

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// troubles are the problems of a node in a cluster.
type troubles struct{ wake.Group }

func (*troubles) Problems() []pod.Problem { return []pod.Problem{{Message: "away"}} }

func (*troubles) Conditions() []v1.NodeCondition { return nil }

func (t *troubles) ProblemsChanged() (<-chan struct{}, func()) { return t.Subscribe() }

// TestWatchersSeePulls: who watches is woken every second while a pod waits for an image,
// and otherwise only by changes.
func TestWatchersSeePulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := &troubles{}
		a := New(Config{Statuses: podstatus.NewStore(), Desired: desired.New(logr.Discard()), Hanging: answers, Thrashing: func() string { return "" }, RuntimeProblems: func() []pod.Problem { return []pod.Problem{{Message: "bad"}} }, Cluster: cluster, Disks: disks{}})
		changed, cancel := a.Changed()
		defer cancel()
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a", Image: "r.io/x"}}}}
		p.UID = "u1"
		publish := func(under pod.ActionKind) {
			a.conf.Statuses.Publish(p.UID, pod.Report{Desired: &pod.Desired{Pod: p}, Status: &v1.PodStatus{}, Waits: []pod.Wait{{Code: pod.WaitAction, Container: "a", Action: under, Image: "r.io/x"}}})
		}
		count := func(d time.Duration) (n int) {
			for end := time.After(d); ; n++ {
				select {
				case <-changed:
				case <-end:
					return n
				}
			}
		}
		count(time.Minute) // what there was before
		publish(pod.EnsureImage)
		if n := count(10500 * time.Millisecond); n != 11 {
			t.Errorf("in 10 s of a pull, who watches was woken %d times, want once for the change and 10 times more", n)
		}
		publish(pod.CreateContainer)
		if n := count(time.Hour); n != 1 {
			t.Errorf("after it, who watches was woken %d times, want once for the change", n)
		}
		cluster.Wake()
		if n := count(time.Hour); n != 1 {
			t.Errorf("when the API server went away, who watches was woken %d times, want once", n)
		}
		if list := a.problems(t.Context(), nil); len(list) != 2 || list[1].Message != "away" {
			t.Errorf("problems %v", list)
		}
	})
}
