// Package podwhy says in plain words how a pod is, what it waits for, since when,
// what comes next and what a person could do about it.
package podwhy

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/cli/podstatus"
	"github.com/deckhand-node/deckhand/internal/cli/table"
	"github.com/deckhand-node/deckhand/internal/local"
	"github.com/deckhand-node/deckhand/internal/plaintext"
)

// maxCause is how many characters of a cause fit into a verdict.
const maxCause = 200

// Verdict says in one sentence how a pod is.
type Verdict struct {
	// Fine says that it is as it should be: ready, from the newest version of its
	// manifest, or completed.
	Fine bool `json:"fine"`
	// Text is the sentence, without the pod's name at its beginning.
	Text string `json:"verdict"`
}

// Of returns the verdict on a pod.
func Of(e *local.Explanation, now time.Time) Verdict {
	p := e.Pod
	switch {
	case p.DeletionTimestamp != nil || e.Stopping != "":
		return Verdict{Text: stopping(e, now)}
	case p.Status.Phase == v1.PodSucceeded:
		return Verdict{Fine: true, Text: "has completed" + ago(lastEnd(p), now)}
	case p.Status.Phase == v1.PodFailed:
		return Verdict{Text: "has failed" + ago(lastEnd(p), now) + because(failure(p))}
	case podstatus.Ready(p):
		text := "runs and is ready" + since(changed(p, v1.PodReady), now)
		text += restarts(p)
		if e.Stale != "" {
			return Verdict{Text: text + ", but as an older version of its manifest has it"}
		}
		return Verdict{Fine: true, Text: text}
	}
	return Verdict{Text: "is not ready" + since(notReadySince(p), now) + because(trouble(e))}
}

func stopping(e *local.Explanation, now time.Time) string {
	var at time.Time
	if e.Pod.DeletionTimestamp != nil {
		at = e.Pod.DeletionTimestamp.Time
	}
	why := e.Stopping
	if why == "" && len(e.Reasons) > 0 {
		why = e.Reasons[0].Text
	}
	return "is being stopped" + since(at, now) + because(why)
}

// restarts is ", restarted 3 times", or nothing if there were none.
func restarts(p *v1.Pod) string {
	switch n := podstatus.RestartCount(p); n {
	case 0:
		return ""
	case 1:
		return ", restarted once"
	default:
		return fmt.Sprintf(", restarted %d times", n)
	}
}

// trouble is what most keeps a pod from being ready.
func trouble(e *local.Explanation) string {
	s := &e.Pod.Status
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range list {
			w := list[i].State.Waiting
			switch {
			case w == nil || w.Reason == "" || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing":
			case strings.HasSuffix(w.Reason, "BackOff"):
				return fmt.Sprintf("container %s is in %s", list[i].Name, w.Reason)
			default:
				return fmt.Sprintf("container %s fails with %s", list[i].Name, w.Reason)
			}
		}
	}
	if len(e.Reasons) > 0 {
		if r := &e.Reasons[0]; r.Container != "" {
			return "container " + r.Container + ": " + r.Text
		}
		return e.Reasons[0].Text
	}
	if e.Runtime != "" {
		return "the runtime isn't ready: " + e.Runtime
	}
	return ""
}

// failure is why a failed pod failed.
func failure(p *v1.Pod) string {
	if p.Status.Reason != "" {
		if p.Status.Message != "" {
			return p.Status.Reason + ": " + p.Status.Message
		}
		return p.Status.Reason
	}
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			if t := list[i].State.Terminated; t != nil && t.ExitCode != 0 {
				return fmt.Sprintf("container %s ended with %s", list[i].Name, ending(t))
			}
		}
	}
	return p.Status.Message
}

// ending says how an instance of a container ended.
func ending(t *v1.ContainerStateTerminated) string {
	text := fmt.Sprintf("exit code %d", t.ExitCode)
	if t.Reason != "" {
		text += " (" + plaintext.Line(t.Reason) + ")"
	}
	if t.Message != "" {
		text += ": " + table.Cut(plaintext.Line(t.Message), maxCause)
	}
	return text
}

// notReadySince is when a pod that isn't ready came to that.
func notReadySince(p *v1.Pod) time.Time {
	if t := changed(p, v1.PodReady); !t.IsZero() {
		return t
	}
	if p.Status.StartTime != nil {
		return p.Status.StartTime.Time
	}
	return p.CreationTimestamp.Time
}

// changed is when a condition last changed.
func changed(p *v1.Pod, kind v1.PodConditionType) time.Time {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == kind {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// lastEnd is when the last container ended.
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
	return ": " + table.Cut(plaintext.Line(cause), maxCause)
}

// since is " since 12s", or nothing if the time isn't known.
func since(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " since " + span(now.Sub(t))
}

// ago is " 12s ago", or nothing if the time isn't known.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " " + span(now.Sub(t)) + " ago"
}
