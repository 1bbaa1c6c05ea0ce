package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// A container that crashes is started again at once, then after 10 s and so on.
func TestCrashAndBackoff(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("a.yaml", pod("a", "args: [exit, '3']"))
	n.Write("b.yaml", pod("b"))
	s := n.Await("the pod backs off", node.Ready("b"), waiting("a", "CrashLoopBackOff", "back-off 10s"))
	status := view(t, s, "a").Pod.Status.ContainerStatuses[0]
	last := status.LastTerminationState.Terminated
	if status.RestartCount != 1 || last == nil || last.ExitCode != 3 || last.Reason != "Error" {
		t.Errorf("status is %+v, want one restart and exit code 3", status)
	}
	if phase := view(t, s, "a").Pod.Status.Phase; phase != v1.PodRunning {
		t.Errorf("phase is %s, want Running", phase)
	}
	began := last.FinishedAt.Time
	if took := last.StartedAt.Sub(view(t, s, "a").Pod.Status.StartTime.Time); took > 5*time.Second {
		t.Errorf("the first restart came %s after the pod's start: it shouldn't have waited", took)
	}
	n.Kill()
	n.Start()
	n.Await("the back-off goes on in a new agent", agentIs(n), waiting("a", "CrashLoopBackOff", "back-off 10s"))
	s = n.Await("the second restart", restarted("a", 2), waiting("a", "CrashLoopBackOff", "back-off 20s"))
	waited := view(t, s, "a").Pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.StartedAt.Sub(began)
	// API times are whole seconds.
	if waited < 9*time.Second || waited > 15*time.Second {
		t.Errorf("the second restart came after %s, want 10s", waited)
	}
	if b := view(t, s, "b").Pod.Status.ContainerStatuses[0]; b.RestartCount != 0 {
		t.Error("the neighbour has restarted")
	}
}

// waiting is the condition that the pod's first container waits for this reason.
func waiting(name, reason, words string) node.Condition {
	return node.Each([]string{name}, func(v local.PodView) error {
		list := v.Pod.Status.ContainerStatuses
		if len(list) == 0 || list[0].State.Waiting == nil {
			return fmt.Errorf("doesn't wait: %+v", list)
		}
		if w := list[0].State.Waiting; w.Reason != reason || !strings.Contains(w.Message, words) {
			return fmt.Errorf("waits for %s: %s, want %s: %s", w.Reason, w.Message, reason, words)
		}
		return nil
	})
}

func TestRestartPolicies(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("fails.yaml", pod("fails", "args: [exit, '4']", "spec.restartPolicy: Never"))
	n.Write("ends.yaml", pod("ends", "args: [exit, '0']", "spec.restartPolicy: OnFailure"))
	n.Write("retried.yaml", pod("retried", "args: [exit, '5']", "spec.restartPolicy: OnFailure"))
	s := n.Await("each pod is where its policy takes it", node.Phase("fails", v1.PodFailed), node.Phase("ends", v1.PodSucceeded),
		waiting("retried", "CrashLoopBackOff", ""))
	for name, code := range map[string]int32{"fails": 4, "ends": 0} {
		status := view(t, s, name).Pod.Status.ContainerStatuses[0]
		if end := status.State.Terminated; end == nil || end.ExitCode != code || status.RestartCount != 0 {
			t.Errorf("container of %s is %+v, want it ended with %d and never restarted", name, status, code)
		}
	}
	ids := []string{containerID(t, s, "fails", "web"), containerID(t, s, "ends", "web")}
	n.Kill()
	n.Start()
	s = n.Await("pods that have ended stay so", agentIs(n), node.Phase("fails", v1.PodFailed), node.Phase("ends", v1.PodSucceeded), restarted("retried", 2))
	if now := []string{containerID(t, s, "fails", "web"), containerID(t, s, "ends", "web")}; !slices.Equal(now, ids) {
		t.Errorf("containers are %v, were %v", now, ids)
	}
}

// Init containers run one after the other, then sidecars run beside the rest.
func TestInitContainersAndSidecar(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("a.yaml", `apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  terminationGracePeriodSeconds: 2
  volumes: [{name: data, emptyDir: {}}]
  initContainers:
  - {name: first, image: `+node.Image+`, args: [write, /data/f, from the first], volumeMounts: [{name: data, mountPath: /data}]}
  - {name: side, image: `+node.Image+`, args: [sleep, 1h], restartPolicy: Always}
  - {name: second, image: `+node.Image+`, args: [cat, /data/f], volumeMounts: [{name: data, mountPath: /data}]}
  containers:
  - {name: main, image: `+node.Image+`, env: [{name: WEB_FILES, value: /data}], volumeMounts: [{name: data, mountPath: /data, readOnly: true}]}
`)
	s := n.Await("the pod runs", node.Ready("a"))
	v := view(t, s, "a")
	n.Eventually("main serves what the first wrote", answers("http://"+v.Pod.Status.PodIP+":8080/files/f", "from the first"))
	status := map[string]v1.ContainerStatus{}
	for _, c := range append(v.Pod.Status.InitContainerStatuses, v.Pod.Status.ContainerStatuses...) {
		status[c.Name] = c
	}
	for _, name := range []string{"first", "second"} {
		if end := status[name].State.Terminated; end == nil || end.ExitCode != 0 || end.Reason != "Completed" {
			t.Errorf("init container %s is %+v", name, status[name].State)
		}
	}
	if status["side"].State.Running == nil {
		t.Errorf("the sidecar is %+v", status["side"].State)
	}
	order := n.StartTimes()
	for i, names := 1, []string{"first", "side", "second", "main"}; i < len(names); i++ {
		if !order[names[i-1]].Before(order[names[i]]) {
			t.Errorf("%s started at %s, not before %s at %s", names[i-1], order[names[i-1]], names[i], order[names[i]])
		}
	}
	before := n.RunningIDs()
	n.Kill()
	n.Start()
	n.Await("the pod is adopted", agentIs(n), node.Ready("a"), noRestarts)
	unchanged(t, before, n.RunningIDs())

	n.Write("b.yaml", `apiVersion: v1
kind: Pod
metadata: {name: b}
spec:
  initContainers: [{name: fails, image: `+node.Image+`, args: [exit, '7']}]
  containers: [{name: main, image: `+node.Image+`}]
`)
	s = n.Await("a failing init container keeps its pod from starting", node.Each([]string{"b"}, func(v local.PodView) error {
		if list := v.Pod.Status.InitContainerStatuses; len(list) != 1 || list[0].RestartCount < 1 {
			return fmt.Errorf("init containers are %+v", list)
		}
		return nil
	}))
	if main := view(t, s, "b").Pod.Status.ContainerStatuses[0].State.Waiting; main == nil || main.Reason != "PodInitializing" {
		t.Errorf("the main container is %+v", view(t, s, "b").Pod.Status.ContainerStatuses[0].State)
	}
}
