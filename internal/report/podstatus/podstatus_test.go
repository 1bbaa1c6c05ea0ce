package podstatus

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func wait(reason string) v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
}

func end(code int32, signal int32, reason string) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Signal: signal, Reason: reason, FinishedAt: metav1.NewTime(now.Add(-10 * time.Second))}}
}

func run() v1.ContainerState {
	return v1.ContainerState{Running: &v1.ContainerStateRunning{}}
}

// pod has containers in these states; those that run are ready.
func newPod(phase v1.PodPhase, states ...v1.ContainerState) *v1.Pod {
	p := &v1.Pod{Status: v1.PodStatus{Phase: phase}}
	for i, s := range states {
		name := string(rune('a' + i))
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{Name: name, State: s, Ready: s.Running != nil})
	}
	return p
}

func withInit(p *v1.Pod, policy *v1.ContainerRestartPolicy, states ...v1.ContainerState) *v1.Pod {
	for i, s := range states {
		name := "i" + string(rune('a'+i))
		p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: name, RestartPolicy: policy})
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, v1.ContainerStatus{Name: name, State: s, Ready: s.Running != nil, RestartCount: 2})
	}
	return p
}

func ready(p *v1.Pod) *v1.Pod {
	p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue})
	return p
}

func deleted(p *v1.Pod) *v1.Pod {
	p.DeletionTimestamp = &metav1.Time{Time: now}
	return p
}

func TestWordAndReady(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	evicted := newPod(v1.PodFailed)
	evicted.Status.Reason = "Evicted"
	for name, tc := range map[string]struct {
		pod         *v1.Pod
		word, ready string
	}{
		"nothing known":                {newPod(""), "Pending", "0/0"},
		"running":                      {newPod(v1.PodRunning, run(), run()), "Running", "2/2"},
		"creating":                     {newPod(v1.PodPending, wait("ContainerCreating")), "ContainerCreating", "0/1"},
		"crash loop beside running":    {newPod(v1.PodRunning, run(), wait("CrashLoopBackOff")), "CrashLoopBackOff", "1/2"},
		"first trouble counts":         {newPod(v1.PodRunning, wait("ErrImagePull"), wait("CrashLoopBackOff")), "ErrImagePull", "0/2"},
		"trouble over completed":       {newPod(v1.PodRunning, end(0, 0, "Completed"), wait("CrashLoopBackOff")), "CrashLoopBackOff", "0/2"},
		"completed":                    {newPod(v1.PodSucceeded, end(0, 0, "Completed")), "Completed", "0/1"},
		"one completed, others ready":  {ready(newPod(v1.PodRunning, end(0, 0, "Completed"), run())), "Running", "1/2"},
		"one completed, not all ready": {newPod(v1.PodRunning, end(0, 0, "Completed"), run()), "NotReady", "1/2"},
		"error":                        {newPod(v1.PodFailed, end(3, 0, "Error")), "Error", "0/1"},
		"killed by the kernel":         {newPod(v1.PodFailed, end(137, 0, "OOMKilled")), "OOMKilled", "0/1"},
		"exit code":                    {newPod(v1.PodFailed, end(3, 0, "")), "ExitCode:3", "0/1"},
		"signal":                       {newPod(v1.PodFailed, end(137, 9, "")), "Signal:9", "0/1"},
		"evicted":                      {evicted, "Evicted", "0/0"},
		"terminating":                  {deleted(newPod(v1.PodRunning, run())), "Terminating", "1/1"},
		"deleted when done":            {deleted(newPod(v1.PodSucceeded, end(0, 0, "Completed"))), "Completed", "0/1"},
		"first init container runs":    {withInit(newPod(v1.PodPending, wait("PodInitializing")), nil, run(), wait("PodInitializing")), "Init:0/2", "0/1"},
		"second init container next":   {withInit(newPod(v1.PodPending, wait("PodInitializing")), nil, end(0, 0, "Completed"), wait("PodInitializing")), "Init:1/2", "0/1"},
		"init container created":       {withInit(newPod(v1.PodPending, wait("PodInitializing")), nil, wait("ContainerCreating")), "Init:0/1", "0/1"},
		"init container crashes":       {withInit(newPod(v1.PodPending, wait("PodInitializing")), nil, wait("CrashLoopBackOff")), "Init:CrashLoopBackOff", "0/1"},
		"init container failed":        {withInit(newPod(v1.PodPending, wait("PodInitializing")), nil, end(1, 0, "Error")), "Init:Error", "0/1"},
		"init container's exit code":   {withInit(newPod(v1.PodPending, wait("PodInitializing")), nil, end(4, 0, "")), "Init:ExitCode:4", "0/1"},
		"init done":                    {withInit(newPod(v1.PodRunning, run()), nil, end(0, 0, "Completed")), "Running", "1/1"},
		"sidecar runs":                 {withInit(newPod(v1.PodRunning, run()), &always, run()), "Running", "2/2"},
		"sidecar not up":               {withInit(newPod(v1.PodPending, wait("PodInitializing")), &always, wait("ContainerCreating")), "Init:0/1", "0/2"},
		"failed in init":               {withInit(newPod(v1.PodFailed, end(1, 0, "Error")), nil, end(1, 0, "Error")), "Error", "0/1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Word(tc.pod); got != tc.word {
				t.Errorf("status: got %s, want %s", got, tc.word)
			}
			if got := Containers(tc.pod); got != tc.ready {
				t.Errorf("ready: got %s, want %s", got, tc.ready)
			}
		})
	}
}

func TestRestarts(t *testing.T) {
	p := newPod(v1.PodRunning, run(), run())
	if got := Restarts(p, now); got != "0" {
		t.Errorf("none: got %q", got)
	}
	p.Status.ContainerStatuses[0].RestartCount = 2
	p.Status.ContainerStatuses[1].RestartCount = 1
	if got := Restarts(p, now); got != "3" {
		t.Errorf("time not known: got %q", got)
	}
	p.Status.ContainerStatuses[1].LastTerminationState = end(1, 0, "Error")
	if got := Restarts(p, now); got != "3 (10s ago)" {
		t.Errorf("got %q", got)
	}
	if got := ContainerRestarts(&p.Status.ContainerStatuses[1], now); got != "1 (10s ago)" {
		t.Errorf("container: got %q", got)
	}
	always := v1.ContainerRestartPolicyAlways
	if got := RestartCount(withInit(p, &always, run())); got != 5 {
		t.Errorf("with a sidecar: got %d, want 5", got)
	}
	if got := RestartCount(withInit(newPod(v1.PodPending, wait("PodInitializing")), nil, wait("CrashLoopBackOff"))); got != 2 {
		t.Errorf("initializing: got %d, want 2", got)
	}
}

func TestAge(t *testing.T) {
	p := newPod(v1.PodRunning)
	if got := Age(p, now); got != "<unknown>" {
		t.Errorf("got %q", got)
	}
	p.Status.StartTime = &metav1.Time{Time: now.Add(-90 * time.Second)}
	if got := Age(p, now); got != "90s" {
		t.Errorf("got %q", got)
	}
	p.CreationTimestamp = metav1.NewTime(now.Add(-2 * time.Hour))
	if got := Age(p, now); got != "120m" {
		t.Errorf("got %q", got)
	}
}

func TestDone(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		want bool
	}{
		"ready":     {ready(newPod(v1.PodRunning, run())), true},
		"succeeded": {newPod(v1.PodSucceeded), true},
		"running":   {newPod(v1.PodRunning, run()), false},
		"failed":    {newPod(v1.PodFailed), false},
	} {
		if got := Done(tc.pod); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
