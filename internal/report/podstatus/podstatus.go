// Package podstatus holds the current API status of every pod on the node (Store), and formats it as `kubectl get
// pods` does. Each pod's worker is the only writer of its entry; any goroutine may read or watch.
package podstatus

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Word returns the STATUS column of `kubectl get pods`.
func Word(p *v1.Pod) string {
	if p.DeletionTimestamp != nil && !Over(p) {
		return "Terminating"
	}
	if word := initWord(p); word != "" && !Over(p) {
		return word
	}
	if word := containersWord(p); word != "" {
		return word
	}
	if p.Status.Reason != "" {
		return p.Status.Reason
	}
	if p.Status.Phase == "" {
		return string(v1.PodPending)
	}
	return string(p.Status.Phase)
}

const completed = string(pod.ReasonCompleted)

// OnItsWay reports whether a container waits only for its start, not because of an error.
func OnItsWay(w *v1.ContainerStateWaiting) bool {
	switch pod.Reason(w.Reason) {
	case "", pod.ReasonPodInitializing, pod.ReasonContainerCreating:
		return true
	}
	return false
}

// initWord returns the STATUS of a pod that is initializing; it is empty once the init containers are done.
func initWord(p *v1.Pod) string {
	total := len(p.Spec.InitContainers)
	for i := range p.Status.InitContainerStatuses {
		s := &p.Status.InitContainerStatuses[i]
		switch {
		case s.State.Terminated != nil && s.State.Terminated.ExitCode == 0:
		case sidecar(p, s.Name) && s.State.Running != nil:
		case s.State.Terminated != nil:
			return "Init:" + terminatedWord(s.State.Terminated)
		case s.State.Waiting != nil && !OnItsWay(s.State.Waiting):
			return "Init:" + s.State.Waiting.Reason
		default:
			return fmt.Sprintf("Init:%d/%d", i, total)
		}
	}
	return ""
}

// containersWord returns the STATUS that results from the containers: the state of the first container that is neither
// running nor completed; empty if all are running. If some are completed and at least one of the others is ready, it is
// Running or, if the pod isn't Ready, NotReady.
func containersWord(p *v1.Pod) string {
	word, runs := "", false
	for i := range p.Status.ContainerStatuses {
		s := &p.Status.ContainerStatuses[i]
		switch {
		case s.State.Running != nil:
			runs = runs || s.Ready
		case word != "" && word != completed:
		default:
			if w := ContainerWord(s); w != "Running" {
				word = w
			}
		}
	}
	if word != completed || !runs {
		return word
	}
	if Ready(p) {
		return "Running"
	}
	return "NotReady"
}

// ContainerWord returns the STATUS of one container.
func ContainerWord(s *v1.ContainerStatus) string {
	switch {
	case s.State.Running != nil:
		return "Running"
	case s.State.Terminated != nil:
		return terminatedWord(s.State.Terminated)
	case s.State.Waiting != nil && s.State.Waiting.Reason != "":
		return s.State.Waiting.Reason
	}
	return "Waiting"
}

func terminatedWord(t *v1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

// Ready reports whether the pod's Ready condition is true.
func Ready(p *v1.Pod) bool {
	c := pod.Condition(&p.Status, v1.PodReady)
	return c != nil && c.Status == v1.ConditionTrue
}

// Done reports whether the pod has reached its goal: it is ready, or it succeeded.
func Done(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || Ready(p)
}

// Failure returns why a failed pod failed: the reason in its status, or how one of its containers ended.
func Failure(p *v1.Pod) string {
	if p.Status.Reason != "" {
		if p.Status.Message != "" {
			return p.Status.Reason + ": " + p.Status.Message
		}
		return p.Status.Reason
	}
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			if t := list[i].State.Terminated; t != nil && t.ExitCode != 0 {
				return "container " + list[i].Name + " ended with " + Exit(t)
			}
		}
	}
	return p.Status.Message
}

// Resumes reports whether a pod has failed because the node ran short of a resource, and will be restarted once the
// node has enough of it again: on a machine without a cluster no controller creates another pod. It is false for a pod
// with restartPolicy Never.
func Resumes(p *v1.Pod, source pod.Source) bool {
	disrupted := slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue
	})
	return p.Status.Phase == v1.PodFailed && pod.Reason(p.Status.Reason) == pod.ReasonEvicted && disrupted &&
		(source == pod.SourceFile || source == pod.SourceHTTP) && p.Spec.RestartPolicy != v1.RestartPolicyNever
}

