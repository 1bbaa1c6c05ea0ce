// Package why explains the state of a pod: the reasons why it waits, since when, the next step and advice.
package why

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/explain"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// maxCause is the maximum length of a cause in a summary, in characters.
const maxCause = 200

// State is the state of a pod.
type State string

const (
	// Ready pods run and are ready.
	Ready State = "Ready"
	// NotReady pods should be ready, and aren't.
	NotReady State = "NotReady"
	// Succeeded pods have completed successfully.
	Succeeded = State(v1.PodSucceeded)
	// Failed pods have failed.
	Failed = State(v1.PodFailed)
	// Stopping pods are being stopped.
	Stopping State = "Stopping"
	// Stopped pods ended because a user stopped them.
	Stopped State = "Stopped"
)

// Summary summarizes the state of a pod.
type Summary struct {
	// Fine means that the pod is ready with the newest version of its manifest, has succeeded, or was stopped by a
	// user.
	Fine  bool  `json:"fine"`
	State State `json:"state"`
	// Since is the time at which the pod came to this state; zero if unknown.
	Since time.Time `json:"since,omitzero"`
	// Restarts is the number of restarts of a ready pod's containers.
	Restarts int `json:"restarts,omitempty"`
	// Text is the summary in one sentence, without times and without the pod's name.
	Text string `json:"verdict"`

	// detail is the reason for the state; empty if there is none.
	detail string
}

// Of returns the summary of a pod.
func Of(e *local.Explanation) Summary {
	v := summarize(e)
	timeless := v
	timeless.Since = time.Time{}
	v.Text = timeless.text(time.Time{})
	return v
}

func summarize(e *local.Explanation) Summary {
	p := e.Pod
	switch {
	case len(e.Waits) > 0 && e.Waits[0].Code == pod.WaitStopped:
		return Summary{Fine: true, State: Stopped}
	case p.DeletionTimestamp != nil || e.Stopping != "":
		return stopping(e)
	case p.Status.Phase == v1.PodSucceeded:
		return Summary{Fine: true, State: Succeeded, Since: lastEnd(p)}
	case p.Status.Phase == v1.PodFailed:
		return Summary{State: Failed, Since: lastEnd(p), detail: podstatus.Failure(p)}
	case podstatus.Ready(p):
		v := Summary{Fine: e.Stale == "", State: Ready, Since: changed(p, v1.PodReady),
			Restarts: podstatus.RestartCount(p)}
		if !v.Fine {
			v.detail = "as an older version of its manifest has it"
		}
		return v
	}
	return Summary{State: NotReady, Since: notReadySince(p), detail: obstacle(e)}
}

func stopping(e *local.Explanation) Summary {
	v := Summary{State: Stopping, detail: e.Stopping}
	if e.Pod.DeletionTimestamp != nil {
		v.Since = e.Pod.DeletionTimestamp.Time
	}
	if v.detail == "" && len(e.Waits) > 0 {
		v.detail = e.Waits[0].Text
	}
	return v
}

// text returns the summary with times.
func (v Summary) text(now time.Time) string {
	switch v.State {
	case Ready:
		text := "ready" + lasting(v.Since, now) + restarts(v.Restarts)
		if v.detail != "" {
			text += ", but " + v.detail
		}
		return text
	case Succeeded:
		return "completed" + ago(v.Since, now)
	case Failed:
		return "failed" + ago(v.Since, now) + because(v.detail)
	case Stopped:
		return "stopped"
	case Stopping:
		return "being stopped" + lasting(v.Since, now) + because(v.detail)
	default:
		return "not ready" + lasting(v.Since, now) + because(v.detail)
	}
}

// restarts returns ", restarted 3 times"; empty for 0.
func restarts(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return ", restarted once"
	default:
		return fmt.Sprintf(", restarted %d times", n)
	}
}

// obstacle returns the main reason why a pod isn't ready.
func obstacle(e *local.Explanation) string {
	s := &e.Pod.Status
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range list {
			w := list[i].State.Waiting
			if w == nil || podstatus.OnItsWay(w) {
				continue
			}
			switch pod.Reason(w.Reason) {
			case pod.ReasonCrashLoopBackOff:
				return fmt.Sprintf("container %s %s (%s)", list[i].Name, lastEndOf(e, &list[i]), w.Reason)
			case pod.ReasonImagePullBackOff:
				return fmt.Sprintf("container %s is in %s", list[i].Name, w.Reason)
			default:
				return fmt.Sprintf("container %s fails with %s", list[i].Name, w.Reason)
			}
		}
	}
	if len(e.Waits) > 0 {
		return e.Waits[0].Named()
	}
	if e.Runtime != "" {
		return "the runtime isn't ready: " + e.Runtime
	}
	return ""
}

// lastEndOf says why a container in back-off ended.
func lastEndOf(e *local.Explanation, s *v1.ContainerStatus) string {
	for i := range e.Waits {
		if w := &e.Waits[i].Wait; w.Code == pod.WaitBackOff && w.Container == s.Name {
			return explain.Ended(w)
		}
	}
	w := pod.Wait{}
	if t := s.LastTerminationState.Terminated; t != nil {
		w.ExitCode, w.Reason = t.ExitCode, pod.Reason(t.Reason)
	}
	return explain.Ended(&w)
}

// exit describes how an instance of a container ended, on one line.
func exit(t *v1.ContainerStateTerminated) string {
	return show.CutMiddle(terminal.Line(podstatus.Exit(t)), maxCause)
}

// notReadySince returns when a pod became not ready.
func notReadySince(p *v1.Pod) time.Time {
	if t := changed(p, v1.PodReady); !t.IsZero() {
		return t
	}
	if p.Status.StartTime != nil {
		return p.Status.StartTime.Time
	}
	return p.CreationTimestamp.Time
}

// changed returns the time of the last change of a pod's condition; zero if the pod doesn't have the condition.
func changed(p *v1.Pod, kind v1.PodConditionType) time.Time {
	if c := pod.Condition(&p.Status, kind); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// lastEnd returns the time at which the last of a pod's containers ended.
func lastEnd(p *v1.Pod) (last time.Time) {
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			if t := list[i].State.Terminated; t != nil && t.FinishedAt.After(last) {
				last = t.FinishedAt.Time
			}
		}
	}
	return last
}

func because(cause string) string {
	if cause == "" {
		return ""
	}
	return ": " + show.CutMiddle(terminal.Line(cause), maxCause)
}

// lasting returns " for 12s"; empty if the start is unknown.
func lasting(since, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	return " for " + span(now.Sub(since))
}

// ago returns " 12s ago"; empty if the time is unknown.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " " + span(now.Sub(t)) + " ago"
}
