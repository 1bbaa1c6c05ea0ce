package agent

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/local"
	"github.com/deckhand-node/deckhand/internal/pod"
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
	if err := r.tell(&out); err != nil || !r.settled || out.String() != "default/web-n: Succeeded\n" {
		t.Errorf("%+v, %v: %s", r, err, &out)
	}
	s.Pods = append(s.Pods, local.PodView{Pod: podWith(v1.PodPending, waits("InvalidImageName")), Reasons: []string{"container web: no such name"}})
	s.Problems = []pod.Problem{{Origin: "/m/bad.yaml", Message: "line 1: no\nline 2: nor"}}
	r, out = resultsOf(s, now), bytes.Buffer{}
	if err := r.tell(&out); !errors.Is(err, errOnceFailed) || !r.settled {
		t.Errorf("%+v, %v", r, err)
	}
	for _, want := range []string{"default/web-n: InvalidImageName (container web: no such name)\n", "/m/bad.yaml: line 1: no\n  line 2: nor\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	s.Agent.Synced = false
	if resultsOf(s, now).settled {
		t.Error("it is settled before all sources have been read")
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
	if r.settled || !r.again.Equal(now.Add(upFor/2)) {
		t.Errorf("settled %v, look again %v", r.settled, r.again)
	}
	if r = resultsOf(s, now.Add(upFor)); !r.settled || !r.again.IsZero() {
		t.Errorf("later: settled %v, look again %v", r.settled, r.again)
	}
}

func TestFailedPodTellsHowItEnded(t *testing.T) {
	p := podWith(v1.PodFailed, v1.ContainerStatus{Name: "web", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 4, Reason: "Error"}}})
	r := resultsOf(local.Snapshot{Pods: []local.PodView{{Pod: p}}}, time.Now())
	if want := "default/web-n: Error (container web: ended with code 4)\n"; len(r.lines) != 1 || r.lines[0] != want {
		t.Errorf("%q, want %q", r.lines, want)
	}
}