// SaysWhyFailed reports whether Failure returns more than an exit code.
func SaysWhyFailed(p *v1.Pod) bool {
	says := func(s v1.ContainerStatus) bool { return s.State.Terminated != nil && s.State.Terminated.Message != "" }
	return p.Status.Reason != "" || p.Status.Message != "" ||
		slices.ContainsFunc(p.Status.InitContainerStatuses, says) ||
		slices.ContainsFunc(p.Status.ContainerStatuses, says)
}

// Exit describes how an instance of a container ended: its exit code, reason and message.
func Exit(t *v1.ContainerStateTerminated) string {
	text := fmt.Sprintf("exit code %d", t.ExitCode)
	if t.Reason != "" {
		text += " (" + t.Reason + ")"
	}
	if t.Message != "" {
		text += ": " + t.Message
	}
	return text
}

// Over reports whether the pod is in a terminal phase.
func Over(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// Containers returns the READY column: ready containers out of all. Sidecars count, as in kubectl; other init
// containers don't.
func Containers(p *v1.Pod) string {
	ready, total := 0, len(p.Spec.Containers)
	for i := range p.Status.ContainerStatuses {
		if p.Status.ContainerStatuses[i].Ready {
			ready++
		}
	}
	for i := range p.Spec.InitContainers {
		if sidecar(p, p.Spec.InitContainers[i].Name) {
			total++
		}
	}
	for i := range p.Status.InitContainerStatuses {
		if s := &p.Status.InitContainerStatuses[i]; sidecar(p, s.Name) && s.Ready {
			ready++
		}
	}
	return fmt.Sprintf("%d/%d", ready, total)
}

// RestartCount counts the restarts of the init containers while the pod is initializing, and those of the
// containers and sidecars afterwards.
func RestartCount(p *v1.Pod) int { n, _ := restarts(p); return n }

// Restarts returns the RESTARTS column.
func Restarts(p *v1.Pod, now time.Time) string {
	n, last := restarts(p)
	return restartText(n, last, now)
}

// ContainerRestarts returns the RESTARTS column of one container.
func ContainerRestarts(s *v1.ContainerStatus, now time.Time) string {
	return restartText(int(s.RestartCount), lastEnd(s), now)
}

func restartText(n int, last, now time.Time) string {
	if n == 0 || last.IsZero() {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d (%s ago)", n, duration.HumanDuration(now.Sub(last)))
}

func restarts(p *v1.Pod) (n int, last time.Time) {
	initializing := initWord(p) != ""
	add := func(s *v1.ContainerStatus) {
		n += int(s.RestartCount)
		if end := lastEnd(s); end.After(last) {
			last = end
		}
	}
	for i := range p.Status.InitContainerStatuses {
		if s := &p.Status.InitContainerStatuses[i]; initializing || sidecar(p, s.Name) {
			add(s)
		}
	}
	if !initializing {
		for i := range p.Status.ContainerStatuses {
			add(&p.Status.ContainerStatuses[i])
		}
	}
	return n, last
}

func lastEnd(s *v1.ContainerStatus) time.Time {
	if s.LastTerminationState.Terminated == nil {
		return time.Time{}
	}
	return s.LastTerminationState.Terminated.FinishedAt.Time
}

// Age returns the AGE column: the time since the pod was created or, if the creation time isn't set, since the pod was
// started on this node.
func Age(p *v1.Pod, now time.Time) string {
	if !p.CreationTimestamp.IsZero() {
		return Since(p.CreationTimestamp.Time, now)
	}
	if p.Status.StartTime != nil {
		return Since(p.Status.StartTime.Time, now)
	}
	return "<unknown>"
}

// Since formats the time from then to now as kubectl does.
func Since(then, now time.Time) string {
	if then.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(then))
}

func sidecar(p *v1.Pod, name string) bool {
	c := pod.ContainerNamed(p, name)
	return c != nil && pod.IsSidecar(c)
}
