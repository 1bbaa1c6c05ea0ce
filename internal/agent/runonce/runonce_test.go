package runonce

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

func podWith(phase v1.PodPhase, containers ...v1.ContainerStatus) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-n"}, Status: v1.PodStatus{Phase: phase, ContainerStatuses: containers}}
	p.Spec.Containers = make([]v1.Container, max(1, len(containers)))
	return p
}

func waits(reason string) v1.ContainerStatus {
	return v1.ContainerStatus{State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}}
}

func TestWhatBecameOfAPod(t *testing.T) {
	up := v1.ContainerStatus{Started: ptr.To(true), State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
	starting := v1.ContainerStatus{Started: ptr.To(false), State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
	through := v1.ContainerStatus{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}
	gone := podWith(v1.PodRunning, up)
	gone.DeletionTimestamp = &metav1.Time{}
	badInit := podWith(v1.PodPending, waits("PodInitializing"))
	badInit.Status.InitContainerStatuses = []v1.ContainerStatus{waits("CrashLoopBackOff")}
	broken := v1.ContainerStatus{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1}}}
	forGood := podWith(v1.PodRunning, up, broken)
	forGood.Spec.RestartPolicy = v1.RestartPolicyNever
	for name, c := range map[string]struct {
		pod          *v1.Pod
		done, failed bool
	}{
		"one failed, is started again": {podWith(v1.PodRunning, up, broken), false, false},
		"one failed for good":          {forGood, true, true},
		"nothing known":                {podWith(""), false, false},
		"being made":                   {podWith(v1.PodPending, waits("ContainerCreating")), false, false},
		"a first pull fails":           {podWith(v1.PodPending, waits("ErrImagePull")), false, false},
		"pulls fail":                   {podWith(v1.PodPending, waits("ImagePullBackOff")), true, true},
		"crashes":                      {podWith(v1.PodRunning, up, waits("CrashLoopBackOff")), true, true},
		"init crashes":                 {badInit, true, true},
		"one is up":                    {podWith(v1.PodRunning, up, waits("ContainerCreating")), false, false},
		"starts":                       {podWith(v1.PodRunning, starting), false, false},
		"up, not ready":                {podWith(v1.PodRunning, up), true, false},
		"one is through":               {podWith(v1.PodRunning, up, through), true, false},
		"succeeded":                    {podWith(v1.PodSucceeded, through), true, false},
		"failed":                       {podWith(v1.PodFailed), true, true},
		"being removed":                {gone, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if word, done, failed := cameTo(c.pod); done != c.done || failed != c.failed || word == "" {
				t.Errorf("it came to %q, done %v, failed %v", word, done, failed)
			}
		})
	}
}

func TestResultsOfARun(t *testing.T) {
	s := local.Snapshot{Agent: local.AgentInfo{Synced: true}, Pods: []local.PodView{{Pod: podWith(v1.PodSucceeded)}}}
	now := time.Now()
	r := resultsOf(s, now)
	var out bytes.Buffer
	if err := r.print(&out); err != nil || !r.complete || out.String() != "default/web-n: Succeeded\n" {
		t.Errorf("%+v, %v: %s", r, err, &out)
	}
	s.Pods = append(s.Pods, local.PodView{Pod: podWith(v1.PodPending, waits("InvalidImageName")), Waits: []local.Wait{{Wait: pod.Wait{Container: "web"}, Text: "no such name"}}})
	s.Problems = []pod.Problem{{Origin: "/m/bad.yaml", Message: "line 1: no\nline 2: nor"}}
	r, out = resultsOf(s, now), bytes.Buffer{}
	if err := r.print(&out); !errors.Is(err, errFailed) || !r.complete {
		t.Errorf("%+v, %v", r, err)
	}
	for _, want := range []string{"default/web-n: InvalidImageName (container web: no such name)\n", "/m/bad.yaml: line 1: no\n  line 2: nor\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	s.Agent.Synced = false
	if resultsOf(s, now).complete {
		t.Error("it is complete before all sources have been read")
	}
}

// A container that crashes on its start isn't up before that.
func TestPodIsUpOnceItHasRunForAWhile(t *testing.T) {
	now := time.Now()
	started := func(ago time.Duration) v1.ContainerStatus {
		return v1.ContainerStatus{Started: ptr.To(true), State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-ago))}}}
	}
	s := local.Snapshot{Agent: local.AgentInfo{Synced: true}, Pods: []local.PodView{
		{Pod: podWith(v1.PodRunning, started(time.Hour), started(upFor/2))}, {Pod: podWith(v1.PodRunning, started(upFor/4))}}}
	r := resultsOf(s, now)
	if r.complete || !r.again.Equal(now.Add(upFor/2)) {
		t.Errorf("complete %v, look again %v", r.complete, r.again)
	}
	if r = resultsOf(s, now.Add(upFor)); !r.complete || !r.again.IsZero() {
		t.Errorf("later: complete %v, look again %v", r.complete, r.again)
	}
}

func TestFailedPodReportsHowItEnded(t *testing.T) {
	p := podWith(v1.PodFailed, v1.ContainerStatus{Name: "web", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 4, Reason: "Error"}}})
	r := resultsOf(local.Snapshot{Pods: []local.PodView{{Pod: p}}}, time.Now())
	if want := "default/web-n: Error (container web: ended with code 4)\n"; len(r.lines) != 1 || r.lines[0] != want {
		t.Errorf("%q, want %q", r.lines, want)
	}
}

// node is a view whose snapshots say that nothing of a pod is known yet.
type node struct{ synced bool }

func (n node) Snapshot(context.Context) (local.Snapshot, error) {
	return local.Snapshot{Agent: local.AgentInfo{Synced: n.synced}, Pods: []local.PodView{{Pod: podWith(v1.PodPending), Waits: []local.Wait{{Text: "is being made"}}}}}, nil
}

func (node) Changed() (<-chan struct{}, func()) { return nil, func() {} }

// A run that nothing comes of ends some time, and says why; one that is broken off is no success.
func TestARunEnds(t *testing.T) {
	for _, c := range []struct {
		name   string
		view   node
		during time.Duration
		want   string
	}{
		{"no pod comes up", node{synced: true}, time.Hour, "gave up after 15m0s"},
		{"a source is silent", node{}, time.Hour, "not every source of pods has answered"},
		{"somebody ends it", node{synced: true}, time.Minute, "broken off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.during)
				defer cancel()
				var out bytes.Buffer
				r := New(c.view, &out)
				if err := r.Result(); !errors.Is(err, ErrBrokenOff) {
					t.Errorf("before it has begun: %v", err)
				}
				began := time.Now()
				if err := r.Run(ctx); err != nil {
					t.Fatal(err)
				}
				if err := r.Result(); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("it came to %v, want %q", err, c.want)
				}
				if took, printed := time.Since(began), out.Len() > 0; took != min(c.during, limit) || printed == errors.Is(r.Result(), ErrBrokenOff) {
					t.Errorf("after %v, printed %q", took, &out)
				}
			})
		})
	}
}
